// What the page of violations asks for, and its rows.
import { withQuery } from "../../data/api";
import { findingKey } from "../../data/keys";
import type { Finding, FindingGroup, FoundViolation, Series, Violations } from "../../data/types";
import type { Facet } from "../../ui";
import { ago, count, many, shortPolicy } from "../../ui/format";
import { plain } from "../../ui/plain";

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
  return withQuery(path, { ...narrowing(chosen), orderBy: "severity", limit });
}

// facetPath asks for the counts of one filter, with all others applied: so one sees what choosing another gives.
export function facetPath(chosen: Chosen, by: Filter): string {
  return withQuery(path, { ...narrowing(chosen), [by]: [], groupBy: by });
}

export function groupPath(chosen: Chosen, by: readonly string[]): string {
  return withQuery(path, { ...narrowing(chosen), groupBy: by });
}

// sizeOf is how many rows a group has in the list: violations, and what is not known or failed, of which there are none where
// exempt is asked for.
export function sizeOf(group: FindingGroup, exempt: string): number {
  return group.violations + group.exempt + (exempt === "" ? group.unknown + group.errors : 0);
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

// tell is how many violations there are; what is exempt, not known or failed is none.
export function tell(rows: readonly Row[]): string {
  const n = { violations: 0, exempt: 0, "not known": 0, failed: 0 };
  for (const { violation, finding } of rows) n[violation !== undefined ? violation.exempt === undefined ? "violations" : "exempt" : finding.state === "Error" ? "failed" : "not known"]++;
  const { violations, ...others } = n;
  return [many(violations, "violation"), ...Object.entries(others).filter(([, of]) => of > 0).map(([what, of]) => `${count(of)} ${what}`)].join(", ");
}

// dayOf compares the violations of a day ago with the newest that were counted; of what is not known it says so.
export function dayOf({ series, known, start, stepSeconds, partial, truncated, dropped }: Series): string {
  const sums = known.map((is, i) => series.reduce<number | null>((sum, { values }) => { const value = values[i]; return sum === null || value === null ? null : sum + (value ?? 0); }, is ? 0 : null));
  const say = (i: number, which: string) => `${ago(Date.parse(start) + i * stepSeconds * 1000)} ago${which} ${count(sums[i] ?? 0)}`;
  const is = (sum: number | null) => sum !== null, first = sums.findIndex(is), last = sums.findLastIndex(is);
  const less = partial === true ? ", where you may read all that they evaluate" : truncated === true || (dropped ?? 0) > 0 ? ", as far as they are kept" : "";
  const said = [first === 0 ? say(0, "") : "a day ago not known", ...(first > 0 && first < last ? [say(first, ", the first that is known,")] : []), last <= 0 || last < sums.length - 2 ? "now not known" : say(last, ", the newest count,")];
  return `Violations of the policies and members that there are now${less}: ${said.join("; ")}. Exempt ones are not counted.`; // a step is counted some seconds after it begins
}

export function commandOf(chosen: Chosen): string {
  const flag = (name: string, values: readonly string[]) => values.map((value) => ` --${name} '${value}'`).join("");
  const l = chosen.lists;
  return `federator violations --order-by severity${flag("policy", l.policy)}${flag("severity", l.severity)}${flag("member", l.member)}${flag("namespace", l.namespace)}${flag("kind", l.kind)}${flag("state", l.state)}${flag("exempt", chosen.exempt === "" ? [] : [chosen.exempt])}`;
}
