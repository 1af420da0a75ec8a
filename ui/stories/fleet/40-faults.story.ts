import { drive, expect, logIn, picture, test, tokenOf, world } from "../world.ts";

test("a member that is lost is said to be, and its objects stay; back, it is fresh", async ({ page }) => {
  await logIn(page, await tokenOf("olga"));
  const row = page.getByRole("row").filter({ hasText: "fleet/ap-1" });
  await expect(row).toContainText("Synced");
  await drive("cut", { member: "ap-1" });
  await expect(row).toContainText("Stale", { timeout: 60_000 });
  await picture(page, "member-lost");
  await page.goto(world.url + "/ui/explore?q=kind:deployments.apps");
  await expect(page.getByRole("row").filter({ hasText: "fleet/ap-1" })).toHaveCount(3);
  await expect(page.getByText(/of 3 members.*fleet\/ap-1|fleet\/ap-1.*not fresh|1 not fresh|2 of 3/).first()).toBeVisible();
  await drive("mend", { member: "ap-1" });
  await page.goto(world.url + "/ui/");
  await expect(page.getByRole("row").filter({ hasText: "fleet/ap-1" })).toContainText("Synced", { timeout: 60_000 });
});

test("a server that restarts is waited for, what is shown stays, and then it goes on", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/explore?q=kind:deployments.apps");
  const row = page.getByRole("row").filter({ hasText: "fleet/eu-1" }).filter({ hasText: "web" });
  await expect(row).toContainText("0/3");
  const restarted = drive("restart");
  await expect(page.getByText(/reconnecting/i).first()).toBeVisible({ timeout: 40_000 });
  await expect(row).toContainText("0/3");
  await restarted;
  await expect(page.getByText(/reconnecting/i)).toHaveCount(0, { timeout: 60_000 });
  await drive("scale", { member: "eu-1", name: "web", replicas: 4 });
  await expect(row).toContainText("0/4");
});
