// The kinds that can be asked for, from the API's own discovery.
import { signal } from "@preact/signals";
import { get } from "./api";

export interface Kind {
  resource: string; // as kubectl and the query API write it: "pods", "deployments.apps"
  kind: string; // "Pod", "Deployment.apps"
  group: string;
  version: string;
  plural: string;
  namespaced: boolean;
  short: string[];
}

interface Discovery {
  items: {
    metadata?: { name?: string };
    versions: { version: string; resources?: { resource: string; responseKind?: { kind: string }; scope: string; shortNames?: string[]; verbs: string[] }[] }[];
  }[];
}

export const kinds = signal<Kind[]>([]);

export function kindsOf(discovery: Discovery): Kind[] {
  const found: Kind[] = [];
  for (const item of discovery.items) {
    const group = item.metadata?.name ?? "";
    const seen = new Set<string>();
    for (const version of item.versions) {
      for (const r of version.resources ?? []) {
        if (seen.has(r.resource) || !r.verbs.includes("list")) continue;
        seen.add(r.resource);
        const dot = group === "" ? "" : `.${group}`;
        found.push({
          resource: r.resource + dot, kind: (r.responseKind?.kind ?? r.resource) + dot, group, version: version.version,
          plural: r.resource, namespaced: r.scope === "Namespaced", short: r.shortNames ?? [],
        });
      }
    }
  }
  return found.sort((a, b) => (a.resource < b.resource ? -1 : 1));
}

// findKind takes what people write: pods, Pod, po, deployments, deployments.apps, Deployment.apps.
export function findKind(text: string, among: readonly Kind[]): Kind | undefined {
  const t = text.toLowerCase();
  const exact = among.find((k) => k.resource === t || k.kind.toLowerCase() === t);
  if (exact !== undefined) return exact;
  return among.find((k) => k.plural === t || k.kind.split(".")[0]?.toLowerCase() === t || k.short.includes(t));
}

// listPath is where the objects of a kind are listed, over all members.
export function listPath(kind: Kind, namespace = "", root = "/fleet"): string {
  const start = kind.group === "" ? `${root}/api/${kind.version}` : `${root}/apis/${kind.group}/${kind.version}`;
  return namespace === "" || !kind.namespaced ? `${start}/${kind.plural}` : `${start}/namespaces/${encodeURIComponent(namespace)}/${kind.plural}`;
}

let asked: Promise<void> | undefined;
let turn = 0;

// forgetKinds is called when another user is there: which kinds there are follows from what one may read.
export function forgetKinds(): void {
  turn++;
  asked = undefined;
  kinds.value = [];
}

export function loadKinds(again = false): Promise<void> {
  if (asked === undefined || again) {
    const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const mine = turn;
    asked = Promise.all([get<Discovery>("/fleet/api", { accept }), get<Discovery>("/fleet/apis", { accept })]).then(
      (answers) => { if (mine === turn) kinds.value = answers.flatMap(kindsOf).sort((a, b) => (a.resource < b.resource ? -1 : 1)); },
      (error: unknown) => { if (mine === turn) asked = undefined; throw error; },
    );
  }
  return asked;
}
