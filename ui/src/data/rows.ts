// The rows of a list that is on the page: pages of a snapshot, and what has changed since.
// Rows change in their place. New ones wait, and deleted ones are struck out, until somebody wants them gone.
import { rowKey } from "./keys";
import type { StreamEvent } from "./protocol";
import type { KubeTable, TableColumn, TableRow } from "./types";

export const maxRows = 5_000;

export class Rows {
  columns: TableColumn[] = [];
  rows: TableRow[] = []; // changed in place; version says when
  version = 0;
  readonly gone = new Set<string>();
  readonly changed = new Map<string, number>(); // key to when, for the flash
  private index = new Map<string, number>();
  private readonly waiting = new Map<string, TableRow>();
  private end = ""; // the key of the last row that was loaded
  next = ""; // of the pages, "" for no more
  remaining = 0;
  resourceVersion = "";

  get fresh(): number {
    return this.waiting.size;
  }

  get total(): number {
    return this.rows.length + this.remaining;
  }

  // page adds the next page, or begins again with the first: then rows that are shown stay where they are, as they
  // do for a watch. What the server does not have any more it may not have yet, after a restart.
  page(table: KubeTable, first: boolean): void {
    const before = first ? this.rows : [];
    if (first) {
      this.rows = [];
      this.index.clear();
      this.gone.clear();
      this.waiting.clear();
      this.changed.clear();
      this.resourceVersion = table.metadata.resourceVersion ?? "";
    }
    if (table.columnDefinitions != null && table.columnDefinitions.length > 0) this.columns = table.columnDefinitions;
    const room = maxRows - this.rows.length;
    const more = table.rows.filter((row) => !this.index.has(rowKey(row))).slice(0, room);
    const last = more[more.length - 1];
    if (last !== undefined) this.end = rowKey(last);
    this.remaining = table.metadata.remainingItemCount ?? 0;
    this.next = table.metadata.continue ?? "";
    this.rows = before.length > 0 ? this.stay(before, more) : [...this.rows, ...more];
    this.version++;
    this.reindex();
  }

  // stay returns the rows that are shown and still within what is loaded, with what they are now.
  private stay(before: readonly TableRow[], now: readonly TableRow[]): TableRow[] {
    const current = new Map(now.map((row) => [rowKey(row), row]));
    const kept: TableRow[] = [];
    for (const row of before) {
      const key = rowKey(row);
      const same = current.get(key);
      if (same !== undefined) kept.push(same);
      else if (this.within(key)) {
        this.gone.add(key);
        kept.push({ ...row, object: { ...row.object, metadata: { ...row.object.metadata, resourceVersion: "0" } } }); // any is newer
      }
      current.delete(key);
    }
    if (kept.length === 0) return [...now];
    for (const [key, row] of current) this.waiting.set(key, row);
    return kept;
  }

  // complete says that no rows are missing, which a list with a selector does not count.
  get complete(): boolean {
    return this.next === "";
  }

  get full(): boolean {
    return this.rows.length >= maxRows;
  }

  // apply takes in events of a watch. It says whether anything that is shown is different.
  apply(events: readonly StreamEvent[], now: number): boolean {
    let different = false;
    for (const event of events) {
      const row = (event.object as KubeTable).rows?.[0];
      if (row !== undefined && this.one(event.type, row, now)) different = true;
    }
    if (this.rows.length === 0 && this.waiting.size > 0) this.settle(); // there is nothing that would move
    else if (different) this.version++;
    return different;
  }

  private one(type: string, row: TableRow, now: number): boolean {
    const key = rowKey(row);
    const at = this.index.get(key);
    const before = at === undefined ? undefined : this.rows[at];
    if (type === "DELETED") {
      if (this.waiting.delete(key)) return true;
      if (before === undefined || this.gone.has(key)) return false;
      this.gone.add(key);
      return true;
    }
    if (at !== undefined && before !== undefined) {
      if (older(row, before)) return false;
      this.gone.delete(key);
      const same = before.cells.length === row.cells.length && before.cells.every((cell, i) => cell === row.cells[i]);
      this.rows[at] = row;
      if (!same) this.changed.set(key, now);
      return true;
    }
    if (!this.within(key) || this.rows.length + this.waiting.size >= maxRows) return false;
    this.waiting.set(key, row);
    return true;
  }

  // within says whether a key belongs to the part of the list that is loaded.
  private within(key: string): boolean {
    return this.complete || key <= this.end;
  }

  // settle lets what waits in, and what is gone out.
  settle(): void {
    const kept = this.rows.filter((row) => !this.gone.has(rowKey(row)));
    const all = [...kept, ...this.waiting.values()];
    all.sort((a, b) => (rowKey(a) < rowKey(b) ? -1 : 1));
    this.rows = all.slice(0, maxRows);
    this.version++;
    this.gone.clear();
    this.waiting.clear();
    this.reindex();
  }

  // members are those whose rows are loaded: a watch needs no others.
  members(): string[] {
    return [...new Set(this.rows.map((row) => row.object.metadata.annotations?.["federator.dev/member"] ?? ""))].sort();
  }

  private reindex(): void {
    this.index = new Map(this.rows.map((row, i) => [rowKey(row), i]));
  }
}

function older(row: TableRow, than: TableRow): boolean {
  return Number(row.object.metadata.resourceVersion ?? 0) < Number(than.object.metadata.resourceVersion ?? 0);
}
