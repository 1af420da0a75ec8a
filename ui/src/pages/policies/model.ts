// How policies are sorted, narrowed and told.
import type { PolicyInfo } from "../../data/types";
import { severityRank } from "../../ui/marks";

export type By = "" | "name" | "severity" | "violations" | "unknown" | "exempt" | "cpu" | "mode";

// order puts what is worst first: halted, then by severity of what violates, then by name.
export function order(items: readonly PolicyInfo[], by: string, down: boolean): PolicyInfo[] {
  const sign = down ? -1 : 1;
  const value = (policy: PolicyInfo): number | string => {
    switch (by) {
      case "severity": return severityRank(policy.severity);
      case "violations": return policy.violations ?? -1;
      case "unknown": return policy.unknown ?? -1;
      case "exempt": return policy.exempt ?? -1;
      case "cpu": return policy.cost?.cpuShare ?? -1;
      case "mode": return policy.mode ?? "";
      case "name": return policy.name;
      default: return (policy.halted != null ? -100 : 0) + ((policy.violations ?? 0) > 0 ? severityRank(policy.severity) : 10);
    }
  };
  return [...items].sort((a, b) => {
    const x = value(a), y = value(b);
    const different = typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x - y;
    return (by === "" ? different : sign * different) || a.name.localeCompare(b.name);
  });
}

export function keepPolicies(items: readonly PolicyInfo[], text: string): PolicyInfo[] {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  return items.filter((policy) => {
    const all = [policy.name, policy.title, policy.package, policy.severity, policy.mode, policy.state, policy.source?.name].join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

export function share(part: number): string {
  if (part < 0.0005) return "< 0.1 %";
  return `${(part * 100).toFixed(part < 0.1 ? 1 : 0)} %`;
}

export function rate(perSecond: number): string {
  return perSecond === 0 ? "0/s" : perSecond < 0.05 ? "< 0.1/s" : `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;
}

// each is how many evaluations there were, and how long one took.
export function each({ evaluationsPerSecond: n, perEvaluationMicros }: NonNullable<PolicyInfo["cost"]>): string {
  return n === 0 ? "nothing was evaluated" : `${rate(n)}, ${micros(perEvaluationMicros)} each`;
}

export function micros(n: number): string {
  return n < 1 ? "< 1 µs" : n < 1000 ? `${Math.round(n)} µs` : `${(n / 1000).toFixed(1)} ms`;
}
