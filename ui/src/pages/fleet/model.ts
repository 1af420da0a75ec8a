// What the fleet page shows, worked out from the answers.
import type { PolicySource } from "../../data/policytypes";
import type { MemberInfo, PolicyInfo, Violations } from "../../data/types";
import { held } from "../sources/model";

// the worst state of a member's kinds is the member's
const precedence = ["Forbidden", "OverBudget", "Stale", "Partial", "Unknown", "Syncing", "Synced"];

export function worst(member: Pick<MemberInfo, "scopes">): { state: string; kinds: number; of: number } {
  let of = 0;
  for (const [state, n] of Object.entries(member.scopes)) if (state !== "NotServed") of += n;
  for (const state of precedence) {
    const kinds = member.scopes[state] ?? 0;
    if (kinds > 0) return { state, kinds, of };
  }
  return { state: "Unknown", kinds: 0, of };
}

export interface Tally {
  violations: number;
  exempt: number;
  unknown: number;
  errors: number;
  bySeverity: Record<string, number>;
}

export interface Findings {
  all: Tally;
  byMember: Map<string, Tally>;
  byPolicy: Map<string, { severity: string; tally: Tally }>;
  cells: Map<string, { policy: string; member: string; violations: number; unknown: number; errors: number }>;
}

export const findingsPath = "/query/v1/violations?groupBy=policy&groupBy=member&groupBy=severity&groupBy=state";

function none(): Tally {
  return { violations: 0, exempt: 0, unknown: 0, errors: 0, bySeverity: {} };
}

// tallies adds up the groups of findingsPath.
export function tallies(answer: Violations): Findings {
  const found: Findings = { all: none(), byMember: new Map(), byPolicy: new Map(), cells: new Map() };
  for (const group of answer.groups ?? []) {
    const [policy = "", member = "", severity = "", state = ""] = group.key;
    const ofMember = found.byMember.get(member) ?? none();
    const ofPolicy = found.byPolicy.get(policy) ?? { severity, tally: none() };
    const key = `${policy}\u0000${member}`;
    const cell = found.cells.get(key) ?? { policy, member, violations: 0, unknown: 0, errors: 0 };
    for (const tally of [found.all, ofMember, ofPolicy.tally]) add(tally, group.violations, group.exempt, group.subjects, severity, state);
    cell.violations += group.violations;
    if (state === "Unknown") cell.unknown += group.subjects;
    if (state === "Error") cell.errors += group.subjects;
    found.byMember.set(member, ofMember);
    found.byPolicy.set(policy, ofPolicy);
    found.cells.set(key, cell);
  }
  return found;
}

function add(tally: Tally, violations: number, exempt: number, subjects: number, severity: string, state: string): void {
  tally.violations += violations; // the server counts exempt ones apart
  tally.exempt += exempt;
  if (state === "Unknown") tally.unknown += subjects;
  if (state === "Error") tally.errors += subjects;
  tally.bySeverity[severity] = (tally.bySeverity[severity] ?? 0) + violations;
}

// inOrder compares names as people count: member-2 before member-10.
export const inOrder = new Intl.Collator("en", { numeric: true }).compare;

export interface MemberFilter {
  text: string;
  state: string; // "" for all, "notSynced" for all but Synced
}

export function matches(member: MemberInfo, filter: MemberFilter): boolean {
  const state = worst(member).state;
  if (filter.state === "notSynced" ? state === "Synced" : filter.state !== "" && !(filter.state === state || (member.scopes[filter.state] ?? 0) > 0)) return false;
  const words = filter.text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const labels = Object.entries(member.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return words.every((word) => member.name.toLowerCase().includes(word) || member.version?.toLowerCase().includes(word) === true || labels.some((label) => label.toLowerCase().includes(word)));
}

// groupsBy is members by the value of a label, in order; those without it come last.
export function groupsBy(members: readonly MemberInfo[], label: string): [string, MemberInfo[]][] {
  if (label === "") return [["", [...members].sort((a, b) => inOrder(a.name, b.name))]];
  const groups = new Map<string, MemberInfo[]>();
  for (const member of [...members].sort((a, b) => inOrder(a.name, b.name))) {
    const value = member.labels?.[label] ?? "";
    const group = groups.get(value);
    if (group === undefined) groups.set(value, [member]);
    else group.push(member);
  }
  return [...groups].sort(([a], [b]) => (a === "" ? 1 : b === "" ? -1 : inOrder(a, b)));
}

export function labelsOf(members: readonly MemberInfo[]): string[] {
  return [...new Set(members.flatMap((member) => Object.keys(member.labels ?? {})))].sort();
}

// Trouble is what is wrong. What could not be looked at is in unseen, and never counts as well.
export interface Trouble {
  notSynced: number;
  members: number;
  halts: number;
  waiting: number;
  held: number; // policies that shall enforce and may not
  sources: number; // that are not Ready
  violations: number;
  unknown: number;
  errors: number;
  failed: number; // policies that failed in part
  withheld: number; // policies
  truncated: boolean; // there is more than was counted
  unseen: readonly string[];
}

// verdict is the answer to "is anything wrong?", in one sentence.
export function verdict(t: Trouble): { tone: "ok" | "warn" | "wrong"; text: string } {
  const said: string[] = [];
  const say = (n: number, one: string, more: string) => { if (n > 0) said.push(`${n.toLocaleString("en")} ${n === 1 ? one : more}`); };
  say(t.halts, "policy is halted", "policies are halted");
  say(t.held, "policy is held and does not enforce", "policies are held and do not enforce");
  say(t.sources, "source is not ready", "sources are not ready");
  say(t.waiting, "plan waits for approval", "plans wait for approval");
  say(t.notSynced, "member is not fresh", "members are not fresh");
  if (t.errors > 0) say(t.errors, "subject could not be evaluated", "subjects could not be evaluated");
  else say(t.failed, "policy failed in part", "policies failed in part");
  say(t.violations, "violation", "violations");
  say(t.unknown, "subject is not known", "subjects are not known");
  if (t.truncated) said.push("and more than is counted here");
  if (t.members === 0) return { tone: "warn", text: "There are no members that you may read" };
  const tone = t.halts + t.held + t.sources + t.notSynced + t.errors + t.failed > 0 ? "wrong" : said.length + t.unseen.length > 0 ? "warn" : "ok";
  if (t.unseen.length > 0) said.push(`not known: ${t.unseen.join(", ")}`);
  if (said.length > 0) return { tone, text: said.join(", ") };
  return { tone, text: t.withheld > 0 ? "Nothing is wrong in what you may see" : "Nothing is wrong" };
}

// heldOf are the policies that shall write and are held back, other than by a halt, a stop or somebody.
export function heldOf(policies: readonly PolicyInfo[]): PolicyInfo[] {
  return policies.filter((policy) => policy.mode === "Enforce" && policy.state === "Held" && policy.halted == null);
}

// notReadyOf are the sources whose newest commit is not in force, or that cannot be read.
export function notReadyOf(sources: readonly PolicySource[]): PolicySource[] {
  return sources.filter((source) => held(source) !== undefined || source.status?.conditions?.find((c) => c.type === "Ready")?.status !== "True");
}
