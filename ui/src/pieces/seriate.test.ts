import { expect, test } from "vitest";
import { seriate } from "./seriate";

const vector = (...values: number[]) => new Map(values.map((v, i) => [i, v] as const).filter(([, v]) => v !== 0));

test("what is alike lies together, beginning with the heaviest", () => {
  expect(seriate([vector(1, 0, 0), vector(0, 0, 5), vector(2, 0, 0), vector(0, 0, 4), vector(0, 0, 0)])).toEqual([1, 3, 2, 0, 4]);
});

test("equal rows keep their order", () => {
  expect(seriate([vector(1), vector(1), vector(1)])).toEqual([0, 1, 2]);
});

test("all are there once, also beyond the limit", () => {
  const many = Array.from({ length: 50 }, (_, i) => vector(i % 3, i % 5, 1));
  expect([...seriate(many, 10)].sort((a, b) => a - b)).toEqual(many.map((_, i) => i));
});
