// The query line of Explore: what people write, as selectors of the query API, and back.
//
//   pods member:fleet/eu-1 member.env=prod ns:shop name:web app=web status.phase=Running -label:canary
//
// The first word is the kind. Keys that begin with spec., status. or metadata. are fields, all others are labels.

export interface Term {
  key: string;
  op: "=" | "!=" | "exists" | "missing";
  values: string[];
}

export interface Query {
  kind: string;
  members: string[];
  memberLabels: Term[];
  namespace: string;
  name: string;
  labels: Term[];
  fields: Term[];
}

export interface Token {
  text: string;
  start: number;
  end: number;
}

export interface Problem {
  start: number;
  end: number;
  message: string;
}

export interface Parsed {
  query: Query;
  problems: Problem[];
  tokens: Token[];
}

const fieldRoots = /^(spec|status|metadata)\./;

export function empty(): Query {
  return { kind: "", members: [], memberLabels: [], namespace: "", name: "", labels: [], fields: [] };
}

// tokenize splits at blanks; what is between double quotes is of one piece.
export function tokenize(line: string): Token[] {
  const tokens: Token[] = [];
  let start = -1, quoted = false;
  for (let i = 0; i <= line.length; i++) {
    const c = line[i];
    if (c === undefined || (!quoted && /\s/.test(c))) {
      if (start >= 0) tokens.push({ text: line.slice(start, i), start, end: i });
      start = -1;
      continue;
    }
    if (start < 0) start = i;
    if (c === '"') quoted = !quoted;
  }
  return tokens;
}

export function parseQuery(line: string): Parsed {
  const tokens = tokenize(line);
  const parsed: Parsed = { query: empty(), problems: [], tokens };
  tokens.forEach((token, i) => {
    const message = take(parsed.query, token.text, i === 0);
    if (message !== "") parsed.problems.push({ start: token.start, end: token.end, message });
  });
  return parsed;
}

// take adds a token to a query. It returns what is wrong with it, or "".
function take(query: Query, text: string, first: boolean): string {
  const prefixed = /^(-?)(kind|member|namespace|ns|name|label|field):(.*)$/s.exec(text);
  if (prefixed !== null) {
    const [, minus = "", what = "", rest = ""] = prefixed;
    if (rest === "") return `${what}: needs a value`;
    if (minus === "-" && what !== "label") return `-${what}: is not supported; only -label: is`;
    return takePrefixed(query, what, rest, minus === "-");
  }
  const term = termOf(text);
  if (term === undefined) {
    if (!first) return `say what ${text} is: name:${text}, ns:${text} or label:${text}`;
    query.kind = text;
    return "";
  }
  if (term.key.startsWith("member.")) {
    query.memberLabels.push({ ...term, key: term.key.slice("member.".length) });
    return "";
  }
  return fieldRoots.test(term.key) && !term.key.includes("/") ? takeField(query, term) : takeLabel(query, term);
}

function takePrefixed(query: Query, what: string, rest: string, minus: boolean): string {
  switch (what) {
    case "kind":
      query.kind = rest;
      return "";
    case "member": {
      const names = rest.split(",").filter((name) => name !== "");
      const wrong = names.find((name) => !/^[^/]+\/[^/]+$/.test(name));
      if (wrong !== undefined) return `a member is written <namespace>/<name>, not ${wrong}`;
      query.members.push(...names);
      return "";
    }
    case "ns": case "namespace":
      if (query.namespace !== "" || rest.includes(",")) return "one namespace at a time";
      query.namespace = rest;
      return "";
    case "name":
      if (query.name !== "" || rest.includes(",")) return "one name at a time";
      query.name = unquote(rest);
      return "";
    case "field": {
      const term = termOf(rest);
      return term === undefined ? `field:${rest} needs = or != and a value` : takeField(query, term);
    }
    default: {
      const term = termOf(rest) ?? { key: rest, op: minus ? "missing" as const : "exists" as const, values: [] };
      if (minus && term.op === "=") term.op = "!=";
      return takeLabel(query, term);
    }
  }
}

function takeField(query: Query, term: Term): string {
  if (term.values.length !== 1) return `the field ${term.key} has one value; labels may have several`;
  query.fields.push({ ...term, key: term.key.replace(/^\./, "") });
  return "";
}

function takeLabel(query: Query, term: Term): string {
  const wrong = [...term.values, term.key.split("/").pop() ?? ""].find((part) => part !== "" && !/^[\w]([\w.-]*\w)?$/.test(part));
  if (wrong !== undefined) return `${wrong} cannot be of a label`;
  query.labels.push(term);
  return "";
}

function termOf(text: string): Term | undefined {
  const found = /^([^=!"]+)(==|!=|=)(.*)$/s.exec(text);
  if (found === null) return undefined;
  const [, key = "", op = "", rest = ""] = found;
  const values = rest.startsWith('"') ? [unquote(rest)] : rest.split(",");
  return { key, op: op === "!=" ? "!=" : "=", values };
}

function unquote(text: string): string {
  return text.startsWith('"') ? text.slice(1, text.endsWith('"') && text.length > 1 ? -1 : undefined) : text;
}

function quoted(text: string): string {
  return /[\s",]/.test(text) ? `"${text.replaceAll('"', "")}"` : text;
}

// formatQuery writes a query as a line.
export function formatQuery(query: Query): string {
  const words: string[] = [];
  if (query.kind !== "") words.push(query.kind);
  if (query.members.length > 0) words.push(`member:${query.members.join(",")}`);
  for (const term of query.memberLabels) words.push(`member.${formatTerm(term)}`);
  if (query.namespace !== "") words.push(`ns:${query.namespace}`);
  if (query.name !== "") words.push(`name:${quoted(query.name)}`);
  for (const term of query.labels) {
    const plain = term.op === "=" || term.op === "!=";
    words.push(term.op === "missing" ? `-label:${term.key}` : plain && (!fieldRoots.test(term.key) || term.key.includes("/")) ? formatTerm(term) : `label:${formatTerm(term)}`);
  }
  for (const term of query.fields) words.push((fieldRoots.test(term.key) ? "" : "field:") + formatTerm(term));
  return words.join(" ");
}

function formatTerm(term: Term): string {
  return term.op === "exists" || term.op === "missing" ? term.key : `${term.key}${term.op}${term.values.map(quoted).join(",")}`;
}

export interface Selectors {
  labelSelector: string;
  fieldSelector: string;
}

// selectorsOf is what the API is asked for. The namespace is not in it: it is of the path, or a parameter.
export function selectorsOf(query: Query): Selectors {
  const labels: string[] = [];
  if (query.members.length > 0) labels.push(requirement({ key: "federator.dev/member", op: "=", values: query.members.map((name) => name.replace("/", ".")) }));
  for (const term of query.memberLabels) labels.push(requirement({ ...term, key: `member.federator.dev/${term.key}` }));
  for (const term of query.labels) labels.push(requirement(term));
  const fields = query.fields.map((term) => `${term.key}${term.op === "!=" ? "!=" : "="}${escapeField(term.values[0] ?? "")}`);
  if (query.name !== "") fields.unshift(`metadata.name=${escapeField(query.name)}`);
  return { labelSelector: labels.join(","), fieldSelector: fields.join(",") };
}

function requirement(term: Term): string {
  if (term.op === "exists") return term.key;
  if (term.op === "missing") return `!${term.key}`;
  if (term.values.length === 1) return `${term.key}${term.op}${term.values[0] ?? ""}`;
  return `${term.key} ${term.op === "=" ? "in" : "notin"} (${term.values.join(",")})`;
}

function escapeField(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll(",", "\\,").replaceAll("=", "\\=");
}
