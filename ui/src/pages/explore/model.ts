// What Explore asks the server for, given the query line.
import { withQuery } from "../../data/api";
import { listPath, type Kind } from "../../data/kinds";
import { empty, selectorsOf, type Query } from "../../data/query";
import type { ListQuery } from "../../data/uselist";
import type { Commands } from "../../ui/copyas";
import { quote } from "../../ui/quote";

export function listOf(kind: Kind, query: Query): ListQuery {
  return { path: listPath(kind, query.namespace), ...selectorsOf(query) };
}

// countPath counts by a key what the query selects; the facet's own part of the query is left out, so that the other values can be seen.
export function countPath(kind: Kind, query: Query, groupBy: string): string {
  return withQuery("/query/v1/count", { resource: kind.resource, groupBy, namespace: kind.namespaced ? query.namespace : "", ...selectorsOf(query) });
}

// membersPath counts the members that a query looks at.
export function membersPath(query: Query): string {
  const { labelSelector } = selectorsOf({ ...empty(), labels: query.memberLabels });
  return withQuery("/query/v1/members", { summary: true, labelSelector });
}

export interface FacetSpec {
  name: string; // groupBy
  title: string;
}

const byKind: Record<string, FacetSpec[]> = {
  pods: [{ name: "field:status.phase", title: "Phase" }],
  namespaces: [{ name: "field:status.phase", title: "Phase" }],
  persistentvolumeclaims: [{ name: "field:status.phase", title: "Phase" }],
  persistentvolumes: [{ name: "field:status.phase", title: "Phase" }],
  services: [{ name: "field:spec.type", title: "Type" }],
  nodes: [{ name: "field:status.nodeInfo.kubeletVersion", title: "Kubelet" }],
};

export function facetsOf(kind: Kind, labels: readonly string[]): FacetSpec[] {
  const facets: FacetSpec[] = [{ name: "member", title: "Member" }];
  if (kind.namespaced) facets.push({ name: "namespace", title: "Namespace" });
  facets.push(...byKind[kind.resource] ?? []);
  for (const key of ["app.kubernetes.io/name", "app", "k8s-app"]) if (labels.includes(key)) { facets.push({ name: `label:${key}`, title: key }); break; }
  return facets;
}

export function chosenOf(query: Query, facet: string): string[] {
  if (facet === "member") return query.members;
  if (facet === "namespace") return query.namespace === "" ? [] : [query.namespace];
  const [what, key = ""] = split(facet);
  return (what === "field" ? query.fields : query.labels).filter((term) => term.key === key && term.op === "=").flatMap((term) => term.values);
}

// choose is the query with these values of a facet.
export function choose(query: Query, facet: string, values: readonly string[]): Query {
  if (facet === "member") return { ...query, members: [...values] };
  const last = values[values.length - 1] ?? "";
  if (facet === "namespace") return { ...query, namespace: last };
  const [what, key = ""] = split(facet);
  const rest = (terms: Query["labels"]) => terms.filter((term) => term.key !== key || term.op !== "=");
  if (what === "field") return { ...query, fields: last === "" ? rest(query.fields) : [...rest(query.fields), { key, op: "=", values: [last] }] };
  return { ...query, labels: values.length === 0 ? rest(query.labels) : [...rest(query.labels), { key, op: "=", values: [...values] }] };
}

function split(facet: string): [string, string] {
  const at = facet.indexOf(":");
  return [facet.slice(0, at), facet.slice(at + 1)];
}

export function commandsOf(kind: Kind, query: Query): Commands {
  const { labelSelector, fieldSelector } = selectorsOf(query);
  const scope = !kind.namespaced ? "" : query.namespace === "" ? " -A" : ` -n ${quote(query.namespace)}`;
  const label = labelSelector === "" ? "" : ` -l ${quote(labelSelector)}`;
  const field = fieldSelector === "" ? "" : ` --field-selector ${quote(fieldSelector)}`;
  const namespace = query.namespace === "" ? "" : ` -n ${quote(query.namespace)}`;
  return {
    kubectl: `kubectl --context fleet get ${kind.resource}${scope}${label}${field}`,
    federator: `federator count ${kind.resource}${namespace}${label}${field} --by member`,
    curl: withQuery(listPath(kind, query.namespace), { labelSelector, fieldSelector }),
  };
}

export interface ObjectID {
  member: string;
  namespace: string;
  name: string;
}

// parseID reads the key of a row: <member's namespace>/<member's name>/<namespace>/<name>.
export function parseID(key: string): ObjectID | undefined {
  const parts = key.split("/");
  if (parts.length < 4) return undefined;
  return { member: `${parts[0] ?? ""}/${parts[1] ?? ""}`, namespace: parts[2] ?? "", name: parts.slice(3).join("/") };
}

export function objectPath(kind: Kind, id: ObjectID): string {
  return `${listPath(kind, id.namespace, `/members/${id.member}`)}/${encodeURIComponent(id.name)}`;
}
