import { useState } from "preact/hooks";
import { go, href } from "../../app/location";
import { withQuery } from "../../data/api";
import { kinds, type Kind } from "../../data/kinds";
import { useOnce } from "../../data/live";
import type { Count } from "../../data/types";
import { CopyAs, Empty, Freshness, Table, count, many, type Column } from "../../ui";

interface KindRow {
  kind: Kind;
  n: number | undefined; // not known while it is undefined
}

// Start is what Explore shows before anything is asked: the kinds, and how many there are of each.
export function Start() {
  const path = withQuery("/query/v1/count", { resource: kinds.value.map((kind) => kind.resource), groupBy: "kind" });
  const live = useOnce<Count>(path);
  const [all, setAll] = useState(false);
  const counts = new Map(live.value?.groups?.map((group) => [group.key[0] ?? "", group.count]));
  const rows = kinds.value.map((kind): KindRow => ({ kind, n: live.value === undefined ? undefined : counts.get(kind.kind) ?? 0 }))
    .filter((row) => all || row.n !== 0)
    .sort((a, b) => (b.n ?? 0) - (a.n ?? 0) || (a.kind.resource < b.kind.resource ? -1 : 1));
  const none = kinds.value.length - rows.length;
  const open = (kind: Kind) => href("/explore", { q: kind.resource });
  const columns: Column<KindRow>[] = [
    { id: "kind", title: "Kind", width: 340, line: 1, render: (row) => <a href={open(row.kind)}>{row.kind.kind}</a>, text: (row) => row.kind.kind },
    { id: "count", title: "Objects", width: 110, right: true, line: 1, render: (row) => row.n === undefined ? <span class="dim">…</span> : <a href={open(row.kind)}>{count(row.n)}</a> },
    { id: "short", title: "Short", width: 100, line: 2, render: (row) => <span class="dim">{row.kind.short.join(", ")}</span> },
    { id: "resource", title: "Write", width: 340, line: 2, render: (row) => <code>{row.kind.resource}</code> },
  ];
  return (
    <Table id="explore.kinds" label="Kinds" columns={columns} rows={rows} rowKey={(row) => row.kind.resource} onOpen={(row) => go(open(row.kind))}
      bar={<>
        <span>{many(rows.length, "kind")}</span>
        <Freshness at={live.at} live={false} notSynced={live.value?.notSynced ?? []} more={live.value?.notSyncedMore ?? 0} {...(live.value === undefined ? {} : { revision: live.value.revision })} />
        {live.error !== undefined && <span class="wrong" role="alert">{live.error.message}</span>}
        {(none > 0 || all) && <button type="button" class="link" onClick={() => setAll(!all)}>{all ? "only those that there are" : `${many(none, "kind")} without objects`}</button>}
        <CopyAs commands={{ curl: path }} />
      </>}
      empty={<Empty title="No objects"><p>None of {many(kinds.value.length, "kind")} has an object in the members that you may read.</p></Empty>} />
  );
}
