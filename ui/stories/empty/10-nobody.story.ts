// A hub on its first day: no member, no policy. Each page says what it has looked at, and what is missing.
import { expect, fits, logIn, look, picture, settled, test, tokenOf, world } from "../world.ts";

const pages: Record<string, [path: string, says: RegExp]> = {
  fleet: ["/ui/", /no member/i],
  tiles: ["/ui/?view=tiles", /no member/i],
  matrix: ["/ui/?view=matrix", /no member/i],
  explore: ["/ui/explore", /no kinds/i],
  violations: ["/ui/violations", /no violations/i],
  policies: ["/ui/policies", /no polic/i],
  actions: ["/ui/actions", /no actions/i],
  waiting: ["/ui/actions?tab=waiting", /nothing waits/i],
  stops: ["/ui/actions?tab=stops", /nothing is stopped/i],
  sources: ["/ui/sources", /no source/i],
  member: ["/ui/members/fleet/eu-1", /no member|no such member/i],
  policy: ["/ui/policies/none", /no polic|no such policy|not found/i],
};

test("a fleet without members", async ({ page }) => {
  await logIn(page, await tokenOf("olga", "hub"));
  for (const [name, [path, says]] of Object.entries(pages)) {
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.goto(world.url + path);
    await settled(page);
    await (name === "fleet" ? picture : look)(page, `empty-${name}`);
    await expect.soft(page.getByRole("main"), name).toContainText(says);
    await expect.soft(page.getByRole("main").getByRole("alert"), name).toHaveCount(0);
    await page.setViewportSize({ width: 390, height: 844 });
    await fits(page);
  }
});
