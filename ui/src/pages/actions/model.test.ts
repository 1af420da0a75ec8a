import { expect, test } from "vitest";
import type { ActionSummary, HaltRecord } from "../../data/types";
import { toneOf } from "../../ui/marks";
import { actionsPath, boundsOf, canRollBack, inSpan, marksOf, phases, selectedBy, spanOf } from "./model";

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
    halts: [{ policy: "p", id: "1", reason: "OverLimit", began: "2026-01-01T00:00:00Z", stands: true }],
    findings: [{ policy: "p", package: "p", severity: "low", state: "Known", revision: "1", subject: { member: "m/1" }, violations: [{ msg: "x", firstSeen: "2026-01-01T00:00:00Z" }] }],
  }, "policy", { action: (n) => n, commit: () => "", finding: () => "", policy: (n) => n });
  expect(lanes).toEqual(["new violations", "halts", "approvals", "p"]);
  expect(marks.map((m) => m.kind)).toEqual(["halt", "violation", "approval", "failure"]);
});

test("a halt is a mark where it began and one where it ended, with what ended it", () => {
  const began = "2026-01-01T00:00:00Z", ended = "2026-01-01T01:00:00Z", halt = { policy: "p", id: "1", reason: "OverLimit", stands: false };
  const of = (...halts: HaltRecord[]) => marksOf({ actions: [], sources: [], findings: [], halts }, "policy", { action: (n) => n, commit: () => "", finding: () => "", policy: (n) => n }).marks.map(({ kind, text, until }) => `${kind} ${until === undefined ? "" : until === Infinity ? "∞" : (until - Date.parse(began)) / 60_000} ${text}`);
  expect(of({ ...halt, began, ended, by: "ann, bob", ending: "the halt was acknowledged" })).toEqual(["halt 60 p halted: OverLimit", "end  p halted: OverLimit, has ended: acknowledged by ann, bob"]);
  expect(of({ ...halt, began, ended, ending: "the policy has been changed" })[1]).toBe("end  p halted: OverLimit, has ended: the policy has been changed");
  expect(of({ ...halt, began, stands: true })).toEqual(["halt ∞ p halted: OverLimit, until now"]);
  expect(of({ ...halt, began })).toEqual(["halt  p halted: OverLimit; when it ended is not known"]);
  expect(of({ ...halt, ended, by: "ann" })).toEqual(["end  p halted: OverLimit, has ended: acknowledged by ann; when it began is not known"]);
});

test("a Rollback takes back all that was written in its seconds, and so many are said", () => {
  const chosen = action("a", "2026-01-01T00:10:00.2Z"), beside = action("b", "2026-01-01T00:10:00.9Z"), later = action("c", "2026-01-01T00:10:01Z");
  expect(selectedBy([chosen, beside, later, { ...beside, policy: "q" }, action("d", "2026-01-01T00:10:00Z", "Failed")], "p", boundsOf([chosen])).map((a) => a.name)).toEqual(["a", "b"]);
});

test("nothing that is known looks as if it were not", () => {
  const states = ["NotReady", "Observing", "Stopped", "Held", "Halted", "Suspended", "Counting", "WindowClosed", "TooManyActions", "Waiting", "DryRunning", "Enforcing", "BeyondCeiling"]; // reasons of the condition Enforcing
  expect([...phases, ...states].filter((state) => toneOf(state) === "unknown")).toEqual([]);
});
