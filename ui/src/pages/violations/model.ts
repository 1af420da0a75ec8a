// What the page of violations asks for, and its rows.
import { withQuery } from "../../data/api";
import { findingKey } from "../../data/keys";
import type { Finding, FindingGroup, FoundViolation, Violations } from "../../data/types";
import type { Facet } from "../../ui";
import { count, many, shortPolicy } from "../../ui/format";
import { plain } from "../../ui/plain";
import { severityRank } from "../../ui/marks";

export const filters = ["policy", "severity", "member", "namespace", "kind", "state"] as const;
export type Filter = (typeof filters)[number];

export const titles: Record<Filter, string> = { policy: "Policy", severity: "Severity", member: "Member", namespace: "Namespace", kind: "Kind", state: "State" };

export interface Chosen {
  lists: Record<Filter, string[]>;
  exempt: string; // "", "true" or "false"
  since: string; // "24h": first seen since then
  search: string;
}

export function chosenOf(params: URLSearchParams): Chosen {
  return {
    lists: Object.fromEntries(filters.map((name) => [name, params.getAll(name)])) as Record<Filter, string[]>,
    exempt: params.get("exempt") ?? "", since: params.get("since") ?? "", search: params.get("q") ?? "",
  };
}

const path = "/query/v1/violations";

function narrowing(chosen: Chosen) {
  return { ...chosen.lists, exempt: chosen.exempt, firstSeenSince: chosen.since, search: chosen.search.trim() };
}

export function listPath(chosen: Chosen, limit: number): string {
  return withQuery(path, { ...narrowing(chosen), limit });
}

// facetPath asks for the counts of one filter, with all others applied: so one sees what choosing another gives.
export function facetPath(chosen: Chosen, by: Filter): string {
  return withQuery(path, { ...narrowing(chosen), [by]: [], groupBy: by });
}

export function groupPath(chosen: Chosen, by: readonly string[]): string {
  return withQuery(path, { ...narrowing(chosen), groupBy: by });
}

// sizeOf is how many a group counts: violations, exempt ones where these are asked for, and subjects without any.
export function sizeOf(group: FindingGroup, exempt: string): number {
  if (exempt === "true") return group.exempt;
  return group.violations > 0 || exempt === "false" ? group.violations : group.exempt > 0 ? group.exempt : group.subjects;
}

export function facetOf(by: Filter, answer: Violations | undefined, chosen: Chosen, failed = false): Facet {
  const values = (answer?.groups ?? []).map((group) => ({ value: group.key[0] ?? "", count: sizeOf(group, chosen.exempt), ...(by === "member" && group.key[0] === "" ? { label: "(no single member)" } : by === "policy" ? { label: shortPolicy(group.key[0] ?? "") } : {}) }));
  return { name: by, title: titles[by], chosen: chosen.lists[by], values: values.sort((a, b) => b.count - a.count || a.value.localeCompare(b.value)), ...(answer?.truncated === true ? { truncated: true } : {}), ...(answer === undefined ? { pending: failed ? "not known" : "…" } : {}) };
}

export interface Row {
  key: string;
  finding: Finding;
  violation?: FoundViolation; // none: it is Unknown or failed
  text: string;
}

export function rowsOf(items: readonly Finding[]): Row[] {
  return items.flatMap((finding): Row[] => {
    const key = findingKey(finding);
    const own = (finding.violations ?? []).map((violation, i) => ({ key: `${key}#${i}`, finding, violation, text: plain(violation.msg) }));
    if (finding.state === "Known" && own.length > 0) return own;
    const text = finding.state === "Error" ? finding.message ?? "the evaluation failed" : `not known: ${(finding.gaps ?? []).map((gap) => `${gap.member ?? ""} ${gap.kind ?? ""} ${gap.failure ?? gap.state ?? ""}`.trim()).join("; ")}`;
    return [...own, { key: `${key}#`, finding, text }];
  });
}

// keep leaves out violations that were not asked for, of subjects that have others which were.
export function keep(rows: readonly Row[], since: number, exempt: string): Row[] {
  return rows.filter((row) => {
    if (row.violation === undefined) return exempt === ""; // what is asked for by exempt are violations
    if (exempt !== "" && (row.violation.exempt !== undefined) !== (exempt === "true")) return false;
    return since === 0 || Date.parse(row.violation.firstSeen ?? "") >= since;
  });
}

// tell is how many violations there are; what is not known, and what failed, is none.
export function tell(rows: readonly Row[]): string {
  const known = rows.filter((row) => row.violation !== undefined).length, failed = rows.filter((row) => row.violation === undefined && row.finding.state === "Error").length;
  const unknown = rows.length - known - failed;
  return [many(known, "violation"), ...(unknown > 0 ? [`${count(unknown)} not known`] : []), ...(failed > 0 ? [`${count(failed)} failed`] : [])].join(", ");
}

// worstFirst orders rows by severity, and then by when they were first seen, the newest first.
export function worstFirst(rows: readonly Row[]): Row[] {
  const seen = (row: Row) => Date.parse(row.violation?.firstSeen ?? row.finding.since ?? "") || 0;
  return [...rows].sort((a, b) => severityRank(a.finding.severity) - severityRank(b.finding.severity) || seen(b) - seen(a));
}

export function commandOf(chosen: Chosen): string {
  const flag = (name: string, values: readonly string[]) => values.map((value) => ` --${name} '${value}'`).join("");
  const l = chosen.lists;
  return `federator violations${flag("policy", l.policy)}${flag("severity", l.severity)}${flag("member", l.member)}${flag("namespace", l.namespace)}${flag("kind", l.kind)}${flag("state", l.state)}`;
}
