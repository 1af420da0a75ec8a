// The graph of what is related to an object, as lines of a tree: each node once, below the nearest one that leads to it.
import type { Graph } from "../../data/types";

export interface TreeLine {
  node: number;
  depth: number;
  relation: string;
}

export function treeOf(graph: Graph): TreeLine[] {
  const next = new Map<number, { node: number; relation: string }[]>();
  for (const edge of graph.edges ?? []) {
    (next.get(edge.from) ?? next.set(edge.from, []).get(edge.from))?.push({ node: edge.to, relation: `${edge.relation} →` });
    (next.get(edge.to) ?? next.set(edge.to, []).get(edge.to))?.push({ node: edge.from, relation: `← ${edge.relation}` });
  }
  const lines: TreeLine[] = [];
  const parent = new Map<number, { node: number; relation: string }[]>();
  const seen = new Set([0]);
  for (let queue = [0], at = 0; at < queue.length; at++) {
    const node = queue[at] ?? 0;
    for (const edge of next.get(node) ?? []) {
      if (seen.has(edge.node)) continue;
      seen.add(edge.node);
      queue.push(edge.node);
      parent.set(node, [...parent.get(node) ?? [], edge]);
    }
  }
  const walk = (node: number, depth: number, relation: string) => {
    lines.push({ node, depth, relation });
    for (const child of parent.get(node) ?? []) walk(child.node, depth + 1, child.relation);
  };
  walk(0, 0, "");
  return lines;
}
