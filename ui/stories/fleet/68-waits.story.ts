// What waits for a person, and what somebody else does meanwhile.
import { expect, test } from "../world.ts";
import { open, tell } from "../made.ts";

const stops = { "/query/v1/stops": { items: [] } };

test("who lets a long Plan pass sees that they have, also when its halt has ended", async ({ page }) => {
  await page.route("**/ui/relay/approvals", (route) => route.fulfill({ json: { metadata: { name: "replicas-x" } } }));
  const policy = { name: "replicas", package: "p", severity: "high", mode: "Enforce", state: "Halted", violations: 60, halted: { id: "h1", reason: "OverLimit", message: "too many" }, plans: [{ name: "replicas-1", hash: "aaa", purpose: "Halt", state: "Waiting" }] };
  const plan = { name: "replicas-1", hash: "aaa", purpose: "Halt", state: "Waiting", created: "2026-01-01T00:00:00Z", halt: "h1", required: 1, approved: 0, targets: 60, hidden: 0, written: 0, irreversible: 0 };
  const items = Array.from({ length: 60 }, (_, i) => ({ plan: "replicas-1", member: "fleet/eu-1", kind: "Deployment.apps", namespace: "shop", name: `web-${i}`, verb: "patch", remedy: "x", diff: "-a\n+b" }));
  const of = (...all: unknown[]) => ({ revision: "1", synced: true, items: all });
  await open(page, "/ui/actions?tab=waiting&wait=replicas:h1", { ...stops, "/query/v1/policies": of(policy), "/query/v1/plans/": { policy: "replicas", plans: [plan], items } });
  const details = page.getByRole("complementary", { name: "Details" });
  await details.getByRole("textbox", { name: "Why" }).fill("right");
  await details.getByRole("button", { name: "Let 60 corrections pass" }).click();
  await expect(details.getByText("Approved as replicas-x")).toBeInViewport();
  await tell(page, "/query/v1/policies", { value: of({ ...policy, halted: undefined, plans: [], state: "Enforcing" }) });
  await tell(page, "/query/v1/plans/", { value: { policy: "replicas", plans: [], items: [] } });
  await expect(page.getByRole("heading", { name: "Nothing waits" })).toBeVisible();
  await expect(details).toContainText("It waits no more");
  await expect(details.getByText("Approved as replicas-x")).toBeInViewport();
  await page.keyboard.press("Escape");
  await expect(details).toHaveCount(0);
});

test("somebody who writes why while it is let pass by another is told, and keeps what they wrote", async ({ page }) => {
  const policy = { name: "replicas", package: "p", severity: "high", mode: "Enforce", state: "Halted", violations: 1, halted: { id: "h1", reason: "OverLimit", message: "too many" }, plans: [{ name: "replicas-1", hash: "aaa", purpose: "Halt", state: "Waiting" }] };
  const plan = { name: "replicas-1", hash: "aaa", purpose: "Halt", state: "Waiting", created: "2026-01-01T00:00:00Z", halt: "h1", required: 1, approved: 0, targets: 1, hidden: 0, written: 0, irreversible: 0 };
  const of = (...all: unknown[]) => ({ revision: "1", synced: true, items: all });
  await open(page, "/ui/actions?tab=waiting&plan=replicas-1", { ...stops, "/query/v1/policies": of(policy), "/query/v1/plans/": { policy: "replicas", plans: [plan], items: [] } });
  const details = page.getByRole("complementary", { name: "Details" });
  await details.getByRole("textbox", { name: "Why" }).fill("half a sent");
  await tell(page, "/query/v1/policies", { value: of({ ...policy, halted: undefined, plans: [], state: "Enforcing" }) });
  await expect(details).toContainText("It waits no more");
  await expect(details.getByRole("textbox", { name: "Why" })).toHaveValue("half a sent");
  await expect(details.getByRole("button", { name: "Let 1 correction pass" })).toBeDisabled();
});

test("who may not see what waits is not told that nothing does", async ({ page }) => {
  await open(page, "/ui/actions", { ...stops, "/query/v1/actions": { items: [], total: 0 }, "/query/v1/policies": { revision: "1", synced: true, items: [], hubForbidden: "list fleetpolicies.federator.dev" } });
  await expect(page.getByText("No Actions")).toBeVisible();
  await expect(page.getByRole("tab", { name: "What waits" })).toHaveText("What waits");
});
