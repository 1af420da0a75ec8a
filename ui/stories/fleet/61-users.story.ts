import type { Page, Route } from "@playwright/test";
import { expect, logIn, test, tokenOf, world } from "../world.ts";

// Where a story holds up single answers, the tab has a stream of its own: a SharedWorker's requests cannot be held up.
async function alone(page: Page): Promise<void> {
  await page.addInitScript(() => { Reflect.deleteProperty(globalThis, "SharedWorker"); });
}

test("an answer of before the log-out does not log in again", async ({ page }) => {
  await alone(page);
  await logIn(page, await tokenOf("olga"));
  let hold = true;
  const held: Route[] = [];
  const old = await page.evaluate(async () => (await fetch("/ui/session")).json());
  await page.route("**/ui/session", async (route) => {
    if (hold && route.request().method() === "GET") held.push(route);
    else await route.continue();
  });
  await page.evaluate(() => { new BroadcastChannel("federator-session").postMessage("somebody"); }); // has the tab ask who is there
  await expect.poll(() => held.length).toBe(1);
  hold = false;
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page.getByLabel("Token of a user or ServiceAccount")).toBeVisible();
  await held[0]?.fulfill({ json: old });
  await page.waitForTimeout(500);
  await expect(page.getByRole("navigation")).toHaveCount(0);
});

test("who cannot be logged out is told so", async ({ page }) => {
  await logIn(page, await tokenOf("olga"));
  await page.route("**/ui/session", (route) => route.request().method() === "DELETE" ? route.abort() : route.continue());
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page.getByText("You are still logged in")).toBeVisible();
});

test("nothing that one user has read is shown to the next", async ({ page }) => {
  await alone(page);
  await logIn(page, await tokenOf("olga"), "/ui/explore");
  await expect(page.getByRole("row").nth(2)).toBeVisible();
  const before = await page.evaluate(async () => (await fetch("/ui/session")).json());
  await page.route("**/query/**", (route) => route.abort()); // the next one's own answers do not come
  await page.route("**/fleet/**", (route) => route.abort());
  await page.route("**/ui/session", (route) => route.fulfill({ json: { ...before, user: "mallory" } }));
  await page.evaluate(() => { new BroadcastChannel("federator-session").postMessage("mallory"); });
  await expect(page.getByText("mallory")).toBeVisible();
  await expect(page.getByRole("row").filter({ hasText: /Deployment/ })).toHaveCount(0);
});

test("keys do not reach what is behind a dialog", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/violations");
  await expect(page.getByRole("row").nth(3)).toBeVisible();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toBeVisible();
  for (const key of ["j", "j", "Enter", "/"]) await page.keyboard.press(key);
  expect(new URL(page.url()).search).toBe("");
  expect(await page.evaluate(() => document.activeElement?.closest("[role=dialog]") !== null)).toBe(true);
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  expect(world.url).not.toBe("");
});
