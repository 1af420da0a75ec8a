import { accessible, expect, logIn, picture, test, world } from "../world.ts";

const token = world.tokens["local"] ?? "";

test("a hundred thousand rows, in a short turn fewer: all are counted, some are held, a few are drawn", async ({ page }) => {
  await logIn(page, token, "/ui/explore?q=kind:pods");
  await expect(page.getByText(new RegExp(`${world.pods.toLocaleString("en-US").replace(",", "[,.\\s\u202f]?")}|${world.pods}`)).first()).toBeVisible();
  const grid = page.getByRole("grid").first();
  await expect(grid.getByRole("row").nth(5)).toBeVisible();
  const seen = new Set<string>();
  await grid.hover();
  for (let i = 0; i < 20; i++) {
    await page.mouse.wheel(0, 4_000);
    await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 5);
    for (const text of await grid.getByRole("row").allInnerTexts()) seen.add(text);
    expect(await page.locator("[role=grid] [role=row]").count()).toBeLessThan(250);
  }
  expect(seen.size).toBeGreaterThan(300);
  await accessible(page);
});

test("many members as table, tiles and matrix", async ({ page }) => {
  await logIn(page, token, "/ui/?view=tiles");
  await expect(page.getByText(`${world.members}`).first()).toBeVisible();
  await expect(page.locator("[aria-busy=true]")).toHaveCount(0);
  await picture(page, `tiles-${world.members}`);
  await page.goto(world.url + "/ui/?view=matrix");
  await expect(page.getByRole("grid").first()).toBeVisible();
  await picture(page, `matrix-${world.members}`);
});
