import { accessible, expect, test } from "../world.ts";
import { asked, open, refused, tell } from "../made.ts";

const halted = { name: "federator.replicas", package: "p", severity: "high", mode: "Enforce", state: "Halted", violations: 3, halted: { id: "h1", reason: "OverLimit", message: "too many" } };
const policies = (plans: unknown[], more: Record<string, unknown> = halted) => ({ revision: "1", synced: true, items: [{ ...more, plans }] });
const plan = (hash: string, targets: number) => ({ name: "replicas-1", hash, purpose: "Halt", state: "Waiting", created: "2026-01-01T00:00:00Z", halt: "h1", required: 1, approved: 0, targets, hidden: 0, written: 0, irreversible: 0 });
const items = (n: number) => Array.from({ length: n }, (_, i) => ({ plan: "replicas-1", member: "fleet/eu-1", kind: "Deployment.apps", namespace: "shop", name: `web-${i}`, verb: "patch", remedy: "x", diff: "-a\n+b" }));
const stops = { "/query/v1/stops": { items: [] } };
const finding = (name: string, more: Record<string, unknown> = {}) => ({ policy: "federator.replicas", package: "p", severity: "high", revision: "1", state: "Known", subject: { member: "fleet/eu-1", kind: "Deployment.apps", namespace: "shop", name }, violations: [{ msg: `${name} is wrong`, firstSeen: "2026-01-01T00:00:00Z" }], ...more });
const violations = (list: unknown[], more: Record<string, unknown> = {}) => ({ revision: "5", synced: true, items: list, groups: [], ...more });

test("a Plan that changes while it is read is not approved by who has read another", async ({ page }) => {
  const sent: string[] = [];
  await page.route("**/ui/relay/approvals", async (route) => {
    sent.push(route.request().postData() ?? "");
    await new Promise((resolve) => setTimeout(resolve, 300));
    await route.fulfill({ json: { metadata: { name: "replicas-x" } } });
  });
  const waiting = { name: "replicas-1", hash: "aaa", purpose: "Generation", state: "Waiting" };
  await open(page, "/ui/actions?tab=waiting&plan=replicas-1", { ...stops, "/query/v1/policies": policies([waiting], { ...halted, halted: undefined }), "/query/v1/plans/": { policy: "federator.replicas", plans: [{ ...plan("aaa", 2), purpose: "Generation", halt: "" }], items: items(2) } });
  const details = page.getByRole("complementary", { name: "Details" });
  await details.getByRole("textbox", { name: "Why" }).fill("right");
  await tell(page, "/query/v1/plans/", { value: { policy: "federator.replicas", plans: [{ ...plan("bbb", 9), purpose: "Generation", halt: "" }], items: items(9) } });
  const pass = details.getByRole("button", { name: "Let 9 corrections pass" });
  await expect(pass).toBeDisabled();
  await accessible(page);
  await details.getByRole("button", { name: "I have seen what it is now" }).click();
  await details.getByRole("textbox", { name: "Why" }).fill("right");
  await page.evaluate(() => { const form = document.querySelector("form"); form?.requestSubmit(); form?.requestSubmit(); });
  await expect(details.getByText("Approved as replicas-x")).toBeVisible();
  expect(sent.map((body) => (JSON.parse(body) as { plan: string }).plan)).toEqual(["bbb"]);
});

test("more of a Plan's targets, and what was written meanwhile", async ({ page }) => {
  await open(page, "/ui/actions?tab=waiting&wait=federator.replicas:h1", { ...stops, "/query/v1/policies": policies([{ name: "replicas-1", hash: "aaa", purpose: "Halt", state: "Waiting" }]), "/query/v1/plans/": { policy: "p", plans: [plan("aaa", 300)], items: items(100), continue: "more" } });
  const why = page.getByRole("complementary", { name: "Details" }).getByRole("textbox", { name: "Why" });
  await why.fill("a long reason");
  await page.evaluate(() => { delete window.made.answers["/query/v1/plans/"]; }); // the longer answer takes its time
  await page.getByRole("button", { name: "Show more" }).click();
  await page.waitForTimeout(200);
  await expect(why).toHaveValue("a long reason");
});

test("what a busy server could not answer again is said to be old, until it is answered", async ({ page }) => {
  await open(page, "/ui/violations", { ...stops, "/query/v1/violations": violations([finding("web")]) });
  await expect(page.getByRole("row").filter({ hasText: "web is wrong" })).toBeVisible();
  await expect(page.locator(".fresh").first()).toContainText("live");
  await tell(page, "/query/v1/violations", { retry: refused(503, "too many questions") });
  await expect(page.getByText("Not all that is shown is current: too many questions (503)")).toBeVisible();
  await expect(page.locator(".fresh").first()).toContainText("as of");
  await accessible(page);
  await tell(page, "/query/v1/violations", { value: violations([finding("cart")]) });
  await expect(page.locator(".fresh").first()).toContainText("live");
  await expect(page.getByText("Not all that is shown")).toHaveCount(0);
});

test("who loses a grant does not go on to see what it showed", async ({ page }) => {
  await open(page, "/ui/violations", { ...stops, "/query/v1/violations": violations([finding("web")]) });
  await expect(page.getByRole("row").filter({ hasText: "web is wrong" })).toBeVisible();
  await tell(page, "/query/v1/violations", { error: refused(403, "violations is forbidden") });
  await expect(page.getByText("You may not read this")).toBeVisible();
  await expect(page.getByText("web is wrong")).toHaveCount(0);
});

test("nothing is well before all is known", async ({ page }) => {
  const members = { revision: "1", items: [{ name: "fleet/eu-1", scopes: { Synced: 1 }, objects: 1, bytes: 1 }], summary: { members: 1, synced: 1, byState: { Synced: 1 }, scopes: {}, objects: 1, bytes: 1 } };
  await open(page, "/ui/", { ...stops, "/query/v1/members": members, "/query/v1/violations": violations([]), "/query/v1/sources": { items: [] } });
  const header = page.getByRole("region", { name: "Is anything wrong" });
  await expect(header).toContainText("1 of 1 fresh");
  await expect(header.getByRole("heading")).not.toContainText("Nothing is wrong"); // halts are not known
  await tell(page, "/query/v1/policies", { value: policies([{ name: "a", hash: "1", purpose: "Halt", state: "Waiting" }]) });
  await expect(header.getByRole("heading")).toContainText("1 policy is halted");
  await expect(header.getByRole("heading")).not.toContainText("plan"); // the Plan of the halt is let pass with it
  await tell(page, "/query/v1/policies", { value: policies([], { ...halted, state: "Held", halted: undefined, message: "tests failed" }) });
  const refusedSource = { metadata: { name: "platform" }, spec: { url: "x" }, status: { conditions: [{ type: "Ready", status: "False", reason: "Compiled" }], observedCommit: { hash: "b" }, activeCommit: { hash: "a" } } };
  await tell(page, "/query/v1/sources", { value: { items: [refusedSource] } });
  await expect(header.getByRole("heading")).toContainText("1 policy is held and does not enforce, 1 source is not ready");
  await accessible(page);
  await header.getByRole("link", { name: "1 policy held" }).click();
  await expect(page.getByRole("row").filter({ hasText: "replicas" })).toHaveCount(1);
});

test("facets that are not loaded do not say none", async ({ page }) => {
  await open(page, "/ui/violations", stops);
  const facets = page.getByRole("complementary", { name: "Filters" });
  await expect(facets.getByRole("heading", { name: "Policy" })).toBeVisible();
  await expect(facets.getByText("none", { exact: true })).toHaveCount(0);
});

test("more rows are loaded without the list being taken away", async ({ page }) => {
  const many = Array.from({ length: 500 }, (_, i) => finding(`web-${i}`));
  await open(page, "/ui/violations", { ...stops, "/query/v1/violations": violations([]), "/query/v1/violations?orderBy=severity&limit=500": violations(many, { continue: "more" }) });
  await page.evaluate(() => { delete window.made.answers["/query/v1/violations"]; });
  await expect(page.getByRole("row").nth(5)).toBeVisible();
  await page.locator(".grid .over").evaluate((box) => { box.scrollTop = box.scrollHeight; });
  await expect.poll(async () => (await asked(page)).some((path) => path.includes("limit=1000"))).toBe(true);
  await page.waitForTimeout(300);
  expect(await page.locator(".grid .over").evaluate((box) => box.scrollTop)).toBeGreaterThan(5_000);
});

test("fifty pages later no more is asked for than on the first", async ({ page }) => {
  await open(page, "/ui/violations", { ...stops, "/query/v1/violations": violations([finding("web")]), "/query/v1/policies": policies([]) });
  await expect(page.getByRole("row").nth(1)).toBeVisible();
  await page.waitForTimeout(300);
  const first = (await asked(page)).sort();
  for (let i = 0; i < 50; i++) await page.getByRole("link", { name: ["Policies", "Actions", "Sources", "Fleet", "Violations"][i % 5] ?? "", exact: true }).first().click();
  await expect(page.getByRole("row").nth(1)).toBeVisible();
  await expect.poll(async () => (await asked(page)).sort()).toEqual(first);
});
