// A list on the page: its first page at once, others when they are scrolled to, and a watch of what is loaded.
import { useEffect, useRef, useState } from "preact/hooks";
import { Backoff } from "./backoff";
import { asTable, get, statusFrom, withQuery } from "./api";
import { subscribe } from "./link";
import type { FromStream, StreamEvent } from "./protocol";
import { Rows } from "./rows";
import type { KubeTable, Status } from "./types";

export interface List {
  rows: Rows;
  loading: boolean;
  more: boolean; // a further page is on its way
  error: Status | undefined;
  at: number;
  loadMore(): void;
  settle(): void;
  again(): void;
}

export interface ListQuery {
  path: string;
  labelSelector: string;
  fieldSelector: string;
}

const pageSize = 250;
const manyMembers = 40; // from here on a selector of members costs more than it saves

class Loader {
  rows = new Rows();
  loading = true;
  more = false;
  error: Status | undefined;
  at = 0;
  private readonly abort = new AbortController();
  private stop: (() => void) | undefined;
  private pending: StreamEvent[] = [];
  private frame = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly backoff = new Backoff(1_000, 30_000);

  constructor(private readonly query: ListQuery, private readonly changed: () => void) {
    void this.load(true);
  }

  close(): void {
    this.abort.abort();
    this.stop?.();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
  }

  async load(first: boolean): Promise<void> {
    if (this.more || (!first && (this.rows.complete || this.rows.full))) return;
    this.more = true;
    this.changed();
    try {
      const { path, labelSelector, fieldSelector } = this.query;
      const url = withQuery(path, { labelSelector, fieldSelector, limit: pageSize, continue: first ? "" : this.rows.next });
      const table = await get<KubeTable>(url, { accept: asTable, signal: this.abort.signal });
      if (first) this.pending = []; // of the watch before
      this.rows.page(table, first);
      this.backoff.reset();
      this.error = undefined;
      this.at = Date.now();
      this.watch();
    } catch (error) {
      if (this.abort.signal.aborted) return;
      this.error = statusFrom(error);
      if (this.error.code === 410 && !first) { // the snapshot of the pages is gone
        this.more = false;
        await this.load(true);
        return;
      }
      if (this.error.code === 401 || this.error.code === 403) this.rows = new Rows(); // not to be read any more
      else if (first && (this.error.code === 0 || this.error.code === 429 || this.error.code >= 500)) this.retry();
    }
    this.loading = this.more = false;
    this.changed();
  }

  // retry loads again later: there is no watch that would tell of anything new.
  private retry(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.more = false;
      void this.load(true);
    }, this.backoff.next());
  }

  // watch begins at the snapshot of the pages: what came before a page was loaded is sent again, and is not older.
  private watch(): void {
    this.stop?.();
    let { labelSelector } = this.query;
    const members = this.rows.members();
    if (!this.rows.complete && members.length > 0 && members.length < manyMembers && !labelSelector.includes("federator.dev/member")) {
      const narrow = `federator.dev/member in (${members.map((member) => member.replace("/", ".")).join(",")})`;
      labelSelector = labelSelector === "" ? narrow : `${labelSelector},${narrow}`;
    }
    let version = this.rows.resourceVersion;
    const path = withQuery(this.query.path, { watch: true, allowWatchBookmarks: true, as: "Table", labelSelector, fieldSelector: this.query.fieldSelector });
    this.stop = subscribe({ path, resourceVersion: () => version, receive: (message) => {
      if (message.t === "events" && message.resourceVersion !== undefined) version = message.resourceVersion;
      this.receive(message);
    } });
  }

  private receive(message: FromStream): void {
    if (message.t === "events") {
      this.at = message.at;
      this.pending.push(...message.events);
      if (this.frame === 0) this.frame = requestAnimationFrame(() => this.apply());
    } else if (message.t === "reset") {
      this.stop?.();
      void this.load(true); // where the watch was is gone
    } else if (message.t === "error") {
      this.error = message.status;
      if (message.status.code === 401 || message.status.code === 403) this.rows = new Rows();
      this.changed();
    }
  }

  private apply(): void {
    this.frame = 0;
    const events = this.pending;
    this.pending = [];
    this.error = undefined;
    this.rows.apply(events, Date.now());
    this.changed();
  }
}

// useList is empty while query is undefined.
export function useList(query: ListQuery | undefined): List | undefined {
  const [, turn] = useState(0);
  const [again, setAgain] = useState(0);
  const loader = useRef<Loader | undefined>(undefined);
  const key = query === undefined ? "" : JSON.stringify(query);
  const made = useRef("");
  useEffect(() => {
    if (query === undefined) return;
    const own = loader.current = new Loader(query, () => turn((n) => n + 1));
    made.current = key;
    turn((n) => n + 1);
    return () => { own.close(); };
  }, [key, again]);
  const at = loader.current;
  if (query === undefined || at === undefined || made.current !== key) return undefined;
  return {
    rows: at.rows, loading: at.loading, more: at.more, error: at.error, at: at.at,
    loadMore: () => void at.load(false),
    settle: () => { at.rows.settle(); turn((n) => n + 1); },
    again: () => setAgain(again + 1),
  };
}
