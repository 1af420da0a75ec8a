import "../../style/summary.css";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { go, href, param, setParams } from "../../app/location";
import { theme } from "../../app/theme";
import { useLive } from "../../data/live";
import type { MemberInfo, MemberList, Violations } from "../../data/types";
import { Matrix } from "../../pieces/matrix";
import { CopyAs, Empty, Failed, FilterBox, Freshness, Loading, count, many, shortPolicy } from "../../ui";
import { MemberTable } from "./members";
import { findingsPath, groupsBy, labelsOf, matches, tallies, type Findings } from "./model";
import { Summary } from "./summary";
import { Tiles } from "./tiles";

const views = [["table", "Table"], ["tiles", "Tiles"], ["matrix", "Matrix"]] as const;
const membersPath = "/query/v1/members?limit=1000";

export default function FleetPage() {
  const members = useLive<MemberList>(membersPath);
  const totals = useLive<MemberList>("/query/v1/members?summary=true");
  const violations = useLive<Violations>(findingsPath);
  const findings = useMemo(() => (violations.value === undefined ? undefined : tallies(violations.value)), [violations.value]);
  const view = param("view") || "table";
  const by = param("by"), text = param("filter"), state = param("show");
  const all = members.value?.items ?? [];
  const some = useMemo(() => all.filter((member) => matches(member, { text, state })), [all, text, state]);
  const labels = useMemo(() => labelsOf(all), [all]);
  const tools = (
    <>
      <div class="bar" role="group" aria-label="View">{views.map(([id, title]) => <button key={id} type="button" aria-pressed={view === id} onClick={() => setParams({ view: id === "table" ? null : id })}>{title}</button>)}</div>
      <FilterBox label="Filter members" placeholder="name or label=value  /" value={text} onInput={(value) => setParams({ filter: value }, { replace: true })} />
      {view === "tiles" && labels.length > 0 && (
        <label class="bar">grouped by <select value={by} onChange={(event) => setParams({ by: event.currentTarget.value })}><option value="">nothing</option>{labels.map((label) => <option key={label}>{label}</option>)}</select></label>
      )}
      {state !== "" && <button type="button" onClick={() => setParams({ show: null })} title="Show all">{state === "notSynced" ? "not fresh" : state} ✕</button>}
      <span class="grow" />
      <Freshness at={members.at} {...(totals.value?.summary === undefined ? {} : { members: totals.value.summary.members })} {...(members.value === undefined ? {} : { revision: members.value.revision })} />
      <CopyAs commands={{ kubectl: `kubectl --context fleet get --raw '${view === "matrix" ? findingsPath : membersPath}'`, curl: view === "matrix" ? findingsPath : membersPath }} />
    </>
  );
  return (
    <div class="page">
      <Summary totals={totals} violations={violations} findings={findings} />
      {view !== "table" && <div class="head fleet-tools">{tools}</div>}
      <div class="body">{members.value === undefined
        ? members.error === undefined ? <Loading rows={12} /> : <Failed status={members.error} />
        : <View view={view} tools={tools} some={some} all={all} list={members.value} by={by} findings={findings} violations={violations.value} failed={violations.error?.message} />}</div>
    </div>
  );
}

interface ViewProps {
  view: string;
  tools: ComponentChildren;
  some: MemberInfo[];
  all: MemberInfo[];
  list: MemberList;
  by: string;
  findings: Findings | undefined;
  violations: Violations | undefined;
  failed: string | undefined;
}

function View({ view, tools, some, all, list, by, findings, violations, failed }: ViewProps) {
  if (all.length === 0) return <Empty title="No members"><p>The fleet has no member, or none of which you may read anything, at revision {list.revision}. Clusters on the hub and contexts become members (<code>sources</code>); a Role or ClusterRole in the API group <code>members.federator.dev</code> lets you read them.</p></Empty>;
  const more = list.continue === undefined || list.continue === "" ? null : <p class="dim note">The first {count(all.length)} members are shown; a filter does not find the others.</p>;
  if (view === "matrix") return <div class="scroll pad">{findings === undefined ? failed === undefined ? <Loading /> : <p class="wrong">{failed}</p> : <FleetMatrix findings={findings} some={some} violations={violations} />}</div>;
  const none = <Empty title="No member matches"><p>{many(all.length, "member was", "members were")} looked at, at revision {list.revision}. <button type="button" class="link" onClick={() => setParams({ filter: null, show: null })}>Show all</button></p></Empty>;
  if (view === "tiles") return some.length === 0 ? none : <div class="scroll">{more}<Tiles groups={groupsBy(some, by)} label={by} findings={findings} /></div>;
  return <MemberTable members={some} findings={findings} empty={none} bar={<>{tools}{more}</>} />;
}

function FleetMatrix({ findings, some, violations }: { findings: Findings; some: MemberInfo[]; violations: Violations | undefined }) {
  const data = useMemo(() => ({
    policies: [...findings.byPolicy].map(([name, { severity }]) => ({ name, label: shortPolicy(name), severity })),
    members: some.map((member) => member.name),
    cells: findings.cells,
  }), [findings, some]);
  const elsewhere = findings.byMember.get("");
  const withheld = violations?.withheld?.length ?? 0;
  return (
    <>
      {some.length === 0 ? <Empty title="No member matches"><p><button type="button" class="link" onClick={() => setParams({ filter: null, show: null })}>Show all</button></p></Empty> : data.policies.length === 0
        ? <Empty title="No violations"><p>No policy finds anything in {many(some.length, "member")}, at revision {violations?.revision}.</p></Empty>
        : <Matrix data={data} theme={theme.value} table={href("/violations", { by: ["policy", "member"] })} onPick={(policy, member) => go(href("/violations", { policy, member }))} />}
      {elsewhere !== undefined && elsewhere.violations > 0 && <p class="dim"><a href={href("/violations", { member: [""], exempt: "false" })}>{many(elsewhere.violations, "violation")}</a> of subjects that are in no single member are not in the matrix.</p>}
      {withheld > 0 && <p class="dim">{many(withheld, "policy", "policies")} withheld: you may not read all that they read.</p>}
      {violations?.truncated === true && <p class="wrong">There are more groups than the server gives: the matrix is not complete.</p>}
    </>
  );
}
