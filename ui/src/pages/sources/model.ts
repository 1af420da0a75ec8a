// A commit on its way: its gates, and what it changes.
import type { Condition, PolicySource } from "../../data/policytypes";

export interface Gate {
  name: string;
  state: "passed" | "failed" | "unknown";
  reason: string;
  message: string;
  since: string;
}

const order = ["Fetched", "Verified", "Parsed", "Compiled", "Tested", "Bounded", "Approved", "Applied", "Ready"];

export function gatesOf(conditions: readonly Condition[]): Gate[] {
  const rank = (name: string) => { const at = order.indexOf(name); return at < 0 ? order.length - 2 : at; };
  return [...conditions].sort((a, b) => rank(a.type) - rank(b.type)).map((c) => ({
    name: c.type, state: c.status === "True" ? "passed" : c.status === "False" ? "failed" : "unknown", reason: c.reason ?? "", message: c.message ?? "", since: c.lastTransitionTime ?? "",
  }));
}

// diffText is what a commit changes in verdicts, in words.
export function diffText(diff: NonNullable<NonNullable<PolicySource["status"]>["lastDiff"]>): string {
  const parts = [[diff.appeared, "new"], [diff.cleared, "cleared"], [diff.changed, "changed"], [diff.unknown, "not known any more"], [diff.enforcement ?? 0, "corrected otherwise"]] as const;
  const some = parts.filter(([n]) => n > 0).map(([n, what]) => `${n} ${what}`);
  return some.length === 0 ? "no verdict changes" : some.join(", ");
}

export function diffSize(diff: NonNullable<NonNullable<PolicySource["status"]>["lastDiff"]>): number {
  return diff.appeared + diff.cleared + diff.changed + diff.unknown + (diff.enforcement ?? 0);
}

// held is why the newest commit is not active; undefined where it is, or there is none.
export function held(source: PolicySource): Condition | undefined {
  const s = source.status;
  if (s?.observedCommit === undefined || s.observedCommit.hash === s.activeCommit?.hash) return undefined;
  return s.conditions?.find((c) => c.type === "Ready" && c.status !== "True") ?? s.conditions?.find((c) => c.status === "False");
}

// rollsOut is whether the newest commit takes the place of the active one step by step, which is in effect meanwhile.
export function rollsOut(source: PolicySource): boolean {
  const r = source.status?.rollout;
  return r !== undefined && r.phase !== "TakenBack" && r.commit === source.status?.observedCommit?.hash;
}

// webLink is the page of a commit, of hosts whose addresses are known by convention.
export function webLink(url: string, commit: string, file?: string, line?: number): string | undefined {
  const found = /^(?:https:\/\/|ssh:\/\/git@|git@)((?:[\w-]+\.)*(?:github|gitlab)\.com)[/:](.+?)(?:\.git)?\/?$/.exec(url);
  if (found === null) return undefined;
  const [, host = "", path = ""] = found;
  const part = host.includes("gitlab") ? "/-" : "";
  const at = line === undefined || line === 0 ? "" : `#L${line}`;
  return file === undefined ? `https://${host}/${path}${part}/commit/${commit}` : `https://${host}/${path}${part}/blob/${commit}/${file}${at}`;
}
