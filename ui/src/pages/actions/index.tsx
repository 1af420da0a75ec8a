import "./actions.css";
import "../violations/violations.css";
import { useMemo, useState } from "preact/hooks";
import { address, href, param, setParams } from "../../app/location";
import { withQuery } from "../../data/api";
import { useLast, useLive } from "../../data/live";
import type { Actions, ActionSummary, Halts, Policies, Violations } from "../../data/types";
import type { Sources } from "../../data/policytypes";
import { actionHref, commitHref, findingHref, policyHref, subjectText } from "../../pieces/links";
import { around } from "../../pieces/scale";
import { Timeline } from "../../pieces/timeline";
import { CopyAs, Empty, Facets, Failed, Freshness, Loading, StateMark, Table, Tabs, ago, count, many, shortPolicy, type Column } from "../../ui";
import { ActionDrawer } from "./action";
import { BulkDrawer } from "./bulk";
import { actionsPath, canRollBack, filters, inSpan, marksOf, spanOf, timeOf, waitingOf } from "./model";
import { Stops } from "./stops";
import { Waiting } from "./waiting";

export default function ActionsPage() {
  const policies = useLive<Policies>("/query/v1/policies");
  const waits = waitingOf(policies.value?.items ?? []);
  const tab = param("tab") || "written";
  return (
    <div class="page">
      <h1 class="sr">Actions</h1>
      <Tabs label="Actions" chosen={tab} onChoose={(id) => setParams({ tab: id === "written" ? null : id, open: null, bulk: null }, { replace: true })}
        tabs={[{ id: "written", title: "What was written" }, { id: "waiting", title: "What waits", n: policies.value === undefined || policies.value.hubForbidden !== undefined ? undefined : waits.length }, { id: "stops", title: "Stops" }]}>
        {tab === "written" && <Written />}
        {tab === "waiting" && <Waiting live={policies} />}
        {tab === "stops" && <Stops />}
      </Tabs>
    </div>
  );
}

const links = { action: actionHref, commit: commitHref, finding: findingHref, policy: policyHref };

const columns: readonly Column<ActionSummary>[] = [
  { id: "phase", title: "Phase", width: 118, render: (a) => <StateMark state={a.phase || "Pending"} />, text: (a) => a.message ?? "" },
  { id: "age", title: "Age", width: 62, right: true, line: 2, render: (a) => ago(a.startedAt ?? a.created ?? ""), text: (a) => a.startedAt ?? a.created ?? "" },
  { id: "policy", title: "Policy", width: 150, line: 2, render: (a) => <a href={policyHref(a.policy)}>{shortPolicy(a.policy)}</a>, text: (a) => a.policy },
  { id: "member", title: "Member", width: 190, line: 2, render: (a) => a.member, text: (a) => a.member },
  { id: "verb", title: "Verb", width: 64, line: 0, render: (a) => a.verb },
  { id: "target", title: "Target", width: 240, line: 1, render: (a) => <>{a.target.kind} {subjectText(a.target)}</>, text: (a) => `${a.target.kind ?? ""} ${subjectText(a.target)}` },
  { id: "why", title: "Why", width: 300, line: 0, render: (a) => a.reason !== undefined && a.reason !== "" ? <>{a.reason} {a.rollbackOf !== undefined && <span class="dim">(rollback)</span>}</> : a.violation ?? "", text: (a) => a.reason ?? a.violation ?? "" },
  { id: "commit", title: "Commit", width: 84, line: 0, render: (a) => a.commit === undefined ? "" : <code>{a.commit.slice(0, 8)}</code>, text: (a) => a.commit ?? "" },
  { id: "wave", title: "Wave", width: 56, hidden: true, right: true, render: (a) => a.wave ?? "" },
  { id: "name", title: "Name", width: 200, hidden: true, render: (a) => <code>{a.name}</code>, text: (a) => a.name },
];

function Written() {
  const params = address.value.params;
  const [limit, setLimit] = useState(500);
  const path = actionsPath(params, limit);
  const live = useLast(useLive<Actions>(path), actionsPath(params, 0));
  const sources = useLive<Sources>("/query/v1/sources");
  const halts = useLive<Halts>(withQuery("/query/v1/halts", { policy: params.getAll("policy"), since: param("since") || "168h" }));
  const fresh = useLive<Violations>(withQuery("/query/v1/violations", { policy: params.getAll("policy"), member: params.getAll("member"), firstSeenSince: "24h", limit: 500 }));
  const by = param("lanes") === "member" ? "member" as const : "policy" as const;
  const span = spanOf(params);
  const items = live.value?.items ?? [];
  const inside = useMemo(() => items.filter((action) => inSpan(action, span)), [items, span?.from, span?.to]);
  const { lanes, marks } = useMemo(() => marksOf({ actions: items, halts: halts.value?.items ?? [], sources: sources.value?.items ?? [], findings: fresh.value?.items ?? [] }, by, links), [items, by, halts.value, sources.value, fresh.value]);
  const view = useMemo(() => { // of what was done; violations are older
    const times = marks.filter((mark) => mark.kind !== "violation").map((mark) => mark.at);
    return times.length === 0 ? undefined : around(times, live.at);
  }, [marks]);
  const [narrowed, setNarrowed] = useState(false);
  const open = param("open"), bulk = param("bulk") === "true";
  const can = inside.filter(canRollBack);
  const facets = useMemo(() => (["policy", "phase", "member", "kind", "namespace"] as const).map((name) => {
    const counts = new Map<string, number>();
    for (const action of inside) { const value = name === "policy" ? action.policy : name === "phase" ? action.phase || "Pending" : name === "member" ? action.member : action.target[name] ?? ""; counts.set(value, (counts.get(value) ?? 0) + 1); }
    return { name, title: name.charAt(0).toUpperCase() + name.slice(1), chosen: params.getAll(name), values: [...counts].map(([value, n]) => ({ value, count: n, ...(name === "policy" ? { label: shortPolicy(value) } : {}) })).sort((a, b) => b.count - a.count || a.value.localeCompare(b.value)), truncated: live.value?.continue !== undefined };
  }), [inside, params, live.value]);
  const chips = filters.flatMap((name) => params.getAll(name).map((value) => ({ name, value })));
  return (
    <div class="written">
      <div class="head">
        <div class="bar" role="group" aria-label="Lanes of the timeline">{(["policy", "member"] as const).map((one) => <button key={one} type="button" aria-pressed={by === one} onClick={() => setParams({ lanes: one === "policy" ? null : one }, { replace: true })}>by {one}</button>)}</div>
        <button type="button" class="facets-toggle" aria-pressed={narrowed} onClick={() => setNarrowed(!narrowed)}>Filters</button>
        {span !== undefined && <button type="button" onClick={() => setParams({ from: null, to: null, bulk: null })}>{new Date(span.from).toLocaleTimeString("en-GB")} – {new Date(span.to).toLocaleTimeString("en-GB")} ✕</button>}
        {chips.map(({ name, value }) => <button key={`${name}=${value}`} type="button" onClick={() => setParams({ [name]: params.getAll(name).filter((v) => v !== value) })}>{name}: {name === "policy" ? shortPolicy(value) : value} ✕</button>)}
        {param("since") !== "" && <button type="button" onClick={() => setParams({ since: null })}>since {param("since")} ✕</button>}
        <button type="button" class={span === undefined ? "" : "danger"} disabled={can.length === 0} title={span === undefined ? "Of all that is listed; drag over the timeline to choose a span" : "Of the span that is chosen"} onClick={() => setParams({ bulk: "true", open: null })}>Roll back {span === undefined ? "" : "this span: "}{many(can.length, "correction")}…</button>
        <span class="grow" />
        <Freshness at={live.at} stale={live.value?.stale === true || halts.value?.stale === true} />
        <CopyAs commands={{ kubectl: "kubectl get actions", curl: path }} />
      </div>
      {live.value === undefined ? live.error === undefined ? <Loading rows={14} /> : <Failed status={live.error} /> : <>
        {(live.value.hidden ?? 0) > 0 && <p class="chips dim">{many(live.value.hidden ?? 0, "Action")} on objects that you may not read {live.value.hidden === 1 ? "is" : "are"} not listed.</p>}
        {halts.value === undefined && halts.error !== undefined && <p class="chips dim">Halts are not shown: {halts.error.message}</p>}
        {halts.value?.older === true && <p class="chips dim">Older halts may be missing: of each policy the last 50 beginnings and ends are kept.</p>}
        {lanes.length > 0 && <div class="axis"><Timeline marks={marks} lanes={lanes} now={live.at} {...(view === undefined ? {} : { view })} {...(span === undefined ? {} : { span })} label="Actions"
          onSpan={(next) => setParams({ from: next === undefined ? null : new Date(next.from).toISOString(), to: next === undefined ? null : new Date(next.to).toISOString() }, { replace: true })} /></div>}
        <div class="body">
          <h2 class="sr">Filters</h2>
          <Facets facets={facets} open={narrowed} onChoose={(name, values) => { setParams({ [name]: values, open: null }); setNarrowed(false); }} />
          <Table id="actions" label="Actions" columns={columns} rows={inside} rowKey={(action) => action.name} open={open} onOpen={(action) => setParams({ open: action.name, bulk: null }, { replace: open !== "" })}
            {...(live.value.total === undefined || span !== undefined ? {} : { total: live.value.total })} {...(live.value.continue !== undefined && limit < 5000 && live.path === path ? { onEnd: () => setLimit(Math.min(5000, limit * 2)) } : {})}
            bar={<span class="dim">{many(inside.length, "Action")}{span === undefined ? "" : ` of ${count(items.length)}, in the span`}</span>}
            empty={<Empty title="No Actions"><p>{chips.length > 0 || span !== undefined ? "None matches the filters. " : "Nothing was written to objects that you may read, as far as Actions are kept. "}<a href={href("/policies")}>See what policies would write</a></p></Empty>} />
          {open !== "" && <ActionDrawer key={open} name={open} />}
          {bulk && open === "" && <BulkDrawer actions={inside} all={items} hidden={live.value.hidden ?? 0} filtered={chips.some(({ name }) => name !== "policy")} whole={live.value.continue === undefined || (span !== undefined && items.some((action) => timeOf(action) < span.from))} />}
        </div>
      </>}
    </div>
  );
}
