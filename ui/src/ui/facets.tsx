import { useState } from "preact/hooks";
import { count } from "./format";

export interface FacetValue {
  value: string;
  label?: string;
  count: number;
}

export interface Facet {
  name: string;
  title: string;
  values: FacetValue[];
  chosen: string[];
  truncated?: boolean;
  pending?: string; // why there are no values: not loaded yet, or an error
}

const shown = 8;

// Facets are counts by key beside a list; choosing one narrows the list.
export function Facets({ facets, onChoose, open = false, busy = false }: { facets: readonly Facet[]; onChoose: (name: string, values: string[]) => void; open?: boolean; busy?: boolean }) {
  return <aside class={open ? "facets open" : "facets"} aria-label="Filters" aria-busy={busy}>{facets.map((facet) => <One key={facet.name} facet={facet} onChoose={onChoose} />)}</aside>;
}

function One({ facet, onChoose }: { facet: Facet; onChoose: (name: string, values: string[]) => void }) {
  const [all, setAll] = useState(false);
  const chosen = new Set(facet.chosen);
  const missing = facet.chosen.filter((value) => !facet.values.some((v) => v.value === value)).map((value) => ({ value, count: 0 }));
  const values: FacetValue[] = [...missing, ...facet.values];
  const some = all ? values : values.filter((v, i) => i < shown || chosen.has(v.value));
  const toggle = (value: string) => onChoose(facet.name, chosen.has(value) ? facet.chosen.filter((v) => v !== value) : [...facet.chosen, value]);
  return (
    <section>
      <h2>{facet.title}</h2>
      {values.length === 0 && <span class="dim">{facet.pending ?? "none"}</span>}
      {some.map((v) => (
        <button key={v.value} type="button" aria-pressed={chosen.has(v.value)} title={v.value} onClick={() => toggle(v.value)}>
          <span class="cut">{v.label ?? (v.value === "" ? "(none)" : v.value)}</span><span class="n">{count(v.count)}</span>
        </button>
      ))}
      {values.length > shown && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? "fewer" : `${count(values.length - shown)} more`}</button>}
      {facet.truncated === true && <span class="dim">and others</span>}
    </section>
  );
}
