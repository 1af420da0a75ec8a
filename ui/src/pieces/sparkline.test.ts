import { expect, test } from "vitest";
import { gaps, largest, lastKnown, sparkPath, total } from "./sparkline";

test("what is not known is a gap", () => {
  expect(sparkPath([0, 2, null, 4, 4], 40, 12, 4)).toBe("M0 11L10 6M30 1L40 1");
  expect(sparkPath([null, 4, null], 20, 12, 4)).toBe("M10 1h1");
  expect(sparkPath([0, 0], 10, 12, 0)).toBe("M0 11L10 11");
  expect(gaps([null, null, 1, null])).toEqual([[0, 1], [3, 3]]);
});

test("the last value may be not known, too", () => {
  expect(lastKnown([1, null])).toBeNull();
  expect(lastKnown([])).toBeNull();
  expect(largest([1, null, 7])).toBe(7);
});

test("a sum with a gap is a gap", () => {
  expect(total([{ values: [1, null, 3] }, { values: [1, 1, 1] }])).toEqual([2, null, 4]);
  expect(total([])).toEqual([]);
});
