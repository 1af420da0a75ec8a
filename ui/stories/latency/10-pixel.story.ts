// From a write on a member to the pixel, on real control planes; printed and not judged.
import { drive, expect, logIn, test, tokenOf } from "../world.ts";

const samples = Number(process.env["SAMPLES"] ?? "200");

test("from a write on a member to the pixel", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/explore?q=kind:deployments.apps");
  await expect(page.getByRole("row").filter({ hasText: "fleet/eu-1" }).filter({ hasText: "web" })).toBeVisible();
  const took: number[] = [];
  for (let i = 0; i < samples; i++) {
    const replicas = 10 + (i % 80);
    await page.waitForTimeout(300 + (i * 37) % 250); // a row changes four times a second at most
    // The page says when a frame that shows it was drawn, by the same clock.
    const shown = page.evaluate((text) => new Promise<number>((resolve) => {
      const look = () => {
        const row = [...document.querySelectorAll("[role=row]")].find((one) => one.textContent?.includes("fleet/eu-1") === true && one.textContent.includes("web"));
        if (row?.textContent?.includes(text) === true) requestAnimationFrame(() => resolve(Date.now()));
        else requestAnimationFrame(look);
      };
      look();
    }), `0/${replicas}`);
    const began = Date.now();
    await drive("scale", { member: "eu-1", name: "web", replicas });
    took.push((await shown) - began);
  }
  took.sort((a, b) => a - b);
  const at = (p: number) => took[Math.min(took.length - 1, Math.floor(p * took.length))];
  console.log(`from a write on a member, its request included, to the pixel: p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, p99 ${at(0.99)} ms, of ${took.length}`);
});
