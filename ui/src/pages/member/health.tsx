// How federator gets along with the member: connection, budget, errors and audits. Only who may list everything in it is told.
import type { ComponentChildren } from "preact";
import type { MemberError, MemberHealth, MemberInfo } from "../../data/types";
import { Forbidden, StateMark, Unknown, ago, bytes, count, duration, many, seconds, type Tone } from "../../ui";

function connectionTone(state: string): Tone {
  return state === "Connected" ? "ok" : "wrong";
}

export function Health({ member }: { member: MemberInfo }) {
  const h = member.health;
  if (h === undefined) return member.healthForbidden === undefined
    ? <Unknown title="Not known"><p>This server does not keep the connection to {member.name}.</p></Unknown>
    : <Forbidden missing={`${member.healthForbidden} in API group members.federator.dev, for ${member.name}`}><p>Errors and audits name objects of any kind: they are shown to who may list everything in the member.</p></Forbidden>;
  const b = h.budget, a = h.audit;
  return (
    <div class="scroll pad health">
      <Part title="Connection">
      <dt>State</dt><dd><StateMark state={h.state} tone={connectionTone(h.state)} />{h.reason !== undefined && ` ${h.reason}`} <span class="dim">for {ago(h.since)}</span>{h.message !== undefined && <p>{h.message}</p>}</dd>
      <dt>Last heard</dt><dd>{h.freshness === undefined ? <span class="hatched">never</span> : `${duration(seconds(h.freshness))} ago, of the kind that has waited longest`}</dd>
      {h.transport !== undefined && <><dt>Transport</dt><dd>net/http: {h.transport}</dd></>}
      </Part><Part title="Budget" note="a kind that would exceed it is OverBudget, and is not held">
      <dt>Objects</dt><dd><Meter n={b.objects} most={b.maxObjects} label="Objects of the budget">{count(b.objects)} of {count(b.maxObjects)}</Meter></dd>
      <dt>Memory</dt><dd><Meter n={b.bytes} most={b.maxBytes} label="Memory of the budget">{bytes(b.bytes)} of {bytes(b.maxBytes)}</Meter></dd>
      </Part><Part title="Errors">
      <dt>Now</dt><dd><Fault error={h.error} none="none" wrong /></dd>
      <dt>Last</dt><dd>{h.error !== undefined && h.lastError?.message === h.error.message ? <span class="dim">the same</span> : <Fault error={h.lastError} none="none since this server has started" />}</dd>
      </Part><Part title="Audits" note="what is held is compared with what the member lists">
      {a === undefined ? <><dt>Proof</dt><dd><span class="hatched">not known: nothing is kept up to date yet</span></dd></> : <>
        <dt>Oldest proof</dt><dd>{duration(seconds(a.oldest))} ago; of what policies read, {duration(seconds(a.oldestFirstTier))} ago {a.behind === true && <StateMark state="Stale">behind the interval</StateMark>}</dd>
        <dt>Not proved</dt><dd>{a.unaudited === undefined ? "none" : <StateMark state="Stale">{many(a.unaudited, "kind")} of before the restart: nothing is written to the member</StateMark>}</dd>
        <dt>Lost events</dt><dd>{a.lost === undefined ? "none since this server has started" : <StateMark state="Failed">{many(a.lost, "object")} differed, and {a.lost === 1 ? "was" : "were"} listed again</StateMark>}</dd>
        {a.lastLoss !== undefined && <><dt>Last loss</dt><dd>{a.lastLoss.kind}{a.lastLoss.namespace !== undefined && ` in ${a.lastLoss.namespace}`}: {Object.entries(a.lastLoss.differences).map(([cause, n]) => `${count(n)} ${cause}`).join(", ")} <span class="dim">{ago(a.lastLoss.time)} ago</span>{a.lastLoss.example !== undefined && <p><code>{a.lastLoss.example}</code></p>}</dd></>}
      </>}
    </Part></div>
  );
}

function Part({ title, note, children }: { title: string; note?: string; children: ComponentChildren }) {
  return <section class="section"><h2>{title}{note !== undefined && <span class="dim">{note}</span>}</h2><dl class="facts">{children}</dl></section>;
}

function Fault({ error, none, wrong = false }: { error: MemberError | undefined; none: string; wrong?: boolean }) {
  return error === undefined ? <>{none}</> : <><span class={wrong ? "wrong" : ""}>{error.message}</span> <span class="dim">{ago(error.time)} ago</span></>;
}

function Meter({ n, most, label, children }: { n: number; most: number; label: string; children: ComponentChildren }) {
  return <><meter min={0} max={most} high={most * 0.9} value={n} aria-label={label} /> {children} <span class="dim">{most > 0 ? `${Math.round(n / most * 100)} %` : ""}</span></>;
}

// HealthFact is the health in a line: what is wrong now.
export function HealthFact({ health: h }: { health: MemberHealth }) {
  return <><StateMark state={h.state} tone={connectionTone(h.state)} />{h.freshness !== undefined && <span class="dim">heard {duration(seconds(h.freshness))} ago</span>}</>;
}
