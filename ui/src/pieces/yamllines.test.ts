import { expect, test } from "vitest";
import { above, scalar, search, visible, yamlLines } from "./yamllines";

const object = { kind: "Pod", metadata: { labels: { "a/b": "true" }, empty: {} }, list: [{ name: "x" }, 2], data: { key: "<redacted>" } };

test("lines have depth, path and what they hold", () => {
  const lines = yamlLines(object);
  expect(lines.map((l) => "  ".repeat(l.depth) + l.text)).toEqual([
    "kind: Pod", "metadata:", "  labels:", '    a/b: "true"', "  empty: {}", "list:", "  -", "    name: x", "  - 2", "data:", '  key: "<redacted>"',
  ]);
  expect(lines[3]?.path).toBe("/metadata/labels/a~1b");
  expect(lines[1]).toMatchObject({ folds: true, inside: 3 });
  expect(lines[10]?.redacted).toBe(true);
});

test("folding leaves out what is below", () => {
  const lines = yamlLines(object);
  expect(visible(lines, new Set(["/metadata", "/list"])).map((i) => lines[i]?.text)).toEqual(["kind: Pod", "metadata:", "list:", "data:", 'key: "<redacted>"']);
});

test("search finds keys, values and paths", () => {
  const lines = yamlLines(object);
  expect(search(lines, "NAME").map((i) => lines[i]?.text)).toEqual(["name: x"]);
  expect(above("/metadata/labels/a~1b")).toEqual(["/metadata", "/metadata/labels"]);
});

test("what YAML would read otherwise is quoted", () => {
  expect(["true", "1", "a: b", "", "app", "- x", "registry/app"].map(scalar)).toEqual(['"true"', '"1"', '"a: b"', '""', "app", '"- x"', "registry/app"]);
});
