import { useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { href, param, setParams } from "../../app/location";
import { send, withQuery } from "../../data/api";
import { useLast, useLive, type Live } from "../../data/live";
import type { PlanInfo, PlanList } from "../../data/policytypes";
import type { KubeObject, Policies, Violations } from "../../data/types";
import { policyHref } from "../../pieces/links";
import { ReasonForm, Said, type Done } from "../../pieces/reasonform";
import { CopyAs, Drawer, Empty, Failed, Freshness, Loading, Lock, StateMark, ago, count, many, shortPolicy } from "../../ui";
import { remediesOf, waitingOf, type Wait } from "./model";
import { Targets } from "./targets";

export function Waiting({ live }: { live: Live<Policies> }) {
  const only = param("policy"), wanted = param("wait"), plan = param("plan");
  const last = useRef<Wait | undefined>(undefined);
  if (live.value === undefined) return live.error === undefined ? <Loading /> : <Failed status={live.error} />;
  if (live.value.hubForbidden !== undefined) return <div class="state"><h3><Lock /> You may not see what waits</h3><p>Missing on the hub: <code>{live.value.hubForbidden}</code></p></div>;
  const all = waitingOf(live.value.items).filter((wait) => only === "" || wait.policy.name === only);
  const open = all.find((wait) => keyOf(wait) === wanted) ?? all.find((wait) => plan !== "" && wait.plan === plan);
  if (open !== undefined) last.current = open;
  // What has been let pass waits no more, but stays open for who reads it, or has just let it pass.
  const kept = open ?? (last.current !== undefined && (wanted !== "" ? keyOf(last.current) === wanted : plan !== "" && last.current.plan === plan) ? last.current : undefined);
  return (
    <div class="split">
      <div class="scroll pad">
        <div class="bar">{only !== "" && <button type="button" onClick={() => setParams({ policy: null })}>policy: {shortPolicy(only)} ✕</button>}<span class="grow" /><Freshness at={live.at} revision={live.value.revision} stale={live.value.stale} /><CopyAs commands={{ kubectl: "kubectl get plans", federator: "federator actions plan <policy>", curl: "/query/v1/policies" }} /></div>
        {kept === undefined && (wanted !== "" || plan !== "") && <p class="dim" role="status">What this address names waits no more, or you may not see it.</p>}
        {all.length === 0 && <Empty title="Nothing waits"><p>No halt and no Plan of {many(live.value.items.length, "policy", "policies")} waits for a person, at revision {live.value.revision}.</p></Empty>}
        {all.map((wait) => (
          <section key={keyOf(wait)} class={open === wait ? "waiting open" : "waiting"}>
            <h2><StateMark state={wait.halt === "" ? "Waiting" : "Halted"}><a href={policyHref(wait.policy.name)} title={wait.policy.name}>{shortPolicy(wait.policy.name)}</a></StateMark> <span>{wait.title}</span>{wait.since !== undefined && <span class="dim">for {ago(wait.since)}</span>}</h2>
            {wait.policy.halted?.message !== undefined && wait.halt !== "" && <p class="message">{wait.policy.halted.message}</p>}
            <button type="button" aria-expanded={open === wait} onClick={() => setParams({ wait: keyOf(wait), plan: null })}>See what would be let pass</button>
          </section>
        ))}
      </div>
      {kept !== undefined && <Pass key={keyOf(kept)} wait={kept} gone={open === undefined} />}
    </div>
  );
}

function keyOf(wait: Wait): string {
  return `${wait.policy.name}:${wait.halt === "" ? wait.plan : wait.halt}`;
}

type Approved = { halt: string } | { plan: string } | { rollback: string };
type Form = (verb: string, what: Approved, blocked?: string) => ComponentChildren;

const over = "It waits no more: it has been let pass, or has ended.";

// Pass shows exactly what would be let pass, and lets it.
function Pass({ wait, gone }: { wait: Wait; gone: boolean }) {
  const [done, setDone] = useState<Done | undefined>(undefined);
  const [limit, setLimit] = useState(100);
  const path = withQuery(`/query/v1/plans/${encodeURIComponent(wait.policy.name)}`, { plan: wait.plan === "" ? undefined : wait.plan, limit });
  const live = useLast(useLive<PlanList>(path), keyOf(wait));
  const plan = live.value?.plans?.find((one) => wait.plan !== "" ? one.name === wait.plan : wait.halt !== "" && one.halt === wait.halt);
  const form = (verb: string, what: Approved, blocked = "") => done === undefined && <ReasonForm key={JSON.stringify(what)} stick verb={verb} blocked={gone ? over : blocked} send={async (reason) => {
    const passed = await approve(wait.policy.name, what, reason);
    setDone(passed); // here, as the form is gone with what it was about
    return passed;
  }} />;
  const close = () => setParams({ wait: null, plan: null });
  return (
    <Drawer id="waiting" title={`${shortPolicy(wait.policy.name)} ${wait.title}`} onClose={close} {...(plan === undefined ? {} : { sub: <>Plan <code>{plan.name}</code></> })}
      tools={<CopyAs commands={{ federator: `federator actions plan ${wait.policy.name}`, curl: path }} />}>
      {wait.halt !== "" && <p class="message">{wait.policy.halted?.message}</p>}
      {live.value === undefined ? live.error === undefined ? <Loading /> : <Failed status={live.error} /> : plan === undefined ? gone ? <p class="dim">{over}</p> : <Without wait={wait} form={form} />
        : <Frozen wait={wait} plan={plan} list={live.value} form={form} more={live.value.continue !== undefined && limit < 5000 ? () => setLimit(Math.min(5000, limit * 4)) : undefined} />}
      {done !== undefined && <Said done={done} />}
    </Drawer>
  );
}

function Frozen({ wait, plan, list, form, more }: { wait: Wait; plan: PlanInfo; list: PlanList; form: Form; more: (() => void) | undefined }) {
  const items = (list.items ?? []).filter((item) => item.plan === plan.name);
  const damaged = plan.problem !== undefined && plan.problem !== "";
  const rollback = plan.purpose === "Rollback";
  const [seen, setSeen] = useState(plan.hash); // what was opened is what is approved
  const changed = plan.hash !== seen;
  const verb = rollback ? `Let ${many(plan.targets, "rollback")} pass` : `Let ${many(plan.targets, "correction")} pass`;
  return (
    <>
      <section class="section"><dl class="facts">
        <dt>Hash</dt><dd><code class="hash">{plan.hash}</code></dd>
        <dt>Targets</dt><dd>{many(plan.targets, "object")}{plan.hidden > 0 && <span class="wrong"> · {plan.hidden} of them you may not see</span>}{plan.irreversible > 0 && <span class="wrong"> · {plan.irreversible} could not be rolled back</span>}</dd>
        <dt>By member</dt><dd>{(plan.counts ?? []).slice(0, 8).map((one) => <span key={`${one.member} ${one.kind} ${one.verb}`} class="pill">{one.member}: {one.verb} {many(one.targets, one.kind, one.kind)}</span>)}{(plan.counts ?? []).length > 8 && <span class="dim"> and {count((plan.counts ?? []).length - 8 + (plan.countsOmitted ?? 0))} more</span>}</dd>
        {plan.required > 0 && <><dt>Approvals</dt><dd>{plan.approved} of {plan.required}</dd></>}
        <dt>Frozen</dt><dd>{ago(plan.created)} ago{plan.amends !== undefined && plan.amends !== "" && <>, amends {plan.amends}</>}</dd>
      </dl></section>
      {damaged ? <p class="wrong" role="alert">It must not be approved: {plan.problem}</p> : <Targets policy={wait.policy.name} items={items} total={plan.targets - plan.hidden} {...(more === undefined ? {} : { more })} rollback={rollback} />}
      {changed && <p class="wrong" role="alert">The Plan has changed since you opened it; its hash was <code class="hash">{seen}</code>. <button type="button" onClick={() => setSeen(plan.hash)}>I have seen what it is now</button></p>}
      <p class="dim">{plan.required > 1 ? `${plan.required} people must let it pass; ${plan.approved} have. ` : ""}Nothing else is let pass: what comes later waits again.</p>
      {form(verb, wait.halt !== "" ? { halt: wait.halt } : rollback ? { rollback: seen } : { plan: seen }, damaged ? "The Plan is not what was frozen." : changed ? "The Plan has changed since you opened it." : "")}
    </>
  );
}

// Without is a halt of which there is no Plan: no limit is raised, and what is written next is what violates the policy then.
function Without({ wait, form }: { wait: Wait; form: Form }) {
  const name = wait.policy.name;
  const live = useLive<Violations>(wait.halt === "" ? null : withQuery("/query/v1/violations", { policy: name, exempt: "false", limit: 100 }));
  if (wait.halt === "") return <p>The Plan is gone: it has ended, or was superseded.</p>;
  if (live.value === undefined) return live.error === undefined ? <Loading /> : <Failed status={live.error} />;
  const items = remediesOf(live.value.items ?? []), all = wait.policy.violations ?? items.length;
  return (
    <>
      <p class="dim">There is no Plan of this halt: no limit is raised. Let pass, {shortPolicy(name)} goes on with <a href={href("/violations", { policy: name, exempt: "false" })}>{many(all, "violation")}</a> as they are then, within its limits and waves.</p>
      {live.value.withheld?.includes(name) === true ? <p><Lock /> What it finds is withheld from you.</p> : <Targets policy={name} items={items} total={Math.max(all, items.length)} rollback={false} />}
      {form(`Let ${shortPolicy(name)} go on with ${many(all, "correction")}`, { halt: wait.halt })}
    </>
  );
}

async function approve(fleetPolicy: string, what: Approved, reason: string): Promise<Done> {
  const made = await send<KubeObject>("POST", "/ui/relay/approvals", { fleetPolicy, ...what, reason, expiresSeconds: 86_400 });
  return { text: `Approved as ${made?.metadata.name ?? "you"}. Whether it counts is in its status.`, href: href("/actions", { policy: fleetPolicy }), link: "See its Actions" };
}
