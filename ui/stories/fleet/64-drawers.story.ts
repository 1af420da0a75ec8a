import { accessible, expect, logIn, look, picture, test, tokenOf } from "../world.ts";

test("drawers and dialogs are accessible, and give the focus back", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/explore?q=deployments.apps");
  await page.getByRole("row").nth(1).click();
  const details = page.getByRole("complementary", { name: "Details" });
  for (const tab of ["YAML", "Related", "Violations", "In other members"]) {
    await details.getByRole("tab", { name: tab }).click();
    await expect(details.getByRole("status", { name: "Loading" })).toHaveCount(0);
    if (tab === "YAML" || tab === "In other members") await picture(page, tab === "YAML" ? "object" : "compare"); // which checks it, too
    else await accessible(page);
  }
  await page.keyboard.press("Escape");
  await expect(details).toHaveCount(0);
  const stop = page.getByRole("button", { name: /^Stop/ }).first();
  await stop.click();
  await page.getByRole("button", { name: "One member" }).click();
  await accessible(page);
  await page.keyboard.press("Escape");
  await expect(stop).toBeFocused();
});

test("the palette finds objects by how their names begin", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/sources");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("sear");
  const search = page.getByRole("option").filter({ hasText: /^Deployment\s*search/ }); // Actions on it are found, too
  await expect(search).toContainText("shop · 3 members");
  await look(page, "palette"); // and checks that it is accessible
  await search.click();
  await expect(page).toHaveURL(/q=deployments\.apps\+name:search\+namespace:shop/);
  await expect(page.getByRole("row").filter({ hasText: "search" })).toHaveCount(3);
});
