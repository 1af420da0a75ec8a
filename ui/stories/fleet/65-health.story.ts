import { drive, expect, logIn, picture, test, tokenOf, world } from "../world.ts";

test("a member's page says how it is: its budget, audits and, once it is lost, its error", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/members/fleet/ap-1?tab=health");
  const panel = page.getByRole("tabpanel");
  await expect(panel.getByText("Connected")).toBeVisible();
  await expect(panel.getByText(/of 2,000,000/)).toBeVisible();
  await expect(panel.getByText(/GiB|MiB/)).toBeVisible();
  await expect(panel.getByText("Lost events")).toBeVisible();
  await drive("cut", { member: "ap-1" });
  await expect(panel.getByText("Disconnected")).toBeVisible({ timeout: 60_000 });
  await expect(panel.locator(".wrong")).toContainText(/connection|refused|EOF|reset|timeout/);
  await picture(page, "member-health");
  await page.goto(world.url + "/ui/members/fleet/ap-1");
  await page.getByRole("link", { name: /Disconnected/ }).click(); // what is wrong leads to why
  await expect(page).toHaveURL(/tab=health/);
  await drive("mend", { member: "ap-1" });
  await expect(panel.getByText("Connected")).toBeVisible({ timeout: 60_000 });
  await expect(panel.locator(".wrong")).toHaveCount(0);
});

test("who may not list everything in a member is not told of its errors, but of what is missing", async ({ page }) => {
  await logIn(page, await tokenOf("eve"), "/ui/members/fleet/eu-1?tab=health");
  const panel = page.getByRole("tabpanel");
  await expect(panel.getByText("You may not read this")).toBeVisible();
  await expect(panel.locator("code")).toContainText("list *");
  await expect(page.getByText("Connected")).toHaveCount(0);
  await expect(page.getByText("Budget")).toHaveCount(0);
});
