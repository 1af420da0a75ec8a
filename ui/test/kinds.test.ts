import { describe, expect, test } from "vitest";
import { findKind, kindsOf, listPath } from "../src/data/kinds";
import { treeOf } from "../src/pages/explore/tree";

const resource = (name: string, kind: string, scope: string, shortNames: string[] = [], verbs = ["get", "list", "watch"]) => ({ resource: name, responseKind: { kind }, scope, shortNames, verbs });
const all = kindsOf({ items: [
  { versions: [{ version: "v1", resources: [resource("pods", "Pod", "Namespaced", ["po"]), resource("nodes", "Node", "Cluster"), resource("bindings", "Binding", "Namespaced", [], ["create"])] }] },
  { metadata: { name: "apps" }, versions: [{ version: "v1", resources: [resource("deployments", "Deployment", "Namespaced", ["deploy"])] }, { version: "v1beta1", resources: [resource("deployments", "Deployment", "Namespaced")] }] },
] });

describe("kinds", () => {
  test("are those that can be listed, each at its first version", () => expect(all.map((k) => [k.resource, k.kind, k.version])).toEqual([["deployments.apps", "Deployment.apps", "v1"], ["nodes", "Node", "v1"], ["pods", "Pod", "v1"]]));
  test.each([["pods", "pods"], ["Pod", "pods"], ["po", "pods"], ["deployments", "deployments.apps"], ["Deployment.apps", "deployments.apps"], ["deploy", "deployments.apps"], ["x", undefined]])("%s is %s", (text, found) => expect(findKind(text, all)?.resource).toBe(found));
  test.each([
    ["pods", "", "/fleet/api/v1/pods"], ["pods", "shop", "/fleet/api/v1/namespaces/shop/pods"], ["nodes", "shop", "/fleet/api/v1/nodes"], ["deployments.apps", "a b", "/fleet/apis/apps/v1/namespaces/a%20b/deployments"],
  ])("%s in %j are at %s", (name, namespace, path) => {
    const kind = findKind(name, all);
    expect(kind === undefined ? undefined : listPath(kind, namespace)).toBe(path);
  });
});

test("a tree has each node once, below the nearest that leads to it", () => {
  const node = (name: string) => ({ member: "f/a", apiVersion: "v1", kind: "Pod", name });
  const graph = { revision: "1", nodes: ["deployment", "set", "pod", "node", "service"].map(node), edges: [{ from: 0, to: 1, relation: "owns" }, { from: 1, to: 2, relation: "owns" }, { from: 2, to: 3, relation: "runsOn" }, { from: 4, to: 2, relation: "selects" }, { from: 3, to: 0, relation: "x" }] };
  expect(treeOf(graph).map((line) => [graph.nodes[line.node]?.name, line.depth, line.relation])).toEqual([
    ["deployment", 0, ""], ["set", 1, "owns →"], ["pod", 2, "owns →"], ["service", 3, "← selects"], ["node", 1, "← x"],
  ]);
});
