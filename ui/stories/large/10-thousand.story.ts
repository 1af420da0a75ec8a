import { expect, fits, logIn, look, picture, resize, settled, test, tokenOf, world } from "../world.ts";

const pages: Record<string, string> = {
  fleet: "/ui/", tiles: "/ui/?view=tiles", grouped: "/ui/?view=tiles&by=region", matrix: "/ui/?view=matrix", violations: "/ui/violations",
  explore: "/ui/explore?q=kind:pods",
};

test("a thousand members become fresh", async ({ page }) => {
  test.setTimeout(270_000);
  await logIn(page, await tokenOf("olga"));
  const all = world.members.toLocaleString("en");
  await expect(page.getByText(`${all} of ${all} fresh`).first()).toBeVisible({ timeout: 240_000 });
});

for (const [name, path] of Object.entries(pages)) {
  test(`a thousand members: ${name}`, async ({ page }) => {
    await logIn(page, await tokenOf("olga"), path);
    for (const [size, width, height] of [["", 1440, 900], ["medium-", 1024, 768], ["narrow-", 390, 844]] as const) {
      await resize(page, width, height);
      await settled(page);
      await fits(page);
      if (size === "" && name === "grouped") await picture(page, `${name}-${world.members}`);
      else await look(page, `${size}${name}-${world.members}`, undefined, size === "" && name !== "tiles"); // axe takes its time on 1,000 of anything
    }
  });
}
