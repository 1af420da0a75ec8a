import { describe, expect, test } from "vitest";
import type { MemberInfo, Violations } from "../src/data/types";
import { groupsBy, heldOf, matches, notReadyOf, tallies, verdict, worst } from "../src/pages/fleet/model";
import { bytes, duration, seconds } from "../src/ui/format";

const member = (name: string, scopes: Record<string, number>, labels: Record<string, string> = {}): MemberInfo => ({ name, scopes, labels, version: "v1.30.1", objects: 1, bytes: 1 });

test("the worst state of its kinds is a member's", () => {
  expect(worst(member("f/a", { Synced: 10, NotServed: 3 }))).toEqual({ state: "Synced", kinds: 10, of: 10 });
  expect(worst(member("f/a", { Synced: 10, Stale: 1, Forbidden: 2 }))).toEqual({ state: "Forbidden", kinds: 2, of: 13 });
  expect(worst(member("f/a", {})).state).toBe("Unknown");
});

test("violations are added up; what is exempt is not among them on the server already", () => {
  const answer: Violations = { revision: "1", synced: true, groups: [
    { key: ["p", "f/a", "high", "Known"], subjects: 3, violations: 5, exempt: 2 },
    { key: ["p", "f/a", "high", "Unknown"], subjects: 4, violations: 0, exempt: 0 },
    { key: ["q", "", "low", "Known"], subjects: 1, violations: 1, exempt: 0 },
  ] };
  const found = tallies(answer);
  expect(found.all).toEqual({ violations: 6, exempt: 2, unknown: 4, errors: 0, bySeverity: { high: 5, low: 1 } });
  expect(found.cells.get("p\u0000f/a")).toEqual({ policy: "p", member: "f/a", violations: 5, unknown: 4, errors: 0 });
  expect(found.byMember.get("")?.violations).toBe(1);
});

describe("is anything wrong?", () => {
  const well = { members: 3, notSynced: 0, halts: 0, waiting: 0, violations: 0, unknown: 0, errors: 0, held: 0, sources: 0, failed: 0, withheld: 0, truncated: false, unseen: [] as string[] };
  test.each([
    [{}, "ok", "Nothing is wrong"],
    [{ members: 0 }, "warn", "There are no members that you may read"],
    [{ violations: 1 }, "warn", "1 violation"],
    [{ violations: 1200, notSynced: 1, halts: 2 }, "wrong", "2 policies are halted, 1 member is not fresh, 1,200 violations"],
    [{ sources: 1, held: 2 }, "wrong", "2 policies are held and do not enforce, 1 source is not ready"],
    [{ failed: 1 }, "wrong", "1 policy failed in part"],
    [{ withheld: 1 }, "ok", "Nothing is wrong in what you may see"],
    [{ unseen: ["halts and plans"] }, "warn", "not known: halts and plans"],
    [{ violations: 3, truncated: true }, "warn", "3 violations, and more than is counted here"],
    [{ unknown: 5, waiting: 1 }, "warn", "1 plan waits for approval, 5 subjects are not known"],
  ])("%j", (more, tone, text) => expect(verdict({ ...well, ...more })).toEqual({ tone, text }));
});

test("members are found by name, label, version and state", () => {
  const one = member("fleet/eu-1", { Synced: 1, Stale: 1 }, { env: "prod" });
  expect(matches(one, { text: "EU env=prod", state: "" })).toBe(true);
  expect(matches(one, { text: "us", state: "" })).toBe(false);
  expect(matches(one, { text: "v1.30", state: "notSynced" })).toBe(true);
  expect(matches(one, { text: "", state: "Forbidden" })).toBe(false);
});

test("groups come in order, and those without the label last", () => {
  const all = [member("f/c", {}), member("f/b", {}, { env: "prod" }), member("f/a", {}, { env: "dev" })];
  expect(groupsBy(all, "env").map(([value, some]) => [value, some.length])).toEqual([["dev", 1], ["prod", 1], ["", 1]]);
});

test("numbers are written as operators write them", () => {
  expect([bytes(12), bytes(1536), bytes(50 * 1024 * 1024)]).toEqual(["12 B", "1.5 KiB", "50 MiB"]);
  expect([duration(45), duration(600), duration(10_000), duration(500_000)]).toEqual(["45s", "10m", "2h", "5d"]);
  expect([seconds("1h2m3s"), seconds("7m49s"), seconds("900ms")]).toEqual([3723, 469, 0.9]);
});

test("a source is not ready while its newest commit is refused, and a policy that shall enforce may be held", () => {
  const source = (ready: string, active: string) => ({ apiVersion: "v", kind: "PolicySource", metadata: { name: `${ready}-${active}` }, spec: { url: "u" }, status: { conditions: [{ type: "Ready", status: ready }, { type: "Compiled", status: active === "old" ? "False" : "True" }], observedCommit: { hash: "new" }, activeCommit: { hash: active } } });
  expect(notReadyOf([source("True", "new"), source("False", "new"), source("True", "old")]).map((s) => s.metadata.name)).toEqual(["False-new", "True-old"]);
  const policy = (mode: string, state: string) => ({ name: `${mode}-${state}`, package: "p", severity: "low", mode, state });
  expect(heldOf([policy("Enforce", "Held"), policy("Enforce", "Enforcing"), policy("Observe", "Held"), { ...policy("Enforce", "Held"), halted: { id: "1" } }]).map((p) => p.name)).toEqual(["Enforce-Held"]);
});
