// What identifies the object of an event, and how far a watch has come with it.
import type { Finding, KubeTable, Subject, TableRow } from "./types";

type Loose = {
  kind?: unknown; rows?: unknown; metadata?: { name?: string; namespace?: string; resourceVersion?: string; annotations?: Record<string, string> };
  resourceVersion?: unknown; revision?: unknown; initialEventsEnd?: unknown; policy?: unknown; subject?: Subject;
};

export function rowKey(row: TableRow): string {
  const meta = row.object.metadata;
  return `${meta.annotations?.["federator.dev/member"] ?? ""}/${meta.namespace ?? ""}/${meta.name}`;
}

export function findingKey(finding: Pick<Finding, "policy" | "subject">): string {
  const s = finding.subject;
  return [finding.policy, s.member ?? "", s.kind ?? "", s.namespace ?? "", s.name ?? "", s.key ?? ""].join("|");
}

// keyOf is what two events of one watch have in common when they are about the same thing.
export function keyOf(object: unknown): string {
  const o = object as Loose;
  if (o.kind === "Table") {
    const row = (o as unknown as KubeTable).rows[0];
    return row === undefined ? "" : rowKey(row);
  }
  if (typeof o.policy === "string" && o.subject !== undefined) return findingKey(o as unknown as Finding);
  const meta = o.metadata ?? {};
  return `${String(o.kind ?? "")}|${meta.annotations?.["federator.dev/member"] ?? ""}/${meta.namespace ?? ""}/${meta.name ?? ""}`;
}

export function versionOf(object: unknown): string | undefined {
  const o = object as Loose;
  if (typeof o.resourceVersion === "string") return o.resourceVersion;
  const ofObject = o.metadata?.resourceVersion;
  if (ofObject !== undefined && ofObject !== "") return ofObject;
  return typeof o.revision === "string" ? o.revision : undefined;
}

// endsInitial says whether a bookmark is the one after all that there was when the watch began.
export function endsInitial(object: unknown): boolean {
  const o = object as Loose;
  if (o.initialEventsEnd === true) return true;
  const marked = (m: Loose["metadata"]) => m?.annotations?.["k8s.io/initial-events-end"] === "true";
  if (marked(o.metadata)) return true;
  if (o.kind !== "Table") return false;
  return (o as unknown as KubeTable).rows.some((row) => marked(row.object.metadata));
}
