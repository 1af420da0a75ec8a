import "../violations/violations.css";
import { useMemo } from "preact/hooks";
import { href, param, setParams } from "../../app/location";
import { theme } from "../../app/theme";
import { withQuery } from "../../data/api";
import { useLive } from "../../data/live";
import { noneOf } from "../../data/series";
import type { Policies, PolicyInfo, Series, Violations } from "../../data/types";
import { commitHref, memberHref } from "../../pieces/links";
import { Rego } from "../../pieces/rego";
import { Version } from "../../pieces/rollout";
import { Trend } from "../../pieces/series";
import { Yaml } from "../../pieces/yaml";
import { CopyAs, Failed, Freshness, Loading, Lock, SeverityMark, StateMark, Tabs, ago, count, duration, many, shortPolicy } from "../../ui";
import { SuspendForm } from "../actions/suspend";
import { Count } from "./index";
import { total } from "../../pieces/sparkline";
import { each, micros, share } from "./model";

// One is the page of one policy.
export function One({ name }: { name: string }) {
  const path = withQuery("/query/v1/policies", { policy: name });
  const live = useLive<Policies>(path);
  const policy = live.value?.items[0];
  const tab = param("tab") || "overview";
  return (
    <div class="page">
      <div class="head">
        <a href={href("/policies")}>Policies</a><span class="dim" aria-hidden="true">/</span><h1 class="cut" title={name}>{shortPolicy(name)}</h1>
        {policy !== undefined && <SeverityMark severity={policy.severity} />}
        {policy?.state !== undefined && <StateMark state={policy.state} />}
        <span class="grow" />
        <Freshness at={live.at} {...(live.value === undefined ? {} : { revision: live.value.revision, synced: live.value.synced, stale: live.value.stale })} />
        <CopyAs commands={{ kubectl: `kubectl get fleetpolicy ${name} -o yaml`, federator: `federator violations --policy '${name}'`, curl: path }} />
      </div>
      {policy === undefined ? live.error === undefined ? live.value === undefined ? <Loading /> : <div class="state"><h3>There is no such policy</h3><p>Looked at revision {live.value.revision}.</p></div> : <Failed status={live.error} /> : (
        <div class="scroll"><Tabs label="Policy" chosen={tab} onChoose={(id) => setParams({ tab: id === "overview" ? null : id }, { replace: true })}
          tabs={[{ id: "overview", title: "Overview" }, { id: "members", title: "By member" }, { id: "rego", title: "Rego" }, { id: "binding", title: "Binding" }]}>
          <div class="pad">
            {tab === "overview" && <Overview policy={policy} {...(live.value?.hubForbidden === undefined ? {} : { forbidden: live.value.hubForbidden })} />}
            {tab === "members" && <ByMember policy={policy} />}
            {tab === "rego" && <Source policy={policy} />}
            {tab === "binding" && <Binding policy={policy} />}
          </div>
        </Tabs></div>
      )}
    </div>
  );
}

function Overview({ policy: p, forbidden }: { policy: PolicyInfo; forbidden?: string }) {
  return (
    <>
      {p.title !== undefined && p.title !== "" && <p class="message">{p.title}</p>}
      {p.description !== undefined && <p>{p.description}</p>}
      {p.withheld === true && <p><Lock /> What it finds is withheld: it reads more of the fleet than you may.</p>}
      {p.halted != null && <section class="section" role="note"><h2><StateMark state="Halted">Halted {p.halted.reason}</StateMark> {p.halted.since !== undefined && <span class="dim">for {ago(p.halted.since)}</span>}</h2><p class="message">{p.halted.message}</p><a href={href("/actions", { tab: "waiting", policy: p.name })}>See what waits</a></section>}
      <Version of={p.fleetPolicy} />
      {(p.plans ?? []).filter((plan) => plan.state === "Waiting" && plan.purpose !== "Halt").map((plan) => <p key={plan.name}><a href={href("/actions", { tab: "waiting", policy: p.name, plan: plan.name })}>Plan {plan.name} waits for approval</a></p>)}
      <section class="section"><dl class="facts">
        <dt>Violations</dt><dd><Count policy={p} n={p.violations} of={{ exempt: "false", state: "Known" }} />{p.subjects !== undefined && <span class="dim"> of {many(p.subjects, p.subject === "member" ? "member" : p.subject === "view" ? "key" : "object")}</span>}</dd>
        <dt>Not known</dt><dd><Count policy={p} n={p.unknown} of={{ state: "Unknown" }} /></dd>
        <dt>Failed</dt><dd><Count policy={p} n={p.errors} of={{ state: "Error" }} /></dd>
        <dt>Exempt</dt><dd><Count policy={p} n={p.exempt} of={{ exempt: "true" }} />{(p.exemptions ?? []).length > 0 && <ul class="plainlist">{(p.exemptions ?? []).map((e, i) => <li key={i}>{e.reason} {e.expires === undefined ? <span class="dim">without end</span> : <span class={Date.parse(e.expires) < Date.now() ? "wrong" : "dim"}>until {e.expires}</span>}</li>)}</ul>}</dd>
        <dt>Mode</dt><dd>{p.mode ?? <span class="dim">not shown{forbidden === undefined ? "" : `: ${forbidden}`}</span>}{p.message !== undefined && p.message !== "" && <span class="dim"> {p.message}</span>}</dd>
        <dt>Corrected</dt><dd>{p.corrected === undefined ? <span class="dim">–</span> : <a href={href("/actions", { policy: p.name, phase: "Succeeded" })}>{count(p.corrected)}</a>}</dd>
        <dt>Reads</dt><dd>{(p.kinds ?? []).map((kind) => kind === "*" ? <span key={kind} class="pill">any kind</span> : <a key={kind} class="pill" href={href("/explore", { q: kind })}>{kind}</a>)}</dd>
        <dt>Cost</dt><dd>{p.cost == null ? <span class="dim">not shown to who may not read all that it evaluates, or not known yet</span> : `${share(p.cost.cpuShare)} of a core, ${each(p.cost)}, in the last ${duration(p.cost.windowSeconds)}`}<Dearest policy={p} /></dd>
        <dt>Source</dt><dd>{p.source == null || p.source.name === "" ? "built in" : <>{p.source.commit === undefined ? p.source.name : <a href={commitHref(p.source.name, p.source.commit)}>{p.source.name} @ {p.source.commit.slice(0, 8)}</a>} <code>{p.source.file}</code></>}</dd>
        {p.tests !== undefined && <><dt>Tests</dt><dd><Tests tests={p.tests} {...(p.source?.commit === undefined ? {} : { commit: p.source.commit })} /></dd></>}
        {(p.quarantines ?? []).length > 0 && <><dt>Quarantined</dt><dd><ul class="plainlist hatched">{(p.quarantines ?? []).map((q) => <li key={q.member}><a href={memberHref(q.member)}>{q.member}</a> {q.reason} <span class="dim">until {q.until}</span></li>)}</ul></dd></>}
      </dl></section>
      {p.withheld !== true && <Trends name={p.name} />}
      {p.mode !== undefined && p.mode !== "Observe" && <SuspendForm policy={p} />}
    </>
  );
}

// Dearest are the lines that take most, with how much of an evaluation.
function Dearest({ policy: p }: { policy: PolicyInfo }) {
  const rules = p.cost?.rules ?? [];
  if (p.cost == null) return null;
  if (rules.length === 0) return <p class="dim">By line: not known yet, as too little was evaluated.</p>;
  return (
    <ul class="plainlist" aria-label="Lines that take most">{rules.map((r) => {
      const shown = (p.rego ?? []).some((file) => file.file === r.file), at = `${r.file.replace(/^.*\//, "")}:${r.line}`;
      return <li key={r.file + r.line}><meter min={0} max={1} value={r.share} aria-label="Part of the time" /> {share(r.share)} <span class="dim">{micros(r.micros)}</span> {shown ? <a class="mono" href={href(`/policies/${encodeURIComponent(p.name)}`, { tab: "rego", file: r.file, line: String(r.line) })}>{at}</a> : <code>{r.file}:{r.line}</code>} <span class="dim">{r.rule}</span></li>;
    })}<li class="dim">from {many(p.cost.samples ?? 0, "traced evaluation")}: lines that are cheap and evaluated often look dearer than they are</li></ul>
  );
}

function Tests({ tests, commit }: { tests: { rego: number; by?: string }; commit?: string }) {
  const n = many(tests.rego, "Rego test");
  if (tests.by === undefined) return <span class="hatched">{n}; nothing has run them here: this source passes no gates</span>;
  if (tests.rego === 0) return <>none</>;
  return <StateMark state="Succeeded">{n} passed {tests.by === "build" ? "when federator was built" : commit === undefined ? "before the commit became active" : `at ${commit.slice(0, 8)}`}</StateMark>;
}

function Trends({ name }: { name: string }) {
  const found = useLive<Series>(withQuery("/query/v1/series", { policy: name, metric: "violations", hours: 24 }));
  const unknown = useLive<Series>(withQuery("/query/v1/series", { policy: name, metric: "unknown", hours: 24 }));
  const lines = useMemo(() => [
    { name: "violations", values: total(found.value?.series ?? []), colour: "critical" as const }, { name: "not known", values: total(unknown.value?.series ?? []), colour: "unknown" as const },
  ].filter((line) => line.values.length > 0), [found.value, unknown.value]);
  return (
    <section class="section"><h2>Last 24 hours <span class="dim">a gap is not known, as after a restart</span></h2>
      {found.value === undefined ? found.error === undefined ? <Loading rows={3} /> : <p class="dim">{found.error.code === 403 ? "Shown only to who may read all that it counts." : found.error.message}</p>
        : lines.length === 0 ? <p class="dim">{noneOf(found.value, "None whenever they were counted in the last 24 hours, every 5 minutes")}</p> : <Trend start={found.value.start} stepSeconds={found.value.stepSeconds} lines={lines} theme={theme.value} />}
    </section>
  );
}

function ByMember({ policy }: { policy: PolicyInfo }) {
  const live = useLive<Violations>(policy.withheld === true ? null : withQuery("/query/v1/violations", { policy: policy.name, groupBy: ["member", "state"] }));
  if (policy.withheld === true) return <p><Lock /> Withheld: it reads more of the fleet than you may.</p>;
  if (live.value === undefined) return live.error === undefined ? <Loading /> : <Failed status={live.error} />;
  const members = new Map<string, { violations: number; exempt: number; unknown: number; errors: number }>();
  for (const group of live.value.groups ?? []) {
    const [member = "", state = ""] = group.key;
    const one = members.get(member) ?? { violations: 0, exempt: 0, unknown: 0, errors: 0 };
    one.violations += group.violations;
    one.exempt += group.exempt;
    if (state === "Unknown") one.unknown += group.subjects;
    if (state === "Error") one.errors += group.subjects;
    members.set(member, one);
  }
  if (members.size === 0) return <p>It finds nothing in any member that you may see, at revision {live.value.revision}.</p>;
  const cell = (n: number, member: string, of: Record<string, string>) => n === 0 ? <span class="dim">0</span> : <a href={href("/violations", { policy: policy.name, member: [member], ...of })}>{count(n)}</a>;
  return (
    <div class="fielddiff-box"><table class="fielddiff">
      <thead><tr><th scope="col">Member</th><th scope="col" class="num">Violations</th><th scope="col" class="num">Exempt</th><th scope="col" class="num">Not known</th><th scope="col" class="num">Failed</th></tr></thead>
      <tbody>{[...members].sort((a, b) => b[1].violations - a[1].violations || a[0].localeCompare(b[0])).map(([member, n]) => (
        <tr key={member}><th scope="row">{member === "" ? "(no single member)" : <a href={memberHref(member)}>{member}</a>}</th>
          <td class="num">{cell(n.violations, member, { exempt: "false" })}</td><td class="num">{cell(n.exempt, member, { exempt: "true" })}</td>
          <td class={n.unknown > 0 ? "num hatched" : "num"}>{cell(n.unknown, member, { state: "Unknown" })}</td><td class="num">{cell(n.errors, member, { state: "Error" })}</td></tr>
      ))}</tbody>
    </table></div>
  );
}

function Source({ policy }: { policy: PolicyInfo }) {
  const files = policy.rego ?? [];
  const line = Number(param("line")) || undefined;
  if (files.length === 0) return <p><Lock /> The source is shown to who may see what the policy finds, and reads any member.</p>;
  return <>{files.map((file) => <Rego key={file.file} file={file.file} text={file.text} {...(line === undefined || (param("file") || file.file) !== file.file ? {} : { line })} />)}</>;
}

function Binding({ policy }: { policy: PolicyInfo }) {
  const has = policy.parameters !== undefined && policy.parameters !== null && Object.keys(policy.parameters).length > 0;
  return (
    <>
      <section class="section"><h2>Parameters</h2>{has ? <Yaml value={policy.parameters} label="Parameters" /> : <p class="dim">None is set: the defaults of the package apply, or you may not see them.</p>}</section>
      <section class="section"><h2>FleetPolicy</h2>{policy.fleetPolicy == null ? <p class="dim">None that you may see: it is bound by configuration, or you lack <code>list fleetpolicies.federator.dev</code>.</p> : <Yaml value={policy.fleetPolicy} label="FleetPolicy" folded={["/metadata/managedFields", "/status"]} />}</section>
      {policy.corrected !== undefined && policy.corrected > 0 && <p><a href={href("/actions", { policy: policy.name, phase: "Succeeded" })}>What it has corrected</a></p>}
    </>
  );
}
