import { expect, test } from "vitest";
import { missing, type Known } from "./trends";

test("members that are drawn are asked for once, and again when a step of the series has passed", () => {
  const known = new Map<string, Known>([["a", { values: [1], at: 0 }], ["b", { values: undefined, at: 100_000 }]]);
  expect(missing(["a", "b", "c"], known, 100_001)).toEqual(["c"]);
  expect(missing(["a", "b", "c"], known, 300_000)).toEqual(["a", "c"]);
  expect(missing([], known, 300_000)).toEqual([]);
});
