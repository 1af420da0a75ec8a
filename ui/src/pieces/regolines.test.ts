import { expect, test } from "vitest";
import { hunks, markOf, pathsOf, tokenize, valueAt } from "./regolines";

test("tokens come by line and lose no character", () => {
  const text = "package a\n\nviolation contains {\n\t\"msg\": `x\ny`, # why\n}\n";
  const lines = tokenize(text);
  expect(lines.map((line) => line.map((token) => token.text).join("")).join("\n")).toBe(text);
  expect(lines[0]?.[0]).toEqual({ type: "keyword", text: "package" });
});

test("a line held, or was evaluated and did not, or neither", () => {
  expect(markOf({ file: "a", row: 1, evaluated: 2, held: 1 })).toBe("held");
  expect(markOf({ file: "a", row: 1, evaluated: 2, held: 0 })).toBe("failed");
  expect(markOf(undefined)).toBe("");
});

test("parts of a file around what was evaluated", () => {
  expect(hunks([12, 5, 6], 13, 2)).toEqual([[3, 8], [10, 13]]);
  expect(hunks([5, 9], 20, 2)).toEqual([[3, 11]]);
});

test("what a line reads, and its values", () => {
  expect(pathsOf('input.object.spec.replicas < input.parameters.replicas # input.x')).toEqual(["input.object.spec.replicas", "input.parameters.replicas"]);
  expect(pathsOf('"input.object.x" == 1')).toEqual([]);
  expect(valueAt({ object: { spec: { replicas: 0 } } }, "input.object.spec.replicas")).toEqual({ found: true, value: 0 });
  expect(valueAt({}, "input.object.spec")).toEqual({ found: false });
});
