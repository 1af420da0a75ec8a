// A hub on its first day: no member, no policy. Each page says what it has looked at, and what is missing.
import { expect, fits, logIn, look, picture, resize, settled, test, tokenOf } from "../world.ts";

const pages: Record<string, [path: string, says: RegExp]> = {
  fleet: ["/ui/", /no member/i],
  tiles: ["/ui/?view=tiles", /no member/i],
  matrix: ["/ui/?view=matrix", /no member/i],
  explore: ["/ui/explore", /no kinds/i],
  violations: ["/ui/violations", /no violations/i],
  policies: ["/ui/policies", /policies/i],
  actions: ["/ui/actions", /no actions/i],
  waiting: ["/ui/actions?tab=waiting", /nothing waits/i],
  stops: ["/ui/actions?tab=stops", /nothing is stopped/i],
  sources: ["/ui/sources", /no sources/i],
  member: ["/ui/members/fleet/eu-1", /no member/i],
  policy: ["/ui/policies/none", /no polic|no such policy|not found/i],
};

for (const [name, [path, says]] of Object.entries(pages)) {
  test(`without members: ${name}`, async ({ page }) => {
    await logIn(page, await tokenOf("olga", "hub"), path);
    await settled(page);
    await expect(page.getByRole("main")).toContainText(says);
    if (name !== "policy") await expect(page.getByRole("main").getByRole("alert")).toHaveCount(0); // the server says so by an error
    await (name === "fleet" ? picture : look)(page, `empty-${name}`);
    await resize(page, 390, 844);
    await fits(page);
  });
}
