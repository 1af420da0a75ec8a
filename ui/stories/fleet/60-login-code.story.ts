import { expect, test, world } from "../world.ts";

// The proxy of `federator ui` is tested where it is; this is the page's part, with the proxy's answers.
const nobody = { user: "", groups: [], methods: ["proxy"], canWrite: false, cannotWriteWhy: "", expires: "", version: "", hub: false };

test("the code in the address logs in, and is gone from the address before that", async ({ page }) => {
  let user = "", asked = "", addressThen = "";
  await page.route("**/ui/session", async (route) => {
    if (route.request().method() === "POST") {
      asked = route.request().postData() ?? "";
      addressThen = await page.evaluate(() => location.href);
      user = "laptop";
    }
    await route.fulfill({ json: { ...nobody, user } });
  });
  await page.goto(`${world.url}/ui/policies?q=x#code=ONCE`);
  await expect(page.getByRole("navigation").first()).toBeVisible();
  expect(asked).toBe('{"code":"ONCE"}');
  expect(addressThen).toBe(`${world.url}/ui/policies?q=x`);
  expect(await page.evaluate(() => history.length)).toBeLessThanOrEqual(2);
});

test("who comes with a code that was used is told what to do", async ({ page }) => {
  await page.route("**/ui/session", (route) => route.request().method() === "POST"
    ? route.fulfill({ status: 401, json: { kind: "Status", code: 401, message: "the code is wrong, or was used before" } }) : route.fulfill({ json: nobody }));
  await page.goto(`${world.url}/ui/#code=OLD`);
  await expect(page.getByText("The code is wrong, or was used before.")).toBeVisible();
  await expect(page.getByText("Run federator ui again", { exact: false })).toBeVisible();
  expect(page.url()).toBe(`${world.url}/ui/`);
});
