import { expect, test } from "vitest";
import { missing, withSeries, type Known } from "./trends";

test("members that are drawn are asked for once, and again when a step of the series has passed", () => {
  const known = new Map<string, Known>([["a", { values: [1], at: 0 }], ["b", { values: undefined, at: 100_000 }]]);
  expect(missing(["a", "b", "c"], known, 100_001)).toEqual(["c"]);
  expect(missing(["a", "b", "c"], known, 300_000)).toEqual(["a", "c"]);
  expect(missing([], known, 300_000)).toEqual([]);
});

test("a member without a series had none only where that is known", () => {
  const answer = { stepSeconds: 300, start: "2026-01-01T00:00:00Z", known: [false, true], series: [{ member: "a", metric: "violations", values: [null, 1] }] };
  const of = (more = {}) => withSeries(new Map(), ["a", "b"], { ...answer, ...more }, 5);
  expect(of()).toEqual(new Map([["a", { values: [null, 1], at: 5 }], ["b", { values: undefined, at: 5 }]]));
  expect([of({ known: [false, false] }).get("b")?.values, of({ truncated: true }).get("b")?.values]).toEqual([[], []]); // not known
});
