import { expect, test } from "vitest";
import { around, place, stack, ticks, timeAt } from "./scale";

const hour = { from: 0, to: 3_600_000 };

test("places and times are inverse", () => {
  expect(place(1_800_000, hour, 600)).toBe(300);
  expect(timeAt(300, hour, 600)).toBe(1_800_000);
  expect(timeAt(-5, hour, 600)).toBe(0);
});

test("ticks are round and not crowded", () => {
  expect(ticks(hour, 600, 0)).toEqual([0, 900_000, 1_800_000, 2_700_000, 3_600_000]);
  expect(ticks({ from: 1, to: 86_400_000 * 3 }, 400, -60)).toHaveLength(3);
});

test("a span holds all, and of nothing is the last hour", () => {
  expect(around([], 3_600_000)).toEqual({ from: 0, to: 3_600_000 });
  const span = around([1000, 2000], 0);
  expect(span.from).toBeLessThan(1000);
  expect(span.to).toBeGreaterThan(2000);
});

test("marks on each other become one that counts them", () => {
  const stacks = stack([{ at: 0 }, { at: 1000 }, { at: 1_800_000 }, { at: 9_999_999 }], hour, 600);
  expect(stacks.map((s) => s.marks.length)).toEqual([2, 1]);
});
