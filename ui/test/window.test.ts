import { describe, expect, test } from "vitest";
import { gridTemplate } from "../src/ui/columns";
import { reveal, windowOf } from "../src/ui/window";

describe("the window of a table", () => {
  test("of few rows is all of them", () => expect(windowOf(3, 28, 0, 600)).toEqual({ first: 0, end: 3, top: 0, height: 84 }));
  test("of none is empty", () => expect(windowOf(0, 28, 500, 600)).toEqual({ first: 0, end: 0, top: 0, height: 0 }));
  test("is what can be seen and some more", () => expect(windowOf(5000, 28, 2800, 280, 8)).toEqual({ first: 92, end: 118, top: 92 * 28, height: 140_000 }));
  test("at the end has the last rows", () => expect(windowOf(100, 28, 99_999, 280, 2)).toMatchObject({ first: 88, end: 100 }));
  test("is right when the list has shrunk below the place of the scroll", () => expect(windowOf(5, 28, 2800, 280)).toMatchObject({ first: 0, end: 5 }));
  test("always has every row that can be seen", () => {
    for (let top = 0; top < 28_000 - 300; top += 37) {
      const { first, end } = windowOf(1000, 28, top, 300, 0);
      expect(first * 28).toBeLessThanOrEqual(top);
      expect(end * 28).toBeGreaterThanOrEqual(top + 300);
      expect(end - first).toBeLessThanOrEqual(12);
    }
  });
});

test.each([[0, 100, 0], [3, 0, 0], [10, 0, 28], [4, 112, 112], [2, 112, 56]])("row %i is shown from %i by scrolling to %i", (row, from, to) => expect(reveal(row, 28, from, 280)).toBe(to));

test("the last column has what is left", () => expect(gridTemplate([{ id: "a", width: 100 }, { id: "b", width: 50 }], { a: 120 })).toBe("120px minmax(50px, 1fr)"));
