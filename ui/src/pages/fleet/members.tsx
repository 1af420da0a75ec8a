import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { go, href, param, setParams } from "../../app/location";
import { useOnce } from "../../data/live";
import type { MemberInfo, MemberList } from "../../data/types";
import { SeverityMark, StateMark, Table, bytes, count, duration, seconds, severities, toneOf, type Column } from "../../ui";
import { largest } from "../../pieces/sparkline";
import { Spark } from "./spark";
import { useTrends } from "./trends";
import { inOrder, worst, type Findings, type Tally } from "./model";

const provedFor = 60; // members, at most: their kinds are many

interface MemberRow {
  member: MemberInfo;
  tally: Tally | undefined;
  proved: number | undefined; // seconds since the oldest proof of a kind
  trend: (number | null)[] | undefined;
  trendKnown: boolean;
}

const rank = ["Forbidden", "OverBudget", "Stale", "Partial", "Unknown", "Syncing", "Synced"];

const order: Record<string, (row: MemberRow) => string | number> = {
  name: (row) => row.member.name, version: (row) => row.member.version ?? "", objects: (row) => row.member.objects, bytes: (row) => row.member.bytes,
  violations: (row) => row.tally?.violations ?? 0, state: (row) => rank.indexOf(worst(row.member).state), proved: (row) => row.proved ?? -1,
};

function columnsOf(findings: Findings | undefined, most: number | undefined): Column<MemberRow>[] {
  return [
    { id: "name", title: "Member", width: 220, sortable: true, line: 1, render: ({ member }) => <a href={href(`/members/${member.name}`)}>{member.name}</a>, text: ({ member }) => member.name },
    { id: "state", title: "State", width: 150, sortable: true, line: 1, render: ({ member }) => <StateOf member={member} />, text: ({ member }) => member.notSynced?.map((n) => `${n.kind ?? ""} ${n.state} ${n.reason ?? ""}`).join("\n") ?? "" },
    { id: "violations", title: "Violations", width: 210, sortable: true, named: true, line: 2, render: ({ member, tally }) => findings === undefined ? <span class="dim">…</span> : <Severities tally={tally} member={member.name} fresh={worst(member).state === "Synced"} /> },
    ...(most !== undefined ? [{ id: "trend", title: "24 h", width: 110, line: 0 as const, describe: "Violations in the last 24 hours, all members that were looked at on one scale", render: (row: MemberRow) => !row.trendKnown ? <span class="dim">…</span> : row.trend === undefined ? <span class="dim">none</span> : row.trend.filter((value) => value !== null).length < 2 ? <span class="dim">not known yet</span> : <Spark values={row.trend} most={most} label={`Violations of ${row.member.name} in 24 hours`} /> }] : []),
    { id: "version", title: "Version", width: 100, sortable: true, line: 2, render: ({ member }) => member.version ?? <span class="dim">not known</span> },
    { id: "objects", title: "Objects", width: 90, right: true, sortable: true, line: 2, render: ({ member }) => <a href={href(`/members/${member.name}`)}>{count(member.objects)}</a> },
    { id: "bytes", title: "Memory", width: 90, right: true, sortable: true, line: 0, render: ({ member }) => bytes(member.bytes) },
    { id: "proved", title: "Proved", width: 90, right: true, sortable: true, line: 0, describe: "How long ago the kind that was proved longest ago was listed or audited", render: ({ proved }) => proved === undefined ? <span class="dim">–</span> : `${duration(proved)} ago` },
    { id: "labels", title: "Labels", width: 240, line: 0, render: ({ member }) => Object.entries(member.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ") },
  ];
}

export function MemberTable({ members, findings, bar, empty }: { members: readonly MemberInfo[]; findings: Findings | undefined; bar: ComponentChildren; empty: ComponentChildren }) {
  const details = useOnce<MemberList>(members.length <= provedFor ? "/query/v1/members?details=true&limit=100" : null);
  const proved = useMemo(() => new Map(details.value?.items.map((m) => [m.name, m.details === undefined ? undefined : Math.max(...m.details.filter((d) => d.proved !== undefined).map((d) => seconds(d.proved ?? "")))])), [details.value]);
  const by = param("sort").replace(/^-/, "") || "name", down = param("sort").startsWith("-");
  const rows = members.map((member): MemberRow => ({ member, tally: findings?.byMember.get(member.name), proved: proved.get(member.name), trend: undefined, trendKnown: false }));
  // The order is made when the sort or the members change: what changes in place stays in its place.
  const names = members.map((member) => member.name).join(" ") + (findings === undefined ? "" : "+");
  const places = useMemo(() => {
    const value = order[by] ?? ((row: MemberRow) => row.member.name);
    const sorted = [...rows].sort((a, b) => {
      const x = value(a), y = value(b);
      const difference = typeof x === "string" && typeof y === "string" ? inOrder(x, y) : Number(x) - Number(y);
      return (difference || inOrder(a.member.name, b.member.name)) * (down ? -1 : 1);
    });
    return new Map(sorted.map((row, i) => [row.member.name, i]));
  }, [names, by, down, details.value === undefined]);
  rows.sort((a, b) => (places.get(a.member.name) ?? 0) - (places.get(b.member.name) ?? 0));
  const trends = useTrends(rows.map((row) => row.member.name));
  let most: number | undefined;
  for (const row of rows) {
    const one = trends.known.get(row.member.name);
    row.trend = one?.values;
    row.trendKnown = one !== undefined;
    if (row.trend !== undefined) most = Math.max(most ?? 1, largest(row.trend));
  }
  return (
    <Table id="fleet.members" onWindow={trends.onWindow} label="Members" columns={columnsOf(findings, most).filter((column) => column.id !== "proved" || members.length <= provedFor)} rows={rows} rowKey={(row) => row.member.name} onOpen={(row) => go(href(`/members/${row.member.name}`))}
      sort={{ by, down }} onSort={(sort) => setParams({ sort: sort === undefined || (sort.by === "name" && !sort.down) ? null : (sort.down ? "-" : "") + sort.by })} bar={bar} empty={empty} />
  );
}

export function StateOf({ member }: { member: MemberInfo }) {
  const { state, kinds, of } = worst(member);
  if (state === "Synced") return <StateMark state={state} />;
  return <StateMark state={state} tone={toneOf(state)}>{state} {kinds < of ? <span class="dim">{kinds} of {of} kinds</span> : null}</StateMark>;
}

function Severities({ tally, member, fresh }: { tally: Tally | undefined; member: string; fresh: boolean }) {
  if (tally === undefined || tally.violations + tally.unknown + tally.errors === 0) return fresh ? <span class="dim">none</span> : <span class="dim hatched" title="The member is not fresh: there may be some">none known</span>;
  return (
    <span class="sevs">
      {severities.map((severity) => (tally.bySeverity[severity] ?? 0) > 0 && <a key={severity} href={href("/violations", { member, severity, exempt: "false" })}><SeverityMark severity={severity} text={false} /> {count(tally.bySeverity[severity] ?? 0)}</a>)}
      {tally.errors > 0 && <a href={href("/violations", { member, state: "Error" })}><StateMark state="Error">{count(tally.errors)}</StateMark></a>}
      {tally.unknown > 0 && <a href={href("/violations", { member, state: "Unknown" })}><StateMark state="Unknown">{count(tally.unknown)}</StateMark></a>}
    </span>
  );
}
