// What could be written at the caret of the query line.
import { tokenize } from "../../data/query";

export interface Suggestion {
  text: string; // in place of the token
  more?: string; // said beside it
  open?: boolean; // a value is still to come
}

export interface Known {
  kinds: readonly { resource: string; kind: string; short: readonly string[] }[];
  labels: readonly string[];
  memberLabels: readonly string[];
  fields: readonly string[];
}

export interface Wanted {
  start: number;
  end: number;
  suggestions: Suggestion[];
  values?: { groupBy: string; prefix: string; typed: string }; // values that the server knows: what goes before them, and what is typed of them
}

const most = 12;
const words: readonly Suggestion[] = [
  { text: "ns:", more: "namespace", open: true }, { text: "name:", more: "name of the object", open: true }, { text: "member:", more: "one or more members", open: true },
];

export function complete(line: string, caret: number, known: Known): Wanted {
  const tokens = tokenize(line);
  const at = tokens.findIndex((token) => token.start <= caret && caret <= token.end);
  const token = tokens[at] ?? { text: "", start: caret, end: caret };
  const typed = line.slice(token.start, caret);
  const wanted: Wanted = { start: token.start, end: token.end, suggestions: [] };
  const first = at === 0 || (at < 0 && (tokens[0] === undefined || caret < tokens[0].start));
  if (first && !/[:=]/.test(typed)) {
    wanted.suggestions = kindsLike(typed, known.kinds);
    return wanted;
  }
  const prefixed = /^(member|ns|namespace):(.*)$/.exec(typed);
  if (prefixed !== null) {
    const [, what = "", rest = ""] = prefixed;
    const done = rest.lastIndexOf(",") + 1;
    wanted.values = { groupBy: what === "member" ? "member" : "namespace", prefix: `${what}:${rest.slice(0, done)}`, typed: rest.slice(done) };
    return wanted;
  }
  const term = /^(label:|field:)?(member\.)?([^=!]+)(!?=)(.*)$/.exec(typed);
  if (term !== null) {
    const [, explicit = "", member = "", key = "", op = "", rest = ""] = term;
    const field = explicit === "field:" || (explicit === "" && member === "" && /^(spec|status|metadata)\./.test(key) && !key.includes("/"));
    const done = field ? 0 : rest.lastIndexOf(",") + 1;
    wanted.values = { groupBy: `${member !== "" ? "memberLabel" : field ? "field" : "label"}:${key}`, prefix: `${explicit}${member}${key}${op}${rest.slice(0, done)}`, typed: rest.slice(done) };
    return wanted;
  }
  if (typed.startsWith("name:")) return wanted;
  const all: Suggestion[] = [
    ...words,
    ...known.labels.map((key) => ({ text: `${key}=`, more: "label", open: true })),
    ...known.fields.map((key) => ({ text: `${key}=`, more: "field", open: true })),
    ...known.memberLabels.map((key) => ({ text: `member.${key}=`, more: "label of members", open: true })),
  ];
  const t = typed.toLowerCase();
  wanted.suggestions = all.filter((s) => s.text.toLowerCase().includes(t)).sort((a, b) => Number(b.text.startsWith(t)) - Number(a.text.startsWith(t))).slice(0, most);
  return wanted;
}

function kindsLike(typed: string, kinds: Known["kinds"]): Suggestion[] {
  const t = typed.toLowerCase();
  const rank = (k: Known["kinds"][number]) => k.short.includes(t) ? 0 : k.resource.startsWith(t) ? 1 : 2;
  return kinds.filter((k) => k.resource.includes(t) || k.kind.toLowerCase().includes(t) || k.short.includes(t))
    .sort((a, b) => rank(a) - rank(b) || a.resource.length - b.resource.length).slice(0, most)
    .map((k) => ({ text: k.resource, more: k.kind }));
}

// insert is the line after a suggestion is taken, and where the caret is then.
export function insert(line: string, wanted: Pick<Wanted, "start" | "end">, suggestion: Suggestion): { line: string; caret: number } {
  const blank = suggestion.open === true || /^\s/.test(line.slice(wanted.end)) ? "" : " ";
  const before = line.slice(0, wanted.start) + suggestion.text + blank;
  return { line: before + line.slice(wanted.end), caret: before.length };
}

export const commonFields: Record<string, readonly string[]> = {
  pods: ["status.phase", "spec.nodeName", "spec.serviceAccountName"],
  nodes: ["spec.unschedulable", "status.nodeInfo.kubeletVersion"],
  services: ["spec.type"],
  namespaces: ["status.phase"],
  "deployments.apps": ["spec.replicas", "status.readyReplicas"],
  persistentvolumeclaims: ["status.phase", "spec.storageClassName"],
  persistentvolumes: ["status.phase"],
  "jobs.batch": ["status.succeeded"],
};
