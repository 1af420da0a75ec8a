import { href } from "../../app/location";
import { useLive, type Live } from "../../data/live";
import { rateNow } from "../../data/series";
import { session } from "../../data/session";
import type { Sources } from "../../data/policytypes";
import type { Actions, MemberList, Policies, Series, Stops, Violations } from "../../data/types";
import { SeverityMark, StateMark, ToneShape, bytes, count, many, severities } from "../../ui";
import { byWhom, waitingOf } from "../actions/model";
import { heldOf, notReadyOf, verdict, type Findings } from "./model";

// Summary answers "is anything wrong?" first, and then with figures of which each leads to what it counts.
export function Summary({ totals, violations, findings }: { totals: Live<MemberList>; violations: Live<Violations>; findings: Findings | undefined }) {
  const hub = session.value?.hub === true;
  const policies = useLive<Policies>(hub ? "/query/v1/policies" : null);
  const actions = useLive<Actions>(hub ? "/query/v1/actions?since=24h&limit=1" : null);
  const sources = useLive<Sources>(hub ? "/query/v1/sources" : null);
  const stops = useLive<Stops>(hub ? "/query/v1/stops" : null);
  const deltas = useLive<Series>("/query/v1/series?metric=deltas&hours=1");
  const rate = deltas.value === undefined ? undefined : rateNow(deltas.value);
  const sum = totals.value?.summary;
  const waits = waitingOf(policies.value?.items ?? []); // as the page counts them
  const halts = waits.filter((wait) => wait.halt !== ""), waiting = waits.filter((wait) => wait.halt === "");
  const held = heldOf(policies.value?.items ?? []), notReady = notReadyOf(sources.value?.items ?? []);
  const all = findings?.all;
  const answered = (live: Live<unknown>) => live.value !== undefined || live.error !== undefined;
  const known = sum !== undefined && all !== undefined && (!hub || answered(policies) && answered(sources));
  const unseen = !hub ? [] : [
    ...(policies.value === undefined || policies.value.hubForbidden !== undefined ? ["halts and plans"] : []),
    ...(sources.value === undefined && sources.error?.code !== 404 ? ["sources"] : []),
    ...(policies.value?.stale === true ? ["what the hub has now: it is out of reach"] : []),
  ];
  const said = known ? verdict({
    members: sum.members, notSynced: sum.members - sum.synced, halts: halts.length, waiting: waiting.length, held: held.length, sources: notReady.length,
    violations: all.violations, unknown: all.unknown, errors: all.errors, failed: violations.value?.failed?.length ?? 0,
    withheld: violations.value?.withheld?.length ?? 0, truncated: violations.value?.truncated === true, unseen,
  }) : undefined;
  const stopped = stops.value?.items ?? [];
  const synced = violations.value?.synced;
  return (
    <section class="summary" aria-label="Is anything wrong">
      <h1>{said === undefined ? <span class="dim">{totals.error?.message ?? violations.error?.message ?? "Looking …"}</span> : <><ToneShape tone={said.tone} size={14} /> {said.text}</>}
        {synced === false && sum?.members !== 0 && <span class="dim"> · policies have not seen all members yet</span>}</h1>
      {stopped.length > 0 && <p class="stopped"><a href={href("/actions", { tab: "stops" })}>Writes are stopped</a>: {stopped.map((stop) => `${stop.scope === "" ? "all" : `${stop.scope} ${stop.name ?? ""}`} ${byWhom(stop)}`).join("; ")}</p>}
      <dl>
        <div><dt>Members</dt><dd>{sum === undefined ? <Missing live={totals} /> : <>
          <a href={href("/")}><b>{count(sum.synced)}</b> of {count(sum.members)} fresh</a>
          {Object.entries(sum.byState).filter(([state]) => state !== "Synced" && state !== "NotServed").map(([state, n]) => <a key={state} href={href("/", { show: state })} title={`${many(n, "member")} with a kind that is ${state}`}><StateMark state={state}>{count(n)} {state}</StateMark></a>)}
        </>}</dd></div>
        <div><dt>Violations</dt><dd>{all === undefined ? <Missing live={violations} /> : <>
          {all.violations === 0 && <span>none</span>}
          {severities.map((severity) => (all.bySeverity[severity] ?? 0) > 0 && <a key={severity} href={href("/violations", { severity, exempt: "false" })} title={`${severity} severity`}><SeverityMark severity={severity} text={false} /> {count(all.bySeverity[severity] ?? 0)}</a>)}
          {all.errors > 0 && <a class="wrong" href={href("/violations", { state: "Error" })}><StateMark state="Error">{count(all.errors)} failed</StateMark></a>}
          {all.unknown > 0 && <a href={href("/violations", { state: "Unknown" })}><StateMark state="Unknown">{count(all.unknown)} not known</StateMark></a>}
          {all.exempt > 0 && <a class="dim" href={href("/violations", { exempt: "true" })}>{count(all.exempt)} exempt</a>}
        </>}</dd></div>
        {hub && <div><dt>Waiting</dt><dd>{policies.value === undefined ? <Missing live={policies} /> : policies.value.hubForbidden !== undefined ? <span class="dim" title={policies.value.hubForbidden}>not allowed</span> : <>
          <a href={href("/actions", { tab: "waiting" })} class={halts.length > 0 ? "wrong" : ""}>{many(halts.length, "halt")}</a>
          <a href={href("/actions", { tab: "waiting" })}>{many(waiting.length, "plan")}</a>
          {held.length > 0 && <a class="wrong" href={href("/policies", { q: "enforce held" })} title={held.map((policy) => `${policy.name}: ${policy.message ?? ""}`).join("\n")}>{many(held.length, "policy", "policies")} held</a>}
        </>}</dd></div>}
        {hub && sources.error?.code !== 404 && <div><dt>Sources</dt><dd>{sources.value === undefined ? <Missing live={sources} /> : notReady.length === 0 ? <a href={href("/sources")}>{sources.value.items.length === 0 ? "none" : `${many(sources.value.items.length, "source")} ready`}</a>
          : notReady.map((source) => <a key={source.metadata.name} class="wrong" href={href(`/sources/${encodeURIComponent(source.metadata.name)}`)}>{source.metadata.name} is not ready</a>)}</dd></div>}
        {hub && <div><dt>Written in 24 h</dt><dd>{actions.value === undefined ? <Missing live={actions} /> : <a href={href("/actions", { since: "24h" })}>{count(actions.value.total ?? actions.value.items.length)}</a>}</dd></div>}
        <div><dt>Objects</dt><dd>{sum === undefined ? <Missing live={totals} /> : <><a href={href("/explore")}>{count(sum.objects)}</a> <span class="dim">in {bytes(sum.bytes)}</span></>}</dd></div>
        {rate !== undefined && <div><dt>Changes</dt><dd title="Of objects, in the last five minutes that are known">{rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second</dd></div>}
      </dl>
    </section>
  );
}

function Missing<T>({ live }: { live: Live<T> }) {
  if (live.error === undefined) return <span class="dim">…</span>;
  return <span class="dim" title={live.error.message}>{live.error.code === 403 ? "not allowed" : live.error.code === 404 ? "not offered here" : "not known"}</span>;
}
