import { accessible, expect, fits, logIn, look, picture, resize, settled, test, tokenOf } from "../world.ts";

test("everything is in reach of the keyboard", async ({ page }) => {
  await logIn(page, await tokenOf("olga"));
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.keyboard.type("violations");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/ui\/violations/);
  await expect(page.getByRole("row").nth(3)).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("privileged");
  await expect(page).toHaveURL(/q=privileged/); // the worst is first: it is there before the search, too
  await expect(page.getByRole("row").filter({ hasText: "container debug is privileged" })).toBeVisible();
  await expect(page.locator(".skeleton")).toHaveCount(0);
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  const details = page.getByRole("complementary", { name: "Details" });
  await expect(details).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(details).toHaveCount(0);
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toBeVisible();
  await accessible(page);
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  // Focus is always somewhere that is seen.
  for (let i = 0; i < 25; i++) {
    await page.keyboard.press("Tab");
    const seen = await page.evaluate(() => {
      const on = document.activeElement;
      if (on === null || on === document.body) return "nowhere";
      const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(on);
      return (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || boxShadow !== "none" ? "" : on.outerHTML.slice(0, 120);
    });
    if (seen !== "nowhere") expect(seen).toBe("");
  }
});

test("links carry the whole view, and back goes back", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/violations?severity=critical");
  const row = page.getByRole("row").filter({ hasText: "container debug is privileged" });
  await row.click();
  await expect(page.getByRole("complementary", { name: "Details" })).toBeVisible();
  const link = page.url();
  await page.goBack();
  await expect(page.getByRole("complementary", { name: "Details" })).toHaveCount(0);
  await page.goto(link);
  await expect(page.getByRole("complementary", { name: "Details" })).toContainText("container debug is privileged");
});

for (const [name, path] of Object.entries({
  fleet: "/ui/", tiles: "/ui/?view=tiles", matrix: "/ui/?view=matrix", explore: "/ui/explore?q=kind:deployments.apps", violations: "/ui/violations", policies: "/ui/policies",
  actions: "/ui/actions", sources: "/ui/sources", member: "/ui/members/fleet/eu-1",
})) {
  test(`${name} on narrower screens, and as a picture`, { tag: "@full" }, async ({ page }) => {
    await logIn(page, await tokenOf("olga"), path);
    await settled(page);
    if (name !== "fleet") await picture(page, name);
    await resize(page, 1024, 768);
    await fits(page);
    await look(page, `medium-${name}`, undefined, false); // axe has seen the same above
    await resize(page, 390, 844);
    await fits(page);
    await picture(page, `narrow-${name}`);
  });
}
