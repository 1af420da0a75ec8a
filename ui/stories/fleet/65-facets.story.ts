// Each number beside the list of violations is as many rows as a click on it gives.
import { drive, expect, logIn, test, tokenOf, world } from "../world.ts";

const strict = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: strict}
spec:
  package: platform.replicas
  mode: Observe
  parameters: {replicas: 9}
  exemptions: [{reason: it is small, members: {names: [fleet/us-1]}}]
`;

test("a number beside the list is the number of its rows", async ({ page }) => {
  await drive("apply", { manifest: strict });
  await logIn(page, await tokenOf("olga"), "/ui/violations?policy=strict");
  const filters = page.getByRole("complementary", { name: "Filters" }), list = page.getByRole("grid", { name: "Violations" });
  await expect(filters.getByRole("button", { name: /^exempt [1-9]/ })).toBeVisible();
  for (const start of ["policy=strict", "exempt=true", "exempt=false&since=24h"]) {
    const at = `${world.url}/ui/violations?${start}`;
    await page.goto(at);
    await expect(list).toBeVisible();
    await expect(filters.getByText("…", { exact: true })).toHaveCount(0);
    const sections = await filters.locator("section").count();
    for (let i = 0; i < sections; i++) {
      const section = filters.locator("section").nth(i);
      if ((await section.locator("[aria-pressed=true]").count()) > 0) continue; // another would widen what is chosen
      const value = section.locator("[aria-pressed]").last(), n = Number((await value.locator(".n").textContent())?.replace(/\D/g, ""));
      await value.click();
      await expect(list, `${start}: ${await section.textContent()}`).toHaveAttribute("aria-rowcount", String(n + 1));
      await section.locator("[aria-pressed=true]").first().click(); // as before
    }
  }
});
