// Addresses of what pages link to each other.
import { href } from "../app/location";
import { findingKey } from "../data/keys";
import type { Subject } from "../data/types";

export function objectHref(ref: Subject, field?: string): string {
  const q = [ref.kind ?? "", ...(ref.member === undefined ? [] : [`member:${ref.member}`]), ...(ref.namespace === undefined || ref.namespace === "" ? [] : [`ns:${ref.namespace}`])].join(" ");
  const open = `${ref.member ?? ""}/${ref.namespace ?? ""}/${ref.name ?? ""}`;
  return href("/explore", { q, open: ref.member === undefined ? null : open, at: field ?? null });
}

export function memberHref(member: string): string {
  return href(`/members/${member}`);
}

export function findingHref(policy: string, subject: Subject): string {
  return href("/violations", { policy, open: findingKey({ policy, subject }) });
}

export function policyHref(policy: string): string {
  return href(`/policies/${encodeURIComponent(policy)}`);
}

export function actionHref(name: string): string {
  return href("/actions", { open: name });
}

export function commitHref(source: string, commit: string): string {
  return href(`/sources/${encodeURIComponent(source)}`, { commit });
}

// subjectOf reads the key of a finding.
export function subjectOf(key: string): { policy: string; subject: Subject } | undefined {
  const [policy, member, kind, namespace, name, ...rest] = key.split("|");
  if (policy === undefined || policy === "" || name === undefined) return undefined;
  const subject: Subject = {};
  if (member !== undefined && member !== "") subject.member = member;
  if (kind !== undefined && kind !== "") subject.kind = kind;
  if (namespace !== undefined && namespace !== "") subject.namespace = namespace;
  if (name !== "") subject.name = name;
  const viewKey = rest.join("|");
  if (viewKey !== "") subject.key = viewKey;
  return { policy, subject };
}

export function subjectText(subject: Subject): string {
  if (subject.key !== undefined && subject.key !== "") return subject.key;
  const name = [subject.namespace, subject.name].filter((part) => part !== undefined && part !== "").join("/");
  return name === "" ? subject.member ?? "" : name;
}
