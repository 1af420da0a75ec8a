import "./explore.css";
import { useEffect, useMemo, useState } from "preact/hooks";
import { href, param, paramList, setParams } from "../../app/location";
import { findKind, kinds, loadKinds, type Kind } from "../../data/kinds";
import { formatQuery, parseQuery, type Query } from "../../data/query";
import { useLive, useOnce } from "../../data/live";
import { useList } from "../../data/uselist";
import type { Count, MemberList } from "../../data/types";
import { CopyAs, Empty, Failed, Loading, type Facet, type FacetValue } from "../../ui";
import { Facets } from "../../ui";
import { commonFields, type Known } from "./complete";
import { QueryLine } from "./line";
import { ObjectList } from "./list";
import { choose, chosenOf, commandsOf, countPath, facetsOf, listOf, membersPath, parseID, type FacetSpec } from "./model";
import { ChosenDrawer } from "./chosen";
import { ObjectDrawer } from "./object";
import { Start } from "./start";

export default function ExplorePage() {
  const line = param("q");
  const parsed = useMemo(() => parseQuery(line), [line]);
  const [failed, setFailed] = useState(""), [loaded, setLoaded] = useState(false);
  useEffect(() => { loadKinds(kinds.value.length === 0).then(() => setLoaded(true)).catch((error: unknown) => setFailed(error instanceof Error ? error.message : String(error))); }, []);
  const kind = findKind(parsed.query.kind, kinds.value);
  const members = useOnce<MemberList>("/query/v1/members?limit=200");
  const [labels, setLabels] = useState<readonly string[]>([]);
  const known: Known = {
    kinds: kinds.value, labels, fields: commonFields[kind?.resource ?? ""] ?? [],
    memberLabels: useMemo(() => [...new Set(members.value?.items.flatMap((m) => Object.keys(m.labels ?? {})))].sort(), [members.value]),
  };
  const run = (q: string) => setParams({ q, open: null, tab: null });
  const bad = parsed.problems.length > 0;
  return (
    <div class="page">
      <h1 class="sr">Explore</h1>
      <div class="head explore-head">
        <QueryLine value={line} known={known} onRun={run} />
        {kind !== undefined && !bad && <CopyAs commands={commandsOf(kind, parsed.query)} />}
      </div>
      <div class="body">
        {failed !== "" ? <Failed status={{ kind: "Status", code: 0, message: failed }} />
          : kinds.value.length === 0 ? loaded ? <Empty title="No kinds"><p>There is no member of which you may read a kind. <a href={href("/")}>See the fleet</a></p></Empty> : <Loading />
          : parsed.query.kind === "" ? <Start />
          : kind === undefined ? <Empty title={`There is no kind ${parsed.query.kind}`}><p>No member that you may read serves it, or you may list it in none. The {kinds.value.length} kinds are suggested as you type.</p></Empty>
          : bad ? <Empty title="This query cannot be asked"><ul>{parsed.problems.map((problem) => <li key={problem.start}>{problem.message}</li>)}</ul></Empty>
          : <Results key={kind.resource} kind={kind} query={parsed.query} onQuery={(query) => run(formatQuery(query))} onLabels={setLabels} />}
      </div>
    </div>
  );
}

function Results({ kind, query, onQuery, onLabels }: { kind: Kind; query: Query; onQuery: (query: Query) => void; onLabels: (labels: readonly string[]) => void }) {
  const list = useList(listOf(kind, query));
  const total = useLive<Count>(countPath(kind, query, "member"));
  const among = useLive<MemberList>(query.members.length > 0 ? null : membersPath(query));
  const [narrowing, setNarrowing] = useState(false);
  const rows = list?.rows.rows;
  const labels = useMemo(() => [...new Set(rows?.slice(0, 250).flatMap((row) => Object.keys(row.object.metadata.labels ?? {})))].sort(), [rows?.length]);
  useEffect(() => onLabels(labels), [labels]);
  const open = param("open");
  const id = open === "" ? undefined : parseID(open);
  const specs = facetsOf(kind, labels);
  return (
    <div class="split">
      <FacetColumn kind={kind} query={query} specs={specs} onQuery={onQuery} open={narrowing} />
      <ObjectList kind={kind} query={query} list={list} total={total.value} members={query.members.length > 0 ? query.members.length : among.value?.summary?.members} open={open} onQuery={onQuery}
        tools={<button type="button" class="facets-toggle" aria-pressed={narrowing} onClick={() => setNarrowing(!narrowing)}>Filters</button>} />
      {id === undefined && param("compare") === "true" && <ChosenDrawer kind={kind} keys={paramList("x")} onClose={() => setParams({ compare: null })} />}
      {id !== undefined && <ObjectDrawer key={open} kind={kind} id={id} onClose={() => setParams({ open: null, tab: null })} hrefOf={(other) => href("/explore", { q: param("q"), open: other, tab: param("tab") })} />}
    </div>
  );
}

function FacetColumn({ kind, query, specs, onQuery, open }: { kind: Kind; query: Query; specs: FacetSpec[]; onQuery: (query: Query) => void; open: boolean }) {
  // A fixed number of hooks, whatever the facets are.
  const one = useFacet(kind, query, specs[0]), two = useFacet(kind, query, specs[1]), three = useFacet(kind, query, specs[2]), four = useFacet(kind, query, specs[3]);
  const facets = [one, two, three, four].filter((facet) => facet !== undefined);
  return <Facets facets={facets} open={open} onChoose={(name, values) => onQuery(choose(query, name, values))} />;
}

function useFacet(kind: Kind, query: Query, spec: FacetSpec | undefined): Facet | undefined {
  const without = spec === undefined ? query : choose(query, spec.name, []);
  const live = useLive<Count>(spec === undefined ? null : countPath(kind, without, spec.name));
  if (spec === undefined) return undefined;
  const values: FacetValue[] = (live.value?.groups ?? []).map((group) => ({ value: group.key[0] ?? "", count: group.count })).filter((value) => value.value !== "");
  return { name: spec.name, title: spec.title, values, chosen: chosenOf(query, spec.name), truncated: live.value?.truncated === true, ...(live.value === undefined ? { pending: live.error === undefined ? "…" : "not known" } : {}) };
}
