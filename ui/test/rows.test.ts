import { expect, test } from "vitest";
import { maxRows, Rows } from "../src/data/rows";
import type { KubeTable, TableRow } from "../src/data/types";

function row(name: string, cell = "x", resourceVersion = "1", member = "f/a"): TableRow {
  return { cells: [cell], object: { metadata: { name, namespace: "n", resourceVersion, annotations: { "federator.dev/member": member } } } };
}

function table(rows: TableRow[], more = "", resourceVersion = "10"): KubeTable {
  return { kind: "Table", metadata: { resourceVersion, continue: more }, columnDefinitions: [{ name: "X", type: "string", priority: 0 }], rows };
}

const event = (type: string, one: TableRow) => ({ type, object: table([one]) });
const names = (rows: Rows) => rows.rows.map((one) => one.object.metadata.name);

test("rows change in place and say when", () => {
  const rows = new Rows();
  rows.page(table([row("a"), row("b")]), true);
  expect(rows.apply([event("MODIFIED", row("b", "y", "11"))], 5)).toBe(true);
  expect(names(rows)).toEqual(["a", "b"]);
  expect(rows.rows[1]?.cells).toEqual(["y"]);
  expect([...rows.changed]).toEqual([["f/a/n/b", 5]]);
  expect(rows.apply([event("MODIFIED", row("b", "y", "12"))], 9)).toBe(true);
  expect([...rows.changed.values()]).toEqual([5]); // nothing that can be seen is different: no flash
});

test("what is older than a row does not change it", () => {
  const rows = new Rows();
  rows.page(table([row("a", "new", "20")]), true);
  expect(rows.apply([event("MODIFIED", row("a", "old", "15"))], 1)).toBe(false);
  expect(rows.rows[0]?.cells).toEqual(["new"]);
});

test("new rows wait and deleted ones are struck out, until they are wanted", () => {
  const rows = new Rows();
  rows.page(table([row("b"), row("d")]), true);
  rows.apply([event("ADDED", row("c")), event("ADDED", row("a")), event("DELETED", row("d"))], 1);
  expect(names(rows)).toEqual(["b", "d"]);
  expect([rows.fresh, [...rows.gone]]).toEqual([2, ["f/a/n/d"]]);
  rows.settle();
  expect(names(rows)).toEqual(["a", "b", "c"]);
  expect([rows.fresh, rows.gone.size]).toEqual([0, 0]);
  rows.apply([event("MODIFIED", row("c", "z", "9"))], 2);
  expect(rows.rows[2]?.cells).toEqual(["z"]);
});

test("a row that comes back is not struck out; one that waits and goes never was", () => {
  const rows = new Rows();
  rows.page(table([row("a")]), true);
  rows.apply([event("DELETED", row("a")), event("ADDED", row("a", "again", "2"))], 1);
  expect(rows.gone.size).toBe(0);
  rows.apply([event("ADDED", row("b")), event("DELETED", row("b"))], 2);
  expect(rows.fresh).toBe(0);
});

test("of pages that are not loaded nothing is taken in", () => {
  const rows = new Rows();
  rows.page(table([row("a"), row("m")], "next"), true);
  expect(rows.complete).toBe(false);
  rows.apply([event("ADDED", row("z")), event("ADDED", row("c"))], 1);
  expect(rows.fresh).toBe(1);
  rows.page(table([row("p"), row("m")]), false); // one row twice is one row
  expect(names(rows)).toEqual(["a", "m", "p"]);
  expect(rows.complete).toBe(true);
});

test("at most so many rows are held", () => {
  const rows = new Rows();
  rows.page(table(Array.from({ length: maxRows + 10 }, (_, i) => row(`r${i}`)), "more"), true);
  expect([rows.rows.length, rows.full, rows.complete]).toEqual([maxRows, true, false]);
  rows.apply([event("ADDED", row("aaa"))], 1);
  expect(rows.fresh).toBe(0);
});

test("the members that are loaded", () => {
  const rows = new Rows();
  rows.page(table([row("a"), row("a", "x", "1", "f/b")]), true);
  expect(rows.members()).toEqual(["f/a", "f/b"]);
});

test("what is shown stays when the list is loaded again, as after a restart of the server", () => {
  const rows = new Rows();
  rows.page(table([row("a", "x", "20"), row("b"), row("d")]), true);
  rows.page(table([row("b", "y", "30"), row("c")], "", "31"), true); // a server that is not done with reading the member
  expect(names(rows)).toEqual(["a", "b", "d"]);
  expect(rows.rows[1]?.cells).toEqual(["y"]);
  expect([rows.fresh, [...rows.gone], rows.resourceVersion]).toEqual([1, ["f/a/n/a", "f/a/n/d"], "31"]);
  rows.apply([event("ADDED", row("a", "again", "2"))], 1); // numbers of another process are no older
  expect([rows.rows[0]?.cells, [...rows.gone]]).toEqual([["again"], ["f/a/n/d"]]);
  rows.settle();
  expect(names(rows)).toEqual(["a", "b", "c"]);
});

test("what was loaded of further pages is loaded again with them", () => {
  const rows = new Rows();
  rows.page(table([row("a"), row("c")], "next"), true);
  rows.page(table([row("p"), row("q")]), false);
  rows.page(table([row("a"), row("d")], "next", "31"), true);
  expect([names(rows), [...rows.gone], rows.fresh]).toEqual([["a", "c"], ["f/a/n/c"], 1]);
  rows.page(table([row("p"), row("q")]), false);
  expect(names(rows)).toEqual(["a", "c", "p", "q"]);
});

test("rows are let in where none are shown", () => {
  const rows = new Rows();
  rows.page(table([]), true);
  rows.apply([event("ADDED", row("b")), event("ADDED", row("a"))], 1);
  expect([names(rows), rows.fresh]).toEqual([["a", "b"], 0]);
});
