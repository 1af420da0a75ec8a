import "../../style/summary.css";
import "./member.css";
import { useEffect, useMemo, useState } from "preact/hooks";
import { href, param, setParams } from "../../app/location";
import { withQuery } from "../../data/api";
import { findKind, kinds, loadKinds } from "../../data/kinds";
import { useLive, useOnce } from "../../data/live";
import { noneOf, someKnown } from "../../data/series";
import { session } from "../../data/session";
import type { Actions, MemberInfo, MemberList, ScopeDetails, Series, Violations } from "../../data/types";
import { Trend } from "../../pieces/series";
import { theme } from "../../app/theme";
import { CopyAs, Empty, Failed, FilterBox, Freshness, Loading, SeverityMark, Shown, StateMark, Table, Tabs, ago, bytes, count, duration, many, seconds, severities, severityRank, shortPolicy, type Column } from "../../ui";
import type { PageProps } from "../registry";
import { worst } from "../fleet/model";
import { Health, HealthFact } from "./health";

const every = 15_000; // proofs and ages are told as durations: read again, not watched

export default function MemberPage({ rest }: PageProps) {
  const [namespace = "", name = ""] = rest;
  const full = `${namespace}/${name}`;
  const path = withQuery("/query/v1/members", { fieldSelector: `metadata.name=${name},metadata.namespace=${namespace}`, details: true });
  const list = useOnce<MemberList>(path);
  useEffect(() => {
    document.title = `${full} · federator`;
    void loadKinds().catch(() => {});
  }, [full]);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) list.again(); }, every);
    return () => clearInterval(timer);
  }, [list.again]);
  if (list.value === undefined) return list.error === undefined ? <Loading rows={14} /> : <Failed status={list.error} again={list.again} />;
  const member = list.value.items[0];
  if (member === undefined) return <><h1 class="sr">{full}</h1><Empty title={`There is no member ${full}`}><p>It has left the fleet, or you may read nothing of it, at revision {list.value.revision}. <a href={href("/")}>See the fleet</a></p></Empty></>;
  return <Member member={member} path={path} at={list.at} revision={list.value.revision} failed={list.error?.message} />;
}

function Member({ member, path, at, revision, failed }: { member: MemberInfo; path: string; at: number; revision: string; failed: string | undefined }) {
  const violations = useLive<Violations>(withQuery("/query/v1/violations", { member: member.name, groupBy: ["policy", "severity", "state"] }));
  const hub = session.value?.hub === true;
  const tab = param("tab") || "scopes";
  const { state, kinds: bad, of } = worst(member);
  const tabs = [{ id: "scopes", title: "Kinds", n: member.details?.length }, { id: "health", title: "Health" }, { id: "violations", title: "Violations" }, { id: "trend", title: "24 hours" }, ...(hub ? [{ id: "actions", title: "Actions" }] : [])];
  return (
    <div class="page">
      <section class="summary" aria-label="The member">
        <div class="bar"><a href={href("/")}>Fleet</a><span class="dim" aria-hidden="true">/</span><h1>{member.name}</h1><span class="grow" />
          {failed !== undefined && <span class="wrong" role="alert">{failed}</span>}
          <Freshness at={at} revision={revision} live={false} />
          <CopyAs commands={{ kubectl: `kubectl --context fleet get --raw '${path}'`, curl: path }} />
        </div>
        <dl>
          <div><dt>State</dt><dd><StateMark state={state}>{state === "Synced" ? "Synced" : `${state} for ${bad} of ${many(of, "kind")}`}</StateMark></dd></div>
          <div><dt>Violations</dt><dd><Found violations={violations.value} failed={violations.error?.message} member={member.name} /></dd></div>
          {member.health !== undefined && <div><dt>Connection</dt><dd><a href={href(`/members/${member.name}`, { tab: "health" })}><HealthFact health={member.health} /></a></dd></div>}
          <div><dt>Version</dt><dd>{member.version ?? "not known"}</dd></div>
          <div><dt>Objects</dt><dd>{count(member.objects)} <span class="dim">in {bytes(member.bytes)}</span></dd></div>
          <div><dt>Oldest proof</dt><dd>{oldest(member)}</dd></div>
          {member.held !== undefined && member.held !== "" && <div><dt>Held</dt><dd class="wrong">{member.held}</dd></div>}
          {member.writesWith !== undefined && member.writesWith !== "" && <div><dt>Writes with</dt><dd>{member.writesWith}</dd></div>}
          {Object.keys(member.labels ?? {}).length > 0 && <div><dt>Labels</dt><dd class="labels">{Object.entries(member.labels ?? {}).map(([key, value]) => <a key={key} class="pill" href={href("/", { filter: `${key}=${value}` })}>{key}={value}</a>)}</dd></div>}
        </dl>
      </section>
      <div class="member-tabs"><Tabs label="About the member" tabs={tabs} chosen={tab} onChoose={(next) => setParams({ tab: next === "scopes" ? null : next }, { replace: true })}>
        {tab === "scopes" && <Scopes member={member} />}
        {tab === "health" && <Health member={member} />}
        {tab === "violations" && <div class="scroll"><Shown live={violations}>{(value) => <ByPolicy violations={value} member={member.name} />}</Shown></div>}
        {tab === "trend" && <div class="scroll pad"><Trends member={member.name} /></div>}
        {tab === "actions" && <div class="scroll pad"><Written member={member.name} /></div>}
      </Tabs></div>
    </div>
  );
}

function oldest(member: MemberInfo): string {
  const proofs = (member.details ?? []).filter((scope) => scope.state !== "NotServed").map((scope) => scope.proved);
  if (proofs.length === 0) return "not known";
  if (proofs.some((proof) => proof === undefined)) return "not all are proved";
  return `${duration(Math.max(...proofs.map((proof) => seconds(proof ?? ""))))} ago`;
}

function Found({ violations, failed, member }: { violations: Violations | undefined; failed: string | undefined; member: string }) {
  if (violations === undefined) return <span class="dim">{failed === undefined ? "…" : "not known"}</span>;
  const sums = new Map<string, number>();
  for (const group of violations.groups ?? []) sums.set(group.key[1] ?? "", (sums.get(group.key[1] ?? "") ?? 0) + group.violations);
  const some = severities.filter((severity) => (sums.get(severity) ?? 0) > 0);
  const unknown = (violations.groups ?? []).filter((group) => group.key[2] !== "Known").reduce((n, group) => n + group.subjects, 0);
  if (some.length === 0 && unknown > 0) return <a class="hatched" href={href("/violations", { member, state: ["Unknown", "Error"] })}>none known, {count(unknown)} not known</a>;
  return some.length === 0 ? <span>none</span> : <>{some.map((severity) => <a key={severity} href={href("/violations", { member, severity, exempt: "false" })}><SeverityMark severity={severity} text={false} /> {count(sums.get(severity) ?? 0)}</a>)}</>;
}

const rank = ["Forbidden", "OverBudget", "Stale", "Partial", "Unknown", "Syncing", "Synced", "NotServed"];

function Scopes({ member }: { member: MemberInfo }) {
  const [text, setText] = useState("");
  const by = param("sort").replace(/^-/, ""), down = param("sort").startsWith("-");
  const rows = useMemo(() => {
    const some = (member.details ?? []).filter((scope) => `${scope.kind} ${scope.state} ${scope.reason ?? ""}`.toLowerCase().includes(text.toLowerCase()));
    const value = (scope: ScopeDetails): string | number => by === "kind" ? scope.kind : by === "objects" ? scope.objects ?? 0 : by === "bytes" ? scope.bytes ?? 0 : by === "proved" ? seconds(scope.proved ?? "") : rank.indexOf(scope.state);
    // What is wrong comes first; then what has most objects.
    const compare = (a: ScopeDetails, b: ScopeDetails) => { const x = value(a), y = value(b); return x < y ? -1 : x > y ? 1 : (b.objects ?? 0) - (a.objects ?? 0) || (a.kind < b.kind ? -1 : 1); };
    return some.sort((a, b) => compare(a, b) * (down ? -1 : 1));
  }, [member.details, text, by, down]);
  const columns: Column<ScopeDetails>[] = [
    { id: "kind", title: "Kind", width: 320, sortable: true, line: 1, render: (scope) => {
      const kind = findKind(scope.kind, kinds.value);
      return kind === undefined ? scope.kind : <a href={href("/explore", { q: `${kind.resource} member:${member.name}` })}>{scope.kind}</a>;
    }, text: (scope) => scope.kind },
    { id: "state", title: "State", width: 130, sortable: true, line: 1, render: (scope) => <StateMark state={scope.state} /> },
    { id: "objects", title: "Objects", width: 90, right: true, sortable: true, line: 2, render: (scope) => scope.state === "NotServed" ? <span class="dim">–</span> : count(scope.objects ?? 0) },
    { id: "bytes", title: "Memory", width: 90, right: true, sortable: true, line: 0, render: (scope) => scope.bytes === undefined ? <span class="dim">–</span> : bytes(scope.bytes) },
    { id: "proved", title: "Proved", width: 110, right: true, sortable: true, line: 2, describe: "How long ago a list or an audit has shown that this is what the member has", render: (scope) => scope.proved === undefined ? <span class="dim">not yet</span> : `${duration(seconds(scope.proved))} ago` },
    { id: "age", title: "Last contact", width: 110, right: true, line: 0, describe: "How old what is held may be", render: (scope) => scope.age === undefined || scope.age === "" ? <span class="dim">now</span> : `${duration(seconds(scope.age))} ago` },
    { id: "version", title: "Version", width: 200, line: 0, render: (scope) => scope.version ?? <span class="dim">–</span> },
    { id: "reason", title: "Cause", width: 360, line: 2, render: (scope) => scope.reason ?? "", text: (scope) => scope.reason ?? "" },
  ];
  return (
    <Table id="member.scopes" label="Kinds of the member" columns={columns} rows={rows} rowKey={(scope) => scope.kind} sort={{ by, down }} onSort={(sort) => setParams({ sort: sort === undefined ? null : (sort.down ? "-" : "") + sort.by }, { replace: true })}
      bar={<><FilterBox label="Filter kinds" placeholder="kind, state or cause  /" value={text} onInput={setText} />{many(rows.length, "kind")}</>}
      empty={<Empty title="No kind matches"><p>{many(member.details?.length ?? 0, "kind was", "kinds were")} looked at.</p></Empty>} />
  );
}

function ByPolicy({ violations, member }: { violations: Violations; member: string }) {
  const groups = [...violations.groups ?? []].sort((a, b) => severityRank(a.key[1] ?? "") - severityRank(b.key[1] ?? "") || b.violations - a.violations);
  if (groups.length === 0) return <Empty title="No violations"><p>No policy finds anything in this member, at revision {violations.revision}.{violations.synced ? "" : " Not all policies have seen all of it yet."}</p></Empty>;
  return (
    <ul class="bypolicy">{groups.map((group) => {
      const [policy = "", severity = "", state = ""] = group.key;
      return (
        <li key={group.key.join()}>
          <a class="bar" href={href("/violations", { member, policy, ...(state === "Known" ? {} : { state }) })}>
            <SeverityMark severity={severity} text={false} /><span class="cut grow">{shortPolicy(policy)}</span>
            {state === "Known" ? <b>{count(group.violations)}</b> : <StateMark state={state}>{state} for {count(group.subjects)}</StateMark>}
            {group.exempt > 0 && <span class="dim">{count(group.exempt)} exempt</span>}
          </a>
        </li>
      );
    })}</ul>
  );
}

function Trends({ member }: { member: string }) {
  const violations = useLive<Series>(withQuery("/query/v1/series", { member, metric: "violations", hours: 24, groupBy: "member" }));
  const deltas = useLive<Series>(withQuery("/query/v1/series", { member, metric: "deltas", hours: 24 }));
  const one = (title: string, series: Series) => {
    const lines = series.series.map((one) => one.values).filter(someKnown).map((values) => ({ name: title, values, colour: "accent" as const }));
    return <section key={title}><h2>{title}</h2>{lines.length === 0 ? <p class="dim">{noneOf(series, "None in the time that is known: since this server has started, 24 hours at most")}</p> : <Trend start={series.start} stepSeconds={series.stepSeconds} lines={lines} theme={theme.value} />}</section>;
  };
  return <><Shown live={violations} rows={4}>{(series) => one("Violations", series)}</Shown><Shown live={deltas} rows={4}>{(series) => one("Changes", series)}</Shown></>;
}

function Written({ member }: { member: string }) {
  const live = useLive<Actions>(withQuery("/query/v1/actions", { member, limit: 100 }));
  return <Shown live={live}>{(actions) => actions.items.length === 0
    ? <Empty title="Nothing was written"><p>There is no Action on an object of this member{(actions.hidden ?? 0) > 0 ? `; ${actions.hidden ?? 0} are not shown to you` : ""}.</p></Empty>
    : <ul class="bypolicy">{actions.items.map((action) => <li key={action.name}><a class="bar" href={href("/actions", { open: action.name })}><StateMark state={action.phase} /><span class="cut grow">{action.verb} {action.target.kind} {action.target.namespace}/{action.target.name} <span class="dim">{shortPolicy(action.policy)}</span></span><span class="dim">{action.startedAt === undefined ? "" : `${ago(action.startedAt)} ago`}</span></a></li>)}</ul>}</Shown>;
}
