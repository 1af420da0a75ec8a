import { expect, test } from "vitest";
import type { ActionSummary } from "../../data/types";
import { actionsPath, boundsOf, canRollBack, inSpan, marksOf, selectedBy, spanOf } from "./model";

const action = (name: string, at: string, phase = "Succeeded", rollbackOf?: string): ActionSummary => ({
  name, policy: "p", member: "m/1", target: { name: "web" }, verb: "patch", phase, created: at, startedAt: at, ...(rollbackOf === undefined ? {} : { rollbackOf }),
});

test("the address becomes the question", () => {
  expect(actionsPath(new URLSearchParams("policy=p&phase=Failed&since=24h&tab=all"))).toBe("/query/v1/actions?policy=p&phase=Failed&since=24h&limit=500");
});

test("a span holds its Actions, and its bounds are whole seconds around them", () => {
  const span = spanOf(new URLSearchParams("from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"));
  const some = [action("a", "2026-01-01T00:10:00.400Z"), action("b", "2026-01-01T00:20:00.900Z"), action("c", "2026-01-01T02:00:00Z")];
  const inside = some.filter((a) => inSpan(a, span));
  expect(inside.map((a) => a.name)).toEqual(["a", "b"]);
  expect(boundsOf(inside)).toEqual({ since: "2026-01-01T00:10:00Z", until: "2026-01-01T00:20:01Z" });
  expect(boundsOf([])).toBeUndefined();
  expect(spanOf(new URLSearchParams("from=x"))).toBeUndefined();
});

test("only what was written by a policy is rolled back", () => {
  expect([action("a", "", "Succeeded"), action("b", "", "Failed"), action("c", "", "Succeeded", "a")].map(canRollBack)).toEqual([true, false, false]);
});

test("lanes are what happened to policies, then the policies", () => {
  const { lanes, marks } = marksOf({
    actions: [{ ...action("a", "2026-01-01T00:00:00Z", "Failed"), acknowledgedBy: "bob" }], sources: [],
    policies: [{ name: "p", package: "p", severity: "low", halted: { id: "1", reason: "OverLimit", since: "2026-01-01T00:00:00Z" } }],
    findings: [{ policy: "p", package: "p", severity: "low", state: "Known", revision: "1", subject: { member: "m/1" }, violations: [{ msg: "x", firstSeen: "2026-01-01T00:00:00Z" }] }],
  }, "policy", { action: (n) => n, commit: () => "", finding: () => "" });
  expect(lanes).toEqual(["new violations", "halts", "approvals", "p"]);
  expect(marks.map((m) => m.kind)).toEqual(["halt", "violation", "approval", "failure"]);
});

test("a Rollback takes back all that was written in its seconds, and so many are said", () => {
  const chosen = action("a", "2026-01-01T00:10:00.2Z"), beside = action("b", "2026-01-01T00:10:00.9Z"), later = action("c", "2026-01-01T00:10:01Z");
  expect(selectedBy([chosen, beside, later, { ...beside, policy: "q" }, action("d", "2026-01-01T00:10:00Z", "Failed")], "p", boundsOf([chosen])).map((a) => a.name)).toEqual(["a", "b"]);
});
