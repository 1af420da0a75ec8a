// The same object in several members: which fields differ.
import { pointer } from "./yamllines";

export interface CompareRow {
  path: string;
  values: unknown[]; // by column; undefined: not set
  differs: boolean;
}

// noise differs between members by nature, and says nothing.
export const noise = [
  "/metadata/uid", "/metadata/resourceVersion", "/metadata/creationTimestamp", "/metadata/generation", "/metadata/managedFields", "/metadata/selfLink",
  "/metadata/annotations/federator.dev~1member", "/metadata/annotations/federator.dev~1resource-version", "/metadata/annotations/federator.dev~1action",
  "/metadata/annotations/deployment.kubernetes.io~1revision",
];

// compare lists each field of any of the objects once, in the order of the first that has it. Items of a list that
// all have a name are matched by it; others by their place. An object that is not there has no fields.
export function compare(objects: readonly unknown[], ignored: readonly string[] = noise): CompareRow[] {
  const rows: CompareRow[] = [];
  walk(objects, "", new Set(ignored), rows);
  return rows;
}

function walk(values: readonly unknown[], path: string, ignored: ReadonlySet<string>, rows: CompareRow[]): void {
  if (ignored.has(path)) return;
  const there = values.filter((value) => value !== undefined);
  const parts = there.length > 0 ? there.map(children) : [];
  if (parts.length === 0 || parts.some((part) => part === undefined || part.length === 0) || !sameShape(there)) {
    rows.push({ path, values: [...values], differs: new Set(values.map((value) => JSON.stringify(sorted(value)))).size > 1 });
    return;
  }
  const keys: string[] = [];
  const maps = values.map((value) => new Map(value === undefined ? [] : children(value) ?? []));
  for (const map of maps) for (const key of map.keys()) if (!keys.includes(key)) keys.push(key);
  for (const key of keys) walk(maps.map((map) => map.get(key)), pointer(path, key), ignored, rows);
}

function sameShape(values: readonly unknown[]): boolean {
  return values.every(Array.isArray) ? new Set(values.map((value) => named(value as unknown[]))).size === 1 : values.every((value) => !Array.isArray(value));
}

function named(list: readonly unknown[]): boolean {
  const names = list.map((item) => typeof item === "object" && item !== null ? (item as { name?: unknown }).name : undefined);
  return names.every((name) => typeof name === "string") && new Set(names).size === names.length;
}

function children(value: unknown): [string, unknown][] | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (!Array.isArray(value)) return Object.entries(value);
  const byName = named(value);
  return value.map((item: unknown, i) => [byName ? String((item as { name: string }).name) : String(i), item]);
}

function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, child]) => [key, sorted(child)]));
}
