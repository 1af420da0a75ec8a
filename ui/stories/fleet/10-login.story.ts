import { expect, logIn, picture, test, tokenOf, world } from "../world.ts";

test("somebody logs in by a token, sees the fleet, and logs out in every tab", async ({ page, context }) => {
  await page.goto(world.url + "/ui/");
  await expect(page.getByLabel("Token of a user or ServiceAccount")).toBeVisible();
  await page.getByLabel("Token of a user or ServiceAccount").fill("not-a-token");
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await expect(page.getByRole("alert")).toBeVisible();
  await picture(page, "login");

  await logIn(page, await tokenOf("olga"));
  for (const member of ["fleet/eu-1", "fleet/us-1", "fleet/ap-1"]) {
    await expect(page.getByText(member, { exact: true }).first()).toBeVisible();
  }
  // The token is where no script can read it.
  expect(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage))).not.toContain("ey");
  const cookies = await context.cookies();
  for (const cookie of cookies) {
    expect(cookie).toMatchObject({ httpOnly: true, secure: true, sameSite: "Strict", path: "/" });
    expect(cookie.name).toMatch(/^__Host-/);
  }
  expect(cookies.length).toBeGreaterThan(0);
});
