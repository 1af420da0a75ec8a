import "../violations/violations.css";
import "./sources.css";
import { go, href, param } from "../../app/location";
import { useLive } from "../../data/live";
import type { PolicySource, Sources } from "../../data/policytypes";
import { CopyAs, Empty, Failed, Freshness, Loading, StateMark, Table, ago, many, type Column } from "../../ui";
import type { PageProps } from "../registry";
import { diffText, held } from "./model";
import { One } from "./one";

const path = "/query/v1/sources";

export function sourceHref(name: string): string {
  return href(`/sources/${encodeURIComponent(name)}`);
}

export function stateOf(source: PolicySource) {
  const why = held(source);
  if (why !== undefined) return <StateMark state="Held">held: {why.reason ?? why.type}</StateMark>;
  const ready = source.status?.conditions?.find((c) => c.type === "Ready");
  return ready === undefined ? <StateMark state="Unknown">not read yet</StateMark> : ready.status === "True" ? <StateMark state="Ready" /> : <StateMark state="Failed">{ready.reason ?? "not ready"}</StateMark>;
}

const columns: readonly Column<PolicySource>[] = [
  { id: "name", title: "Source", width: 160, render: (s) => <a href={sourceHref(s.metadata.name)}>{s.metadata.name}</a> },
  { id: "state", title: "State", width: 150, render: stateOf },
  { id: "active", title: "Active", width: 90, line: 2, render: (s) => s.status?.activeCommit === undefined ? <span class="dim">none</span> : <code>{s.status.activeCommit.hash.slice(0, 8)}</code> },
  { id: "observed", title: "Newest", width: 90, line: 2, render: (s) => s.status?.observedCommit === undefined ? "" : <code>{s.status.observedCommit.hash.slice(0, 8)}</code> },
  { id: "diff", title: "Changes in verdicts", width: 240, line: 0, render: (s) => s.status?.lastDiff === undefined ? "" : diffText(s.status.lastDiff) },
  { id: "findings", title: "Findings", width: 80, right: true, line: 0, render: (s) => s.status?.findings?.length ?? 0 },
  { id: "packages", title: "Packages", width: 96, right: true, line: 0, render: (s) => s.status?.packages?.length ?? 0 },
  { id: "contact", title: "Last contact", width: 116, right: true, line: 0, render: (s) => s.status?.lastContact === undefined ? <span class="dim">never</span> : ago(s.status.lastContact), text: (s) => s.status?.lastContact ?? "" },
  { id: "url", title: "Repository", width: 300, line: 0, render: (s) => s.spec.url, text: (s) => s.spec.url },
];

export default function SourcesPage({ rest }: PageProps) {
  const live = useLive<Sources>(path);
  const name = rest[0];
  const one = name === undefined ? undefined : live.value?.items.find((s) => s.metadata.name === name);
  return (
    <div class="page">
      <div class="head">
        {name === undefined ? <h1>Sources</h1> : <><a href={href("/sources")}>Sources</a><span class="dim" aria-hidden="true">/</span><h1 class="cut">{name}</h1>{one !== undefined && stateOf(one)}</>}
        <span class="grow" />
        <Freshness at={live.at} />
        <CopyAs commands={{ kubectl: name === undefined ? "kubectl get policysources" : `kubectl get policysource ${name} -o yaml`, curl: path }} />
      </div>
      {live.value === undefined ? live.error === undefined ? <Loading /> : <Failed status={live.error} />
        : name === undefined ? (
          <div class="body"><Table id="sources" label="Sources" columns={columns} rows={live.value.items} rowKey={(s) => s.metadata.name} onOpen={(s) => go(sourceHref(s.metadata.name))}
            bar={<span class="dim">{many(live.value.items.length, "source")}</span>} empty={<Empty title="No sources"><p>There is no PolicySource on the hub: policies are built in, or read from files.</p></Empty>} /></div>
        ) : one === undefined ? <Empty title="There is no such source"><p>{many(live.value.items.length, "source was", "sources were")} looked at.</p></Empty> : <One source={one} commit={param("commit")} />}
    </div>
  );
}
