import { expect, test } from "vitest";
import { arrange, cellSize, columnLabels, keyOf, move, strength, tell } from "./matrixmodel";

test("cells follow their row and column", () => {
  const grid = arrange({
    policies: [{ name: "a", severity: "low" }, { name: "b", severity: "high" }], members: ["m1", "m2", "m3"],
    cells: new Map([[keyOf("a", "m2"), { violations: 1, unknown: 0 }], [keyOf("b", "m3"), { violations: 9, unknown: 0 }]]),
  });
  expect(grid.rows.map((r) => r.name)).toEqual(["b", "a"]);
  expect(grid.columns).toEqual(["m3", "m2", "m1"]);
  expect(grid.at(0, 0)?.violations).toBe(9);
  expect(grid.at(1, 1)?.violations).toBe(1);
  expect(grid.at(1, 0)).toBeUndefined();
  expect(grid.most).toBe(9);
});

test("strength has five steps", () => {
  expect([0, 1, 3, 10, 30, 100].map((n) => strength(n, 100))).toEqual([0, 1, 1, 3, 3, 5]);
  expect(strength(1, 1)).toBe(5);
});

test("cells are of 10 to 18 pixels", () => {
  expect([cellSize(1000, 1200), cellSize(3, 1200), cellSize(80, 1200)]).toEqual([10, 18, 15]);
});

test("keys stay in the grid", () => {
  expect(move("ArrowUp", 0, 2, 5, 5)).toEqual([0, 2]);
  expect(move("End", 1, 2, 5, 7)).toEqual([1, 6]);
  expect(move("PageDown", 1, 2, 5, 7)).toEqual([4, 2]);
  expect(move("a", 1, 2, 5, 7)).toBeUndefined();
});

test("a cell in words", () => {
  const row = { name: "p", severity: "high" };
  expect(tell(row, "m", { violations: 1, unknown: 2 })).toBe("p, m: 1 violation, 2 unknown");
  expect(tell(row, "m", undefined)).toBe("p, m: none");
  expect(tell({ ...row, withheld: true }, "m", undefined)).toBe("p, m: you may not see it");
});

test("columns are told apart by the ends of their names", () => {
  expect(columnLabels(["context/member-with-a-long-name-1", "context/member-with-a-long-name-2"])).toEqual(["…a-long-name-1", "…a-long-name-2"]);
  expect(columnLabels(["fleet/eu-1", "fleet/us-1"])).toEqual(["eu-1", "us-1"]);
  expect(columnLabels(["fleet/eu-1", "edge/eu-1"])).toEqual(["fleet/eu-1", "edge/eu-1"]);
  expect(columnLabels([])).toEqual([]);
});
