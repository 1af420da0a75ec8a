import { expect, test } from "vitest";
import type { PolicyInfo } from "../../data/types";
import { each, keepPolicies, order, rate, share } from "./model";

const policies: PolicyInfo[] = [
  { name: "a", package: "p.a", severity: "low", violations: 9 }, { name: "b", package: "p.b", severity: "critical", violations: 0 },
  { name: "c", package: "p.c", severity: "high", violations: 1 }, { name: "d", package: "p.d", severity: "low", withheld: true, halted: { id: "1" } },
];

test("what is worst is first", () => {
  expect(order(policies, "", false).map((p) => p.name)).toEqual(["d", "c", "a", "b"]);
  expect(order(policies, "violations", true).map((p) => p.name)).toEqual(["a", "c", "b", "d"]);
});

test("all words of a search must be there", () => {
  expect(keepPolicies(policies, "low p.a").map((p) => p.name)).toEqual(["a"]);
});

test("figures are short", () => {
  expect([share(0.00001), share(0.0123), share(0.5), rate(0.01), rate(3.14), rate(120)]).toEqual(["< 0.1 %", "1.2 %", "50 %", "< 0.1/s", "3.1/s", "120/s"]);
});

test("where nothing was evaluated, an evaluation takes no time that is known", () => {
  const cost = { windowSeconds: 240, cpuShare: 0, evaluationsPerSecond: 0, perEvaluationMicros: 0 };
  expect([each(cost), each({ ...cost, evaluationsPerSecond: 2, perEvaluationMicros: 0.5 }), rate(0)]).toEqual(["nothing was evaluated", "2.0/s, < 1 µs each", "0/s"]);
});
