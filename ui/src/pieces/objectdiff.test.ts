import { expect, test } from "vitest";
import { compare } from "./objectdiff";

test("only what differs is said to differ", () => {
  const rows = compare([{ spec: { replicas: 2, paused: false } }, { spec: { replicas: 3, paused: false } }]);
  expect(rows).toEqual([
    { path: "/spec/replicas", values: [2, 3], differs: true },
    { path: "/spec/paused", values: [false, false], differs: false },
  ]);
});

test("items of lists are matched by name, whatever their place", () => {
  const a = [{ name: "web", image: "1" }, { name: "log", image: "1" }], b = [{ name: "log", image: "1" }, { name: "web", image: "2" }];
  expect(compare([a, b]).filter((r) => r.differs)).toEqual([{ path: "/web/image", values: ["1", "2"], differs: true }]);
  expect(compare([[1, 2], [1]]).filter((r) => r.differs)).toEqual([{ path: "/1", values: [2, undefined], differs: true }]);
});

test("an object that is not there differs in all", () => {
  expect(compare([{ a: 1 }, undefined])).toEqual([{ path: "/a", values: [1, undefined], differs: true }]);
});

test("other shapes are compared as a whole, the order of keys means nothing", () => {
  expect(compare([{ a: { b: 1 } }, { a: "x" }])).toEqual([{ path: "/a", values: [{ b: 1 }, "x"], differs: true }]);
  expect(compare([{ a: {} }, { a: {} }])[0]?.differs).toBe(false);
  expect(compare([{ x: 1, y: 2 }, { y: 2, x: 1 }]).some((r) => r.differs)).toBe(false);
});

test("what differs by nature is left out", () => {
  expect(compare([{ metadata: { uid: "a", name: "n" } }, { metadata: { uid: "b", name: "n" } }]).map((r) => r.path)).toEqual(["/metadata/name"]);
});
