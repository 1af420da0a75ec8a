import { accessible, expect, resize, test } from "../world.ts";
import { open } from "../made.ts";

const stops = { "/query/v1/stops": { items: [] } };
const evil = '"><img src=x onerror=alert(1)><script>alert(2)</script>';
const rego = Array.from({ length: 10_000 }, (_, i) => `violations contains {"msg": "line ${i}"} if { input.object.spec.replicas < ${i} }`).join("\n");

test("hostile words are words, and hostile addresses no links", async ({ page }) => {
  page.on("dialog", () => { throw new Error("a script of an object ran"); });
  const source = { apiVersion: "v", kind: "PolicySource", metadata: { name: "evil", annotations: { link: "javascript:alert(1)" } }, spec: { url: "javascript:alert(1)//github.com/a/b" }, status: { activeCommit: { hash: "javascript:alert(1)", author: evil }, observedCommit: { hash: "javascript:alert(1)" }, findings: [{ severity: "error", file: "javascript:alert(1)", message: evil }], conditions: [{ type: "Ready", status: "True" }] } };
  await open(page, "/ui/sources/evil", { ...stops, "/query/v1/sources": { items: [source] }, "/query/v1/policies": { revision: "1", synced: true, items: [] } });
  await expect(page.getByText("onerror").first()).toBeVisible();
  const protocols = await page.evaluate(() => [...new Set([...document.querySelectorAll("a")].map((a) => a.protocol))]);
  expect(protocols).toEqual(["https:"]);
  expect(await page.locator("main img, main script").count()).toBe(0);
  await accessible(page);
});

test("names, messages and labels that are long and hostile stay in their place", async ({ page }) => {
  const finding = (msg: string, name: string) => ({ policy: "p", package: "p", severity: "high", revision: "1", state: "Known", subject: { member: "fleet/eu-1", kind: "Deployment.apps", namespace: "n".repeat(63), name }, violations: [{ msg, firstSeen: "2026-01-01T00:00:00Z" }] });
  await resize(page, 390, 844);
  await open(page, "/ui/violations", { ...stops, "/query/v1/violations": { revision: "1", synced: true, items: [finding(`${evil}\u202etxet desrever`, "x".repeat(253)), finding("long ".repeat(20_000), "y".repeat(253))], groups: [] } });
  await expect(page.getByText("⟨U+202E⟩").first()).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await accessible(page);
});

test("ten thousand lines of Rego are there at once, and do not fill the page", async ({ page }) => {
  await open(page, "/ui/policies/p?tab=rego&line=9000", { ...stops, "/query/v1/policies": { revision: "1", synced: true, items: [{ name: "p", package: "p", severity: "low", rego: [{ file: "a.rego", text: rego }] }] } });
  await expect(page.locator(".rego-line.here")).toContainText("line 8999");
  expect(await page.locator(".rego-line").count()).toBeLessThanOrEqual(1_000);
  await page.getByRole("button", { name: "9000 more lines" }).click();
  await expect.poll(() => page.locator(".rego-line").count()).toBe(2_000);
});
