import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { href, param, paramList, setParams } from "../../app/location";
import { rowKey } from "../../data/keys";
import type { Kind } from "../../data/kinds";
import { formatQuery, type Query } from "../../data/query";
import type { Count, TableColumn, TableRow } from "../../data/types";
import type { List } from "../../data/uselist";
import { Empty, Failed, Freshness, Loading, Table, Unknown, ago, many, plain, type Column } from "../../ui";

interface ListProps {
  kind: Kind;
  query: Query;
  list: List | undefined;
  total: Count | undefined;
  members: number | undefined; // that are looked at
  open: string;
  onQuery: (query: Query) => void;
  tools: ComponentChildren;
}

const none: TableRow[] = [];
const flashFor = 400; // longer than the flash itself, so that a row is not drawn again while it flashes

export function ObjectList({ kind, query, list, total, members, open, onQuery, tools }: ListProps) {
  const chosen = useMemo(() => new Set(paramList("x")), [paramList("x").join(" ")]);
  const rows = list?.rows;
  const by = param("sort").replace(/^-/, ""), down = param("sort").startsWith("-");
  const sortable = rows?.complete === true;
  const columns = useMemo(() => columnsOf(rows?.columns ?? [], kind, sortable), [rows?.columns, kind, sortable]);
  const places = useMemo(() => (by === "" || !sortable ? undefined : sortRows(rows.rows, rows.columns, by, down)), [by, down, sortable, rows?.rows.length]);
  const shown = useMemo(() => (places === undefined ? rows?.rows ?? none : [...rows?.rows ?? []].sort((a, b) => (places.get(rowKey(a)) ?? Infinity) - (places.get(rowKey(b)) ?? Infinity))), [rows?.rows, rows?.version, places]);
  if (list === undefined || rows === undefined || (list.loading && rows.rows.length === 0)) return <div class="grow"><Loading rows={14} /></div>;
  if (list.error !== undefined && rows.rows.length === 0) return <div class="grow"><Failed status={list.error} again={list.again} /></div>;
  const now = Date.now();
  const notSynced = total?.notSynced ?? [];
  const all = rows.complete ? rows.rows.length : Math.max(total?.total ?? 0, rows.total);
  return (
    <Table id={`explore.${kind.resource}`} label={kind.resource} columns={columns} rows={shown} rowKey={rowKey} open={open} total={all}
      chosen={chosen} onChoose={(key) => setParams({ x: chosen.has(key) ? [...chosen].filter((k) => k !== key) : [...chosen, key] }, { replace: true })}
      onOpen={(row) => setParams({ open: rowKey(row), compare: null }, { replace: open !== "" })}
      rowClass={(row) => {
        const key = rowKey(row);
        return rows.gone.has(key) ? "gone" : now - (rows.changed.get(key) ?? 0) < flashFor ? "flash" : "";
      }}
      fresh={rows.fresh} gone={rows.gone.size} onFresh={list.settle} onEnd={list.loadMore}
      {...(sortable ? { sort: { by, down }, onSort: (sort: { by: string; down: boolean } | undefined) => setParams({ sort: sort === undefined ? null : (sort.down ? "-" : "") + sort.by }, { replace: true }) } : {})}
      bar={<>
        {tools}
        <span>{many(all, kind.kind.split(".")[0] ?? "object", kind.plural)}</span>
        <Freshness at={list.at} revision={rows.resourceVersion} notSynced={notSynced} more={total?.notSyncedMore ?? 0} {...(members === undefined ? {} : { members })} />
        {list.error !== undefined && <span class="wrong" role="alert">{list.error.message}: what is shown is from before</span>}
        {chosen.size > 0 && <><span>{chosen.size} selected</span>{chosen.size > 1 && <a href={href("/explore", { q: param("q"), compare: "true", x: [...chosen] })}>Compare</a>}<button type="button" class="link" onClick={() => setParams({ x: null, compare: null }, { replace: true })}>Clear</button></>}
      </>}
      empty={notSynced.length > 0
        ? <Unknown title="None that is known" gaps={notSynced.slice(0, 10)} more={(total?.notSyncedMore ?? 0) + Math.max(0, notSynced.length - 10)}><p>These members are not fresh for {kind.resource}; there may be some.</p></Unknown>
        : <Empty title={`No ${kind.plural}`}><p>Nothing matches <code>{formatQuery(query)}</code> in {members === undefined ? "the members that you may read" : many(members, "member")}, at revision {rows.resourceVersion}.</p>
          {formatQuery(query) !== query.kind && <button type="button" onClick={() => onQuery({ ...query, members: [], memberLabels: [], namespace: "", name: "", labels: [], fields: [] })}>Show all {kind.plural}</button>}</Empty>} />
  );
}

const widths: Record<string, number> = { Cluster: 200, Name: 300, Namespace: 140, Age: 72, Ready: 72, Status: 110, Restarts: 140, IP: 130, Node: 170 };
const noLine = new Set(["IP", "Node", "Restarts"]);

// columnsOf are the server's own columns, with the namespace, which it leaves to the client.
function columnsOf(defined: readonly TableColumn[], kind: Kind, sortable: boolean): Column<TableRow>[] {
  const columns: Column<TableRow>[] = defined.map((column, i) => ({
    id: column.name, title: column.name === "Cluster" ? "Member" : column.name, width: widths[column.name] ?? 120, hidden: column.priority > 0, sortable,
    right: column.type === "integer" || column.type === "number",
    describe: (column.description ?? "").slice(0, 300), line: noLine.has(column.name) ? 0 : column.name === "Name" ? 1 : 2,
    render: (row) => cell(row, i, column.name), text: (row) => String(row.cells[i] ?? ""),
  }));
  // The name first: it is what is read when the list is narrow beside a drawer.
  columns.sort((a, b) => Number(b.id === "Name") - Number(a.id === "Name"));
  if (kind.namespaced) columns.splice(1, 0, { id: "Namespace", title: "Namespace", width: 140, sortable, line: 2, render: (row) => row.object.metadata.namespace ?? "", text: (row) => row.object.metadata.namespace ?? "" });
  columns.push({ id: "Labels", title: "Labels", width: 300, hidden: true, line: 0, render: (row) => labelsOf(row), text: labelsOf });
  return columns;
}

function labelsOf(row: TableRow): string {
  return Object.entries(row.object.metadata.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ");
}

function cell(row: TableRow, i: number, name: string): ComponentChildren {
  const value = row.cells[i];
  const created = row.object.metadata.creationTimestamp;
  if (name === "Age" && created !== undefined) return ago(created); // the server's is from when the row was sent
  if (name === "Cluster") return <a href={href(`/members/${String(value)}`)}>{String(value)}</a>;
  if (value === null || value === undefined || value === "<none>" || value === "") return <span class="dim">–</span>;
  if (name === "Status" && /error|failed|backoff|evicted|oom|invalid|notready/i.test(String(value))) return <span class="wrong">{String(value)}</span>;
  return typeof value === "object" ? JSON.stringify(value) : plain(String(value));
}

function sortRows(rows: readonly TableRow[], columns: readonly TableColumn[], by: string, down: boolean): Map<string, number> {
  const i = columns.findIndex((column) => column.name === by);
  const value = (row: TableRow): string | number => {
    if (by === "Namespace") return row.object.metadata.namespace ?? "";
    if (by === "Age") return -Date.parse(row.object.metadata.creationTimestamp ?? "");
    const cellValue = row.cells[i];
    if (typeof cellValue === "number") return cellValue;
    const text = String(cellValue ?? "");
    const number = /^\d+/.exec(text);
    return by === "Restarts" && number !== null ? Number(number[0]) : text;
  };
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const sorted = [...rows].sort((a, b) => {
    const x = value(a), y = value(b);
    return (typeof x === "number" && typeof y === "number" ? x - y : compare(String(x), String(y))) * (down ? -1 : 1);
  });
  return new Map(sorted.map((row, place) => [rowKey(row), place]));
}
