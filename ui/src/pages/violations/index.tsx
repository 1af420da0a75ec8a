import "./violations.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, param, setParams } from "../../app/location";
import { withQuery } from "../../data/api";
import { useLast, useLive, type Live } from "../../data/live";
import type { Series, Violations } from "../../data/types";
import { subjectText } from "../../pieces/links";
import { stableRows, type StableState } from "../../pieces/stable";
import { CopyAs, Empty, Facets, Failed, FilterBox, Freshness, Loading, Lock, SeverityMark, StateMark, Table, ago, count, many, seconds, shortPolicy, useMembers, type Column } from "../../ui";
import { Detail } from "./detail";
import { Groups } from "./groups";
import { chosenOf, commandOf, dayOf, facetOf, facetPath, filters, groupPath, keep, listPath, rowsOf, tell, type Chosen, type Filter, type Row } from "./model";

const first = 500, most = 5000;

const columns: readonly Column<Row>[] = [
  // What is wrong and where must be seen at 1024 pixels.
  { id: "severity", title: "Severity", width: 96, render: (row) => <SeverityMark severity={row.finding.severity} /> },
  { id: "violation", title: "Violation", width: 330, render: (row) => row.finding.state === "Known" ? <>{row.violation?.exempt !== undefined && <span class="pill" title={row.violation.exempt}>exempt</span>} {row.text}</> : <StateMark state={row.finding.state}>{row.text}</StateMark>, text: (row) => row.text },
  { id: "member", title: "Member", width: 180, line: 2, render: (row) => row.finding.subject.member ?? "", text: (row) => row.finding.subject.member ?? "" },
  { id: "subject", title: "Object", width: 210, line: 2, render: (row) => subjectText(row.finding.subject), text: (row) => subjectText(row.finding.subject) },
  { id: "policy", title: "Policy", width: 150, line: 2, render: (row) => shortPolicy(row.finding.policy), text: (row) => row.finding.policy },
  { id: "kind", title: "Kind", width: 130, line: 0, render: (row) => row.finding.subject.kind ?? (row.finding.subject.key === undefined ? "member" : "key"), text: (row) => row.finding.subject.kind ?? "" },
  { id: "seen", title: "First seen", width: 84, right: true, line: 0, render: (row) => ago(row.violation?.firstSeen ?? row.finding.since ?? ""), text: (row) => row.violation?.firstSeen ?? row.finding.since ?? "" },
];

export default function ViolationsPage() {
  const params = address.value.params;
  const chosen = useMemo(() => chosenOf(params), [params]);
  const [limit, setLimit] = useState(first);
  const live = useLast(useLive<Violations>(listPath(chosen, limit)), listPath(chosen, 0));
  const by = params.getAll("by"), open = param("open");
  const [narrowed, setNarrowed] = useState(false);
  return (
    <div class="page">
      <div class="head">
        <h1>Violations</h1>
        <Search value={chosen.search} />
        <button type="button" aria-pressed={chosen.since !== ""} title="Only what was first seen in the last 24 hours" onClick={() => setParams({ since: chosen.since === "" ? "24h" : null })}>Changed since yesterday</button>
        <label class="bar">by <select value={by.join(",")} onChange={(event) => setParams({ by: event.currentTarget.value === "" ? null : event.currentTarget.value.split(","), open: null })}>
          <option value="">violation</option>{filters.map((name) => <option key={name} value={name}>{name}</option>)}<option value="policy,member">policy and member</option>
        </select></label>
        <button type="button" class="facets-toggle" aria-pressed={narrowed} onClick={() => setNarrowed(!narrowed)}>Filters</button>
        <span class="grow" />
        <Freshness at={live.at} {...(live.value === undefined ? {} : { revision: live.value.revision, synced: live.value.synced })} />
        <CopyAs commands={{ kubectl: `kubectl --context fleet get --raw '${listPath(chosen, first)}'`, federator: commandOf(chosen), curl: listPath(chosen, first) }} />
      </div>
      {chosen.since !== "" && <Day chosen={chosen} />}
      <Chips chosen={chosen} />
      {live.value !== undefined && <Gaps answer={live.value} />}
      <div class="body">
        <h2 class="sr">Filters</h2>
        <Filters chosen={chosen} open={narrowed} onDone={() => setNarrowed(false)} />
        {by.length > 0 ? <Groups by={by} chosen={chosen} />
          : <List live={live} chosen={chosen} open={open} limit={limit} more={() => { if (live.path === listPath(chosen, limit)) setLimit(Math.min(most, limit * 2)); }} />}
        {open !== "" && <Detail key={open} open={open} />}
      </div>
    </div>
  );
}

// Search asks the server a moment after the last key.
function Search({ value }: { value: string }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => setParams({ q: text, open: null }, { replace: true }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return <FilterBox label="Search violations" placeholder="message, name, policy  /" value={text} onInput={setText} />;
}

function Filters({ chosen, open, onDone }: { chosen: Chosen; open: boolean; onDone: () => void }) {
  const answers: Record<Filter, Live<Violations>> = {
    policy: useLive<Violations>(facetPath(chosen, "policy")), severity: useLive<Violations>(facetPath(chosen, "severity")),
    member: useLive<Violations>(facetPath(chosen, "member")), namespace: useLive<Violations>(facetPath(chosen, "namespace")),
    kind: useLive<Violations>(facetPath(chosen, "kind")), state: useLive<Violations>(facetPath(chosen, "state")),
  };
  const answer = useLive<Violations>(groupPath({ ...chosen, exempt: "" }, ["state"]));
  const all = answer.value?.groups;
  const sum = (of: "violations" | "exempt") => (all ?? []).reduce((n, group) => n + group[of], 0);
  const order: readonly Filter[] = ["severity", "policy", "member", "namespace", "kind", "state"];
  const facets = [...order.map((name) => facetOf(name, answers[name].value, chosen, answers[name].error !== undefined)), {
    name: "exempt", title: "Exempt", chosen: chosen.exempt === "" ? [] : [chosen.exempt],
    values: all === undefined && answer.value === undefined ? [] : [{ value: "false", label: "not exempt", count: sum("violations") }, { value: "true", label: "exempt", count: sum("exempt") }],
    ...(answer.value === undefined ? { pending: answer.error === undefined ? "…" : "not known" } : {}),
  }];
  return <Facets facets={facets} open={open} busy={answers.policy.value === undefined} onChoose={(name, values) => { setParams({ [name]: name === "exempt" ? values.slice(-1) : values, open: null }); if (open) onDone(); }} />;
}

// Day says how many there were a day ago, and are now: those that were closed are in no list any more.
function Day({ chosen }: { chosen: Chosen }) {
  const l = chosen.lists;
  const narrow = [l.severity, l.namespace, l.kind, l.state].some((list) => list.length > 0) || chosen.exempt !== "" || chosen.search !== "";
  const live = useLive<Series>(narrow ? null : withQuery("/query/v1/series", { policy: l.policy, member: l.member, metric: "violations", hours: 24 }));
  return <p class="chips">Opened in the last 24 hours, and still there. <span class="dim">{narrow ? "How many were closed is only known by policy and member, not with these filters." : live.value === undefined ? live.error === undefined ? "" : `How many were closed is not known: ${live.error.message}` : dayOf(live.value)}</span></p>;
}

// Chips say what narrows the list; each is removed by a click.
function Chips({ chosen }: { chosen: Chosen }) {
  const chips = filters.flatMap((name) => chosen.lists[name].map((value) => ({ name, value })));
  if (chips.length === 0 && chosen.exempt === "") return null;
  return (
    <div class="chips bar">
      {chips.map(({ name, value }) => <button key={`${name}=${value}`} type="button" title="Remove this filter" onClick={() => setParams({ [name]: chosen.lists[name].filter((v) => v !== value) })}>{name}: {value === "" ? "(none)" : name === "policy" ? shortPolicy(value) : value} ✕</button>)}
      {chosen.exempt !== "" && <button type="button" onClick={() => setParams({ exempt: null })}>{chosen.exempt === "true" ? "exempt" : "not exempt"} ✕</button>}
      <button type="button" class="link" onClick={() => setParams({ ...Object.fromEntries(filters.map((name) => [name, null])), exempt: null, since: null, q: null })}>Show all</button>
    </div>
  );
}

// Gaps says which policies' findings are not in the list, and why.
function Gaps({ answer }: { answer: Violations }) {
  const withheld = answer.withheld ?? [], failed = answer.failed ?? [];
  if (withheld.length === 0 && failed.length === 0) return null;
  return (
    <div class="gaps">
      {withheld.length > 0 && <details><summary><Lock /> {many(withheld.length, "policy", "policies")} withheld: you may not read all that {withheld.length === 1 ? "it reads" : "they read"}</summary><p class="dim">{withheld.map(shortPolicy).join(", ")}. Who may list all kinds that they read, in all members, sees what they find.</p></details>}
      {failed.length > 0 && <details class="hatched"><summary><span class="text"><StateMark state="Error">{many(failed.length, "policy", "policies")} failed in part: what {failed.length === 1 ? "it finds" : "they find"} is not complete</StateMark></span></summary><p><span class="text">{failed.map(shortPolicy).join(", ")}</span></p></details>}
    </div>
  );
}

interface ListProps {
  live: Live<Violations>;
  chosen: Chosen;
  open: string;
  limit: number;
  more: () => void;
}

function List({ live, chosen, open, limit, more }: ListProps) {
  const since = chosen.since !== "" ? Date.now() - seconds(chosen.since) * 1000 : 0;
  const cut = live.value?.continue !== undefined && live.value.continue !== "";
  const rows = useMemo(() => keep(rowsOf(live.value?.items ?? []), since, chosen.exempt), [live.value, chosen.since, chosen.exempt]);
  const [turn, setTurn] = useState(0);
  const before = useRef<{ of: string; state: StableState<Row> } | undefined>(undefined);
  const of = `${live.path ?? ""} ${turn}`;
  const loaded = live.value !== undefined;
  const shown = stableRows(rows, (row) => row.key, before.current?.of === of ? before.current.state : undefined);
  useEffect(() => { if (loaded) before.current = { of, state: shown.state }; });
  const revisions = useRef(new Map<string, string>());
  const changed = (row: Row) => { const old = revisions.current.get(row.key); return old !== undefined && old !== row.finding.revision; };
  useEffect(() => { revisions.current = new Map(rows.map((row) => [row.key, row.finding.revision])); });
  const members = useMembers(live.value?.synced);
  if (live.value === undefined) return live.error === undefined ? <Loading rows={14} /> : <Failed status={live.error} />;
  const narrowing = chosen.search !== "" || chosen.since !== "";
  return (
    <Table id="violations" label="Violations" columns={columns} rows={shown.rows} rowKey={(row) => row.key} open={shown.rows.find((row) => open !== "" && row.key.startsWith(`${open}#`))?.key ?? ""}
      onOpen={(row) => setParams({ open: row.key.slice(0, row.key.lastIndexOf("#")) }, { replace: open !== "" })}
      rowClass={(row) => `${row.finding.state === "Known" ? "" : "hatched"}${shown.gone.has(row.key) ? " gone" : ""}${changed(row) ? " flash" : ""}`}
      fresh={shown.waiting} onFresh={() => setTurn(turn + 1)} {...(cut && limit < most ? { onEnd: more } : {})}
      bar={<span class="dim">{tell(rows)}{cut && limit >= most ? ` of the first ${count(most)} objects` : ""}{rows.length > 1 ? ", the worst first" : ""}{cut ? limit >= most ? "; narrow it by a filter" : ", more below" : ""}</span>}
      empty={<Empty title={narrowing ? "Nothing matches" : "No violations"}><p>{narrowing ? "Nothing that you may see matches the search, or is so new, with these filters" : "No policy finds anything that you may see, with these filters"}, at revision {live.value.revision}.{live.value.synced || members === undefined ? "" : members === 0 ? " There is no member of which you may read anything." : " Not all that policies read has been seen yet."}</p></Empty>} />
  );
}
