import { expect, test } from "vitest";
import { stableRows } from "./stable";

const key = (row: { k: string; v?: number }) => row.k;

test("new rows wait, gone rows stay, changed ones change in place", () => {
  const first = stableRows([{ k: "a", v: 1 }, { k: "b", v: 1 }], key, undefined);
  const next = stableRows([{ k: "n", v: 1 }, { k: "b", v: 2 }], key, first.state);
  expect(next.rows).toEqual([{ k: "a", v: 1 }, { k: "b", v: 2 }]);
  expect([...next.gone]).toEqual(["a"]);
  expect(next.waiting).toBe(1);
  const asked = stableRows([{ k: "n", v: 1 }, { k: "b", v: 2 }], key, undefined);
  expect(asked.rows.map(key)).toEqual(["n", "b"]);
  expect(asked.waiting).toBe(0);
});

test("where there were no rows, new ones do not wait", () => {
  const first = stableRows<{ k: string }>([], key, undefined);
  expect(stableRows([{ k: "a" }], key, first.state)).toMatchObject({ rows: [{ k: "a" }], waiting: 0 });
});

test("a row that comes back is not new", () => {
  const first = stableRows([{ k: "a" }], key, undefined);
  const without = stableRows<{ k: string }>([], key, first.state);
  const again = stableRows([{ k: "a" }], key, without.state);
  expect(again.waiting).toBe(0);
  expect(again.gone.size).toBe(0);
});
