// Where the palette can go: pages and kinds at once; members, policies, Actions and objects when the server has answered.
import { get, statusFrom, withQuery } from "../data/api";
import { kinds, loadKinds } from "../data/kinds";
import { session } from "../data/session";
import type { Actions, Find, MemberList, Policies } from "../data/types";
import { many, shortPolicy } from "../ui/format";
import { pages } from "../pages/registry";
import { href } from "./location";

export interface Target {
  what: string;
  name: string;
  more?: string;
  href: string;
}

const perKind = 8;
const searched = ["deployments.apps", "pods", "services", "statefulsets.apps", "daemonsets.apps", "namespaces", "nodes", "ingresses.networking.k8s.io", "configmaps", "secrets", "jobs.batch", "cronjobs.batch"];

export function fixedTargets(text: string): Target[] {
  const t = text.toLowerCase();
  const matching = pages.filter((page) => page.nav && page.title.toLowerCase().includes(t))
    .sort((a, b) => Number(b.title.toLowerCase().startsWith(t)) - Number(a.title.toLowerCase().startsWith(t))).map((page) => ({ what: "page", name: page.title, href: href(page.path) }));
  if (t === "") return matching;
  const some = kinds.value.filter((kind) => kind.resource.includes(t) || kind.kind.toLowerCase().includes(t) || kind.short.includes(t));
  some.sort((a, b) => Number(b.plural.startsWith(t) || b.short.includes(t)) - Number(a.plural.startsWith(t) || a.short.includes(t)) || a.resource.length - b.resource.length);
  return [...matching, ...some.slice(0, perKind).map((kind) => ({ what: "kind", name: kind.resource, href: href("/explore", { q: kind.resource }) }))];
}

// searchTargets passes on what it finds as it comes. What the caller may not read, or this server does not have, is not found.
// It returns whether all could be asked: what a busy server did not answer may be there.
export async function searchTargets(text: string, signal: AbortSignal, found: (some: Target[]) => void): Promise<boolean> {
  let whole = true;
  await loadKinds().catch(() => { whole = false; });
  const t = text.toLowerCase();
  const resources = searched.filter((resource) => kinds.value.some((kind) => kind.resource === resource));
  const ask = async <T>(path: string, targets: (answer: T) => Target[]) => {
    try {
      found(targets(await get<T>(path, { signal })));
    } catch (error) {
      const { code } = statusFrom(error);
      if (code !== 403 && code !== 404) whole = false; // else it is not allowed or not there
    }
  };
  await Promise.all([
    ask<MemberList>("/query/v1/members?limit=1000", (list) => list.items.filter((m) => m.name.toLowerCase().includes(t)).slice(0, perKind)
      .map((m) => ({ what: "member", name: m.name, more: m.version ?? "", href: href(`/members/${m.name}`) }))),
    ask<Policies>("/query/v1/policies", (list) => list.items.filter((p) => p.name.toLowerCase().includes(t) || p.title?.toLowerCase().includes(t) === true).slice(0, perKind)
      .map((p) => ({ what: "policy", name: shortPolicy(p.name), more: p.title ?? "", href: href(`/policies/${encodeURIComponent(p.name)}`) }))),
    session.value?.hub !== true ? Promise.resolve() : ask<Actions>("/query/v1/actions?limit=200", (list) => list.items.filter((a) => a.name.includes(t) || a.target.name?.includes(t) === true).slice(0, perKind)
      .map((a) => ({ what: "Action", name: a.name, more: `${a.verb} ${a.target.kind ?? ""} ${a.target.name ?? ""} in ${a.member}`, href: href("/actions", { open: a.name }) }))),
    resources.length === 0 || t.length < 2 ? Promise.resolve() : ask<Find>(withQuery("/query/v1/find", { resource: resources, namePrefix: t, limit: 3 }), (list) => {
      whole &&= list.truncated !== true && (list.notSynced ?? []).length === 0;
      return list.items.map((o) => {
        const place = o.namespace === undefined ? "" : ` namespace:${o.namespace}`;
        return { what: o.kind.split(".")[0] ?? "", name: o.name, more: [o.namespace, o.members === 1 ? o.member : many(o.members, "member")].filter(Boolean).join(" · "),
          href: href("/explore", { q: `${o.resource} name:${o.name}${place}`, open: o.members === 1 ? `${o.member}/${o.namespace ?? ""}/${o.name}` : null }) };
      });
    }),
  ]);
  return whole;
}
