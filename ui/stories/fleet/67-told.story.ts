// What is not known, not sent, or not for the present user is not told as something else.
import { expect, logIn, test, tokenOf } from "../world.ts";
import { asked, open, tell } from "../made.ts";

const stops = { "/query/v1/stops": { items: [] } };
const members = (n: number) => ({ revision: "1", items: [], summary: { members: n, synced: n, byState: {}, scopes: {}, objects: 0, bytes: 0 } });

test("who stopped a policy, and why, is said to be not shown where it is not sent", async ({ page }) => {
  const stop = { scope: "policy", name: "replicas", since: "2026-01-01T00:00:00Z", hubForbidden: "list fleetpolicies.federator.dev" };
  await open(page, "/ui/actions?tab=stops", { "/query/v1/stops": { items: [stop] } });
  await expect(page.getByRole("tabpanel")).toContainText("not shown: you lack list fleetpolicies.federator.dev");
  await expect(page.locator(".stopline")).toContainText("not shown: you lack list fleetpolicies.federator.dev");
  await page.getByRole("button", { name: "1 stopped" }).click();
  await expect(page.getByRole("dialog")).toContainText("not shown: you lack list fleetpolicies.federator.dev");
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "Fleet" }).click();
  await expect(page.getByRole("region", { name: "Is anything wrong" })).toContainText("not shown: you lack list fleetpolicies.federator.dev");
  await expect(page.getByText(/reason is given|somebody/)).toHaveCount(0);
});

test("without members nothing is late, and with them it is", async ({ page }) => {
  const nothing = { revision: "5", synced: false, items: [], groups: [] };
  await open(page, "/ui/violations", { ...stops, "/query/v1/violations": nothing, "/query/v1/members?summary": members(0) });
  await expect(page.getByText("There is no member of which you may read anything")).toBeVisible();
  await expect(page.getByText("no members", { exact: false }).first()).toBeVisible();
  await expect(page.getByText(/not all is evaluated|has been seen yet/i)).toHaveCount(0);
  await tell(page, "/query/v1/members?summary", { value: members(1) });
  await expect(page.getByText("not all is evaluated yet")).toBeVisible();
  await expect(page.getByText("Not all that policies read has been seen yet.")).toBeVisible();
});

test("what was corrected leads to the Actions that are counted, and the cost is of some minutes", async ({ page }) => {
  const policy = { name: "replicas", package: "p", severity: "high", mode: "Enforce", state: "Enforcing", violations: 0, corrected: 7, cost: { windowSeconds: 120, cpuShare: 0.01, evaluationsPerSecond: 2, perEvaluationMicros: 5 } };
  await open(page, "/ui/policies/replicas", { ...stops, "/query/v1/policies": { revision: "1", synced: true, items: [policy] }, "/query/v1/actions": { items: [], total: 0 } });
  await expect(page.getByText("each, in the last 2m")).toBeVisible();
  await page.getByRole("link", { name: "7", exact: true }).click();
  await expect(page.getByRole("button", { name: "phase: Succeeded ✕" })).toBeVisible();
  await expect.poll(async () => { // what a page asks for is gathered before it is sent
    const paths = (await asked(page)).filter((path) => path.startsWith("/query/v1/actions"));
    return paths.map((path) => [...new URLSearchParams(path.split("?")[1])].filter(([name]) => name !== "limit"));
  }).toEqual([[["policy", "replicas"], ["phase", "Succeeded"]]]);
});

test("a hub that is out of reach is said beside what it had", async ({ page }) => {
  await open(page, "/ui/actions", { ...stops, "/query/v1/actions": { items: [], total: 0, stale: true }, "/query/v1/policies": { revision: "1", synced: true, items: [], stale: true } });
  await expect(page.getByText("the hub is out of reach")).toBeVisible();
  await page.getByRole("tab", { name: /What waits/ }).click();
  await expect(page.getByText("the hub is out of reach")).toBeVisible();
});

test("what waits no more is said to, also to who comes by a link", async ({ page }) => {
  await open(page, "/ui/actions?tab=waiting&wait=replicas:h1", { ...stops, "/query/v1/policies": { revision: "1", synced: true, items: [] } });
  await expect(page.getByText("What this address names waits no more")).toBeVisible();
});

test("what one user has done is not told to the next, and nothing of theirs stays open", async ({ page }) => {
  await logIn(page, await tokenOf("olga", "hub"), "/ui/actions?tab=stops");
  const before = await page.evaluate(async () => (await fetch("/ui/session")).json() as Promise<Record<string, unknown>>);
  let answer = () => {};
  await page.route("**/ui/relay/stops", async (route) => {
    await new Promise<void>((resolve) => { answer = resolve; });
    await route.fulfill({ json: {} });
  });
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByRole("textbox", { name: "Why" }).fill("secret reason");
  const sent = page.waitForRequest("**/ui/relay/stops");
  await page.getByRole("button", { name: "Stop all writes" }).click();
  await sent;
  await page.keyboard.press("Escape");
  await page.keyboard.press("ControlOrMeta+k");
  await expect(page.getByRole("dialog", { name: "Go anywhere" })).toBeVisible();
  await page.route("**/ui/session", (route) => route.fulfill({ json: { ...before, user: "mallory" } }));
  await page.evaluate(() => { new BroadcastChannel("federator-session").postMessage("mallory"); });
  await expect(page.getByText("mallory")).toBeVisible();
  await expect(page.getByRole("dialog")).toHaveCount(0);
  const answered = page.waitForResponse("**/ui/relay/stops");
  answer();
  await (await answered).finished();
  await page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(resolve)); }));
  await expect(page.locator(".toast")).toHaveCount(0);
});
