// What the demonstration tells, by the web UI alone: a violation, down to the line of Rego, the commit and the Action; a
// halt that somebody lets pass; a correction that is rolled back.
import { drive, expect, logIn, logInAtIssuer, picture, platform, test, tokenOf, world } from "../world.ts";

test.describe.configure({ mode: "serial" });

test("a correction shows up while somebody looks", async ({ page }) => {
  await logIn(page, await tokenOf("olga", "hub"), "/ui/actions");
  await expect(page.getByRole("heading", { name: /No Actions|Nothing was written/ })).toBeVisible();
  await drive("apply", { manifest: platform });
  await drive("replicas", { member: "us-1", name: "cart", replicas: 2 });
  await expect(page.getByRole("row").filter({ hasText: "Deployment.apps shop/cart" }).filter({ hasText: "Succeeded" })).toBeVisible();
  await page.getByRole("row").filter({ hasText: "shop/cart" }).click();
  await expect(page.getByRole("complementary", { name: "Details" })).toContainText("/spec/replicas");
  await picture(page, "action");
});

test("too much at once is halted, and its cause is three clicks away", async ({ page }) => {
  const commit = await drive<string>("commit", { file: "replicas.yaml", old: "replicas: 2", new: "replicas: 3", message: "Ask for three replicas" });
  await logIn(page, await tokenOf("olga", "hub"));
  await expect(page.getByText("1 halt", { exact: true })).toBeVisible({ timeout: 40_000 });
  await picture(page, "fleet");

  await page.goto(world.url + "/ui/violations?policy=replicas");
  await page.getByRole("row").filter({ hasText: "fleet/us-1" }).filter({ hasText: "shop/cart" }).click(); // 1
  const details = page.getByRole("complementary", { name: "Details" });
  await expect(details).toContainText("2 replicas where 3 are asked for");
  await expect(details.getByText("input.object.spec.replicas < input.parameters.replicas")).toBeVisible();
  await expect(details).toContainText(commit.slice(0, 8));
  await expect(details).toContainText("/spec/replicas");
  await picture(page, "violation");
  await details.getByRole("link", { name: /Succeeded|patch/ }).first().click(); // 2
  await expect(page).toHaveURL(/\/ui\/actions/);
  await expect(page.getByRole("complementary", { name: "Details" })).toContainText("fleet/us-1");
});

test("somebody who logs in at the issuer lets it pass, and the hub's audit names them", async ({ page }) => {
  await logInAtIssuer(page, "bob");
  await page.goto(world.url + "/ui/actions?tab=waiting");
  await page.getByRole("button", { name: "See what would be let pass" }).click();
  const details = page.getByRole("complementary", { name: "Details" });
  await expect(details).toContainText("/spec/replicas");
  const pass = details.getByRole("button", { name: "Let 6 corrections pass" });
  await expect(pass).toBeDisabled(); // a reason is asked for
  await details.getByRole("textbox", { name: "Why" }).fill("three is right");
  await picture(page, "halt");
  await pass.click();
  await expect(details.getByText(/Approved as replicas-/)).toBeVisible();
  for (const member of ["eu-1", "us-1", "ap-1"]) await drive("replicas", { member, name: "search", replicas: 3 });
  await expect(page.getByRole("heading", { name: "Nothing waits" })).toBeVisible();
  await expect(details).toContainText("Approved as replicas-"); // who let it pass still sees that they have
  expect(await drive("writers", { resource: "approvals" })).toEqual(["oidc:bob"]);
  await page.goto(world.url + "/ui/actions"); // the halt has ended, and is still told of
  await expect(page.getByRole("link", { name: /replicas halted: OverLimit, has ended: acknowledged by oidc:bob/ })).toBeVisible();
});

test("a correction is rolled back, once its policy is suspended", async ({ page }) => {
  await logIn(page, await tokenOf("olga", "hub"), "/ui/policies/replicas");
  await expect(page.getByText("Enforcing").first()).toBeVisible();
  await picture(page, "policy");
  await page.getByRole("button", { name: "Suspend replicas" }).click();
  await expect(page.getByText("Suspended").first()).toBeVisible();
  await page.goto(world.url + "/ui/actions?policy=replicas");
  await page.getByRole("row").filter({ hasText: "fleet/ap-1" }).filter({ hasText: "shop/search" }).click();
  const details = page.getByRole("complementary", { name: "Details" });
  await details.getByRole("textbox", { name: "Why" }).fill("two are enough in Japan");
  await details.getByRole("button", { name: "Roll back 1 correction" }).click();
  await drive("replicas", { member: "ap-1", name: "search", replicas: 2 });
  await expect(page.getByText("RolledBack").first()).toBeVisible();
  await picture(page, "actions");
});

test("everything stops by one click and a reason, and goes on", async ({ page }) => {
  await logIn(page, await tokenOf("olga", "hub"));
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByRole("textbox", { name: "Why" }).fill("incident 4711");
  await picture(page, "stop");
  await page.getByRole("button", { name: "Stop all writes" }).click();
  await expect(page.getByText("incident 4711").first()).toBeVisible();
  await page.goto(world.url + "/ui/violations"); // it is said everywhere
  await expect(page.getByText("incident 4711").first()).toBeVisible();
  await page.goto(world.url + "/ui/actions?tab=stops");
  await page.getByRole("button", { name: "Resume all writes" }).first().click();
  await expect(page.getByText("incident 4711")).toHaveCount(0);
});
