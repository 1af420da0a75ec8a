// Rows that do not move under the pointer: new ones wait until they are asked for, gone ones stay until then. Where
// there were none, nothing can move.
export interface StableState<R> {
  keys: string[]; // in the order that is shown
  last: Map<string, R>;
}

export interface StableRows<R> {
  rows: R[];
  gone: ReadonlySet<string>;
  waiting: number;
  state: StableState<R>;
}

export function stableRows<R>(now: readonly R[], keyOf: (row: R) => string, before: StableState<R> | undefined): StableRows<R> {
  const current = new Map(now.map((row) => [keyOf(row), row] as const));
  if (before === undefined || before.keys.length === 0) return { rows: [...now], gone: new Set(), waiting: 0, state: { keys: [...current.keys()], last: current } };
  const last = new Map(before.last);
  for (const [key, row] of current) if (last.has(key)) last.set(key, row);
  const gone = new Set(before.keys.filter((key) => !current.has(key)));
  const rows = before.keys.flatMap((key) => current.get(key) ?? last.get(key) ?? []);
  let waiting = 0;
  for (const key of current.keys()) if (!before.last.has(key)) waiting++;
  return { rows, gone, waiting, state: { keys: before.keys, last } };
}
