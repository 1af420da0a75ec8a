// What the page of Actions asks for, and what it shows of them.
import { withQuery } from "../../data/api";
import type { ActionSummary, Finding, HaltRecord, PolicyInfo } from "../../data/types";
import type { Span, TimelineMark } from "../../pieces/timeline";
import { shortPolicy } from "../../ui/format";
import type { PlanTarget, PolicySource, StopItem } from "../../data/policytypes";

export const filters = ["policy", "member", "phase", "namespace", "kind", "name"] as const;
export const phases = ["Pending", "Writing", "Succeeded", "NoOp", "Failed", "Superseded", "Contended", "Protected", "Managed", "RolledBack"] as const;

export function actionsPath(params: URLSearchParams, limit = 500): string {
  return withQuery("/query/v1/actions", { ...Object.fromEntries(filters.map((name) => [name, params.getAll(name)])), since: params.get("since"), limit });
}

export function timeOf(action: ActionSummary): number {
  return Date.parse(action.startedAt ?? action.created ?? action.endedAt ?? "");
}

export function inSpan(action: ActionSummary, span: Span | undefined): boolean {
  const at = timeOf(action);
  return span === undefined || (at >= span.from && at <= span.to);
}

// canRollBack reports whether an Action has been written and could be taken back.
export function canRollBack(action: ActionSummary): boolean {
  return action.phase === "Succeeded" && (action.rollbackOf === undefined || action.rollbackOf === "");
}

export function spanOf(params: URLSearchParams): Span | undefined {
  const from = Date.parse(params.get("from") ?? ""), to = Date.parse(params.get("to") ?? "");
  return Number.isNaN(from) || Number.isNaN(to) || to <= from ? undefined : { from, to };
}

// sinceOf and untilOf hold all Actions of a span: the hub's times are of whole seconds.
export function boundsOf(actions: readonly ActionSummary[]): { since: string; until: string } | undefined {
  const times = actions.map((action) => Date.parse(action.created ?? action.startedAt ?? "")).filter((at) => !Number.isNaN(at));
  if (times.length === 0) return undefined;
  const iso = (at: number) => new Date(at).toISOString().replace(/\.\d+Z$/, "Z");
  return { since: iso(Math.floor(Math.min(...times) / 1000) * 1000), until: iso(Math.floor(Math.max(...times) / 1000) * 1000 + 1000) };
}

// selectedBy is what a Rollback with these bounds takes back: more than was chosen, if more was written at that time.
export function selectedBy(actions: readonly ActionSummary[], policy: string, bounds: { since: string; until: string } | undefined): ActionSummary[] {
  if (bounds === undefined) return [];
  const since = Date.parse(bounds.since), until = Date.parse(bounds.until);
  return actions.filter((action) => {
    const at = Date.parse(action.created ?? action.startedAt ?? "");
    return action.policy === policy && canRollBack(action) && at >= since && at < until;
  });
}

const kinds: Record<string, TimelineMark["kind"]> = { Failed: "failure", Contended: "failure", RolledBack: "rollback" };

export interface Happened {
  actions: readonly ActionSummary[];
  halts: readonly HaltRecord[];
  sources: readonly PolicySource[];
  findings: readonly Finding[];
}

export interface Links {
  action(name: string): string;
  commit(source: string, hash: string): string;
  finding(policy: string, subject: Finding["subject"]): string;
  policy(name: string): string;
}

// marksOf puts what happened on the lanes of a timeline: commits, new violations, halts and approvals first, then
// Actions by policy or member.
export function marksOf({ actions, halts, sources, findings }: Happened, by: "policy" | "member", links: Links): { lanes: string[]; marks: TimelineMark[] } {
  const marks: TimelineMark[] = [];
  for (const source of sources) {
    for (const commit of [source.status?.observedCommit, source.status?.activeCommit]) {
      const at = Date.parse(commit?.since ?? commit?.time ?? "");
      if (commit === undefined || Number.isNaN(at) || marks.some((m) => m.text.includes(commit.hash.slice(0, 8)))) continue;
      const rejected = commit.hash !== source.status?.activeCommit?.hash;
      marks.push({ at, kind: rejected ? "failure" : "commit", lane: "commits", text: `commit ${commit.hash.slice(0, 8)} of ${source.metadata.name}${rejected ? ", not active" : ""}`, href: links.commit(source.metadata.name, commit.hash) });
    }
  }
  for (const halt of halts) {
    const at = Date.parse(halt.began ?? ""), until = Date.parse(halt.ended ?? ""), what = `${shortPolicy(halt.policy)} halted: ${halt.reason ?? ""}`;
    const common = { lane: "halts", href: links.policy(halt.policy) };
    if (!Number.isNaN(at)) marks.push({ ...common, at, kind: "halt", text: `${what}${halt.stands ? ", until now" : Number.isNaN(until) ? "; when it ended is not known" : ""}`, ...(halt.stands ? { until: Infinity } : Number.isNaN(until) ? {} : { until }) });
    if (!Number.isNaN(until)) marks.push({ ...common, at: until, kind: "end", text: `${what}, has ended: ${halt.by === undefined ? halt.ending ?? "" : `acknowledged by ${halt.by}`}${Number.isNaN(at) ? "; when it began is not known" : ""}` });
  }
  for (const finding of findings) {
    for (const violation of finding.violations ?? []) {
      const at = Date.parse(violation.firstSeen ?? "");
      if (!Number.isNaN(at)) marks.push({ at, kind: "violation", lane: "new violations", text: `${shortPolicy(finding.policy)}: ${violation.msg}`, href: links.finding(finding.policy, finding.subject) });
    }
  }
  const passed = new Map<string, ActionSummary>(); // the first Action after somebody let it pass
  for (const action of actions) {
    const key = `${action.policy} ${action.acknowledgedBy ?? ""}`, first = passed.get(key);
    if (action.acknowledgedBy !== undefined && action.acknowledgedBy !== "" && (first === undefined || timeOf(action) < timeOf(first))) passed.set(key, action);
  }
  for (const action of passed.values()) marks.push({ at: timeOf(action), kind: "approval", lane: "approvals", text: `${shortPolicy(action.policy)} let pass by ${action.acknowledgedBy ?? ""}`, href: links.action(action.name) });
  const approvals = sources.flatMap((source) => source.status?.approvals ?? []);
  for (const approval of approvals) marks.push({ at: Date.parse(approval.at), kind: "approval", lane: "approvals", text: `approved by ${approval.by}` });
  for (const action of actions) {
    const at = timeOf(action);
    if (Number.isNaN(at)) continue;
    const lane = by === "policy" ? action.policy : action.member;
    const kind = action.rollbackOf !== undefined && action.rollbackOf !== "" ? "rollback" : kinds[action.phase] ?? "action";
    marks.push({ at, kind, lane, text: `${action.verb} ${action.target.name ?? ""} in ${action.member}: ${action.phase || "Pending"}`, href: links.action(action.name) });
  }
  const special = ["commits", "new violations", "halts", "approvals"].filter((lane) => marks.some((m) => m.lane === lane));
  const own = [...new Set(actions.map((action) => by === "policy" ? action.policy : action.member))].sort();
  return { lanes: [...special, ...own], marks };
}

// byWhom is who has stopped, and why; of what is not sent it says what is missing.
export function byWhom({ by, reason, hubForbidden }: StopItem): string {
  if (hubForbidden !== undefined) return `(by whom and why is not shown: you lack ${hubForbidden} on the hub)`;
  return `by ${by ?? "somebody"}: ${reason === undefined || reason === "" ? "no reason is given" : reason}`;
}

export interface Wait {
  policy: PolicyInfo;
  plan: string; // its name; "" for a halt without one
  halt: string; // its id
  title: string;
  since?: string;
}

const waits = new Set(["Waiting", "Freezing"]);

// waitingOf is all that waits for a person: halts first, then plans.
export function waitingOf(policies: readonly PolicyInfo[]): Wait[] {
  const halts = policies.flatMap((policy): Wait[] => policy.halted == null ? [] : [{
    policy, halt: policy.halted.id, plan: policy.plans?.find((plan) => plan.purpose === "Halt" && waits.has(plan.state))?.name ?? "",
    title: `halted: ${policy.halted.reason ?? ""}`, ...(policy.halted.since === undefined ? {} : { since: policy.halted.since }),
  }]);
  const plans = policies.flatMap((policy) => (policy.plans ?? []).filter((plan) => waits.has(plan.state) && !(plan.purpose === "Halt" && policy.halted != null)).map((plan): Wait => ({
    policy, halt: "", plan: plan.name, title: plan.purpose === "Rollback" ? "a rollback waits for approval" : plan.purpose === "Amendment" ? "an amendment waits for approval" : "a plan waits for approval",
  })));
  return [...halts, ...plans];
}

// remediesOf are the targets of violations, each once.
export function remediesOf(findings: readonly Finding[]): PlanTarget[] {
  const found = new Map<string, PlanTarget>();
  for (const finding of findings) {
    for (const { remedy } of finding.violations ?? []) {
      if (remedy === undefined) continue;
      const { member = finding.subject.member ?? "", kind = "", namespace, name = "" } = remedy.target;
      found.set(`${member} ${kind} ${namespace ?? ""} ${name}`, { plan: "", member, kind, name, verb: remedy.action, remedy: "", ...(namespace === undefined ? {} : { namespace }) });
    }
  }
  return [...found.values()];
}
