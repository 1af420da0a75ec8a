import { useMemo } from "preact/hooks";
import { address, go, param, setParams } from "../../app/location";
import { useLive } from "../../data/live";
import type { Policies, PolicyInfo } from "../../data/types";
import { commitHref, policyHref } from "../../pieces/links";
import { href } from "../../app/location";
import { CopyAs, Empty, Failed, FilterBox, Freshness, Loading, Lock, SeverityMark, StateMark, Table, count, duration, many, shortPolicy, type Column } from "../../ui";
import { each, keepPolicies, order, rate, share } from "./model";
import { One } from "./one";
import type { PageProps } from "../registry";

const path = "/query/v1/policies";

export default function PoliciesPage({ rest }: PageProps) {
  const name = rest[0];
  return name === undefined ? <All /> : <One name={name} />;
}

// Count is a number that leads to what it counts; a lock where the caller may not know it.
export function Count({ policy, n, of }: { policy: PolicyInfo; n: number | undefined; of: Record<string, string> }) {
  if (policy.withheld === true) return <span title="Withheld: it reads more of the fleet than you may"><Lock /><span class="sr">withheld</span></span>;
  if (n === undefined) return <span class="dim">–</span>;
  return n === 0 ? <span class="dim">0</span> : <a href={href("/violations", { policy: policy.name, ...of })}>{count(n)}</a>;
}

const columns: readonly Column<PolicyInfo>[] = [
  { id: "severity", title: "Severity", width: 104, sortable: true, render: (p) => <SeverityMark severity={p.severity} /> },
  { id: "name", title: "Policy", width: 220, sortable: true, render: (p) => <a href={policyHref(p.name)}>{shortPolicy(p.name)}</a>, text: (p) => p.title ?? p.name },
  { id: "title", title: "Title", width: 230, line: 0, render: (p) => p.title ?? "", text: (p) => p.title ?? "" },
  { id: "mode", title: "Mode", width: 82, sortable: true, line: 2, render: (p) => p.mode ?? <span class="dim">–</span> },
  { id: "state", title: "State", width: 110, line: 2, render: (p) => p.state === undefined ? <span class="dim">–</span> : <StateMark state={p.state} />, text: (p) => p.halted?.message ?? p.message ?? "" },
  { id: "violations", title: "Violations", width: 100, right: true, sortable: true, render: (p) => <Count policy={p} n={p.violations} of={{ exempt: "false", state: "Known" }} /> },
  { id: "unknown", title: "Not known", width: 96, right: true, sortable: true, line: 0, render: (p) => <Count policy={p} n={p.unknown} of={{ state: "Unknown" }} /> },
  { id: "exempt", title: "Exempt", width: 80, right: true, sortable: true, line: 0, render: (p) => <Count policy={p} n={p.exempt} of={{ exempt: "true" }} />, text: (p) => (p.exemptions ?? []).map((e) => `${e.reason}${e.expires === undefined ? "" : ` until ${e.expires}`}`).join("; ") },
  { id: "corrected", title: "Corrected", width: 94, right: true, line: 0, render: (p) => p.corrected === undefined ? <span class="dim">–</span> : p.corrected === 0 ? <span class="dim">0</span> : <a href={href("/actions", { policy: p.name, phase: "Succeeded" })}>{count(p.corrected)}</a> },
  { id: "cpu", title: "CPU", width: 72, right: true, sortable: true, line: 0, describe: "Of one core, in the last minutes", render: (p) => p.cost == null ? <span class="dim">–</span> : share(p.cost.cpuShare), text: (p) => p.cost == null ? "" : `in the last ${duration(p.cost.windowSeconds)}: ${each(p.cost)}` },
  { id: "rate", title: "Evaluations", width: 102, right: true, line: 0, render: (p) => p.cost == null ? <span class="dim">–</span> : rate(p.cost.evaluationsPerSecond) },
  { id: "source", title: "Source", width: 170, line: 0, render: (p) => p.source == null || p.source.name === "" ? <span class="dim">built in</span> : p.source.commit === undefined ? <span class="dim">{p.source.name}</span> : <a href={commitHref(p.source.name, p.source.commit)}>{p.source.name} @ {p.source.commit.slice(0, 8)}</a>, text: (p) => p.source?.file ?? "" },
];

function All() {
  const live = useLive<Policies>(path);
  const params = address.value.params, text = param("q");
  const by = params.get("sort") ?? "", down = params.get("down") === "true";
  const shown = useMemo(() => order(keepPolicies(live.value?.items ?? [], text), by, down), [live.value, text, by, down]);
  return (
    <div class="page">
      <div class="head">
        <h1>Policies</h1>
        <FilterBox label="Filter policies" placeholder="name, title, mode  /" value={text} onInput={(value) => setParams({ q: value }, { replace: true })} />
        <span class="grow" />
        <Freshness at={live.at} {...(live.value === undefined ? {} : { revision: live.value.revision, synced: live.value.synced, stale: live.value.stale })} />
        <CopyAs commands={{ kubectl: "kubectl get fleetpolicies", curl: path }} />
      </div>
      {live.value?.hubForbidden !== undefined && <p class="chips dim"><Lock /> Mode, state, limits and Plans are not shown: you lack <code>{live.value.hubForbidden}</code> on the hub.</p>}
      <div class="body">
        {live.value === undefined ? live.error === undefined ? <Loading rows={14} /> : <Failed status={live.error} /> : (
          <Table id="policies" label="Policies" columns={columns} rows={shown} rowKey={(p) => p.name} onOpen={(p) => go(policyHref(p.name))}
            {...(by === "" ? {} : { sort: { by, down } })} onSort={(sort) => setParams({ sort: sort?.by ?? null, down: sort?.down === true ? "true" : null }, { replace: true })}
            rowClass={(p) => (p.unknown ?? 0) > 0 || (p.errors ?? 0) > 0 ? "partly" : ""}
            bar={<span class="dim">{many(shown.length, "policy", "policies")}{text === "" ? "" : ` of ${count(live.value.items.length)}`}</span>}
            empty={text === "" ? <Empty title="No policies"><p>No policy is in effect, at revision {live.value.revision}. A FleetPolicy on the hub binds a package.</p></Empty> : <Empty title="No policy matches"><p>{many(live.value.items.length, "policy was", "policies were")} looked at.</p></Empty>} />
        )}
      </div>
    </div>
  );
}
