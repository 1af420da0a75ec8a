// The last 24 hours of the members whose rows are drawn: one question for all of them, after scrolling has come to rest.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, withQuery } from "../../data/api";
import type { Series } from "../../data/types";

export type Values = (number | null)[];

export interface Known { values: Values | undefined; at: number } // without values: it had none in the time that is known

const rest = 250; // ms
const keep = 5 * 60_000; // a step of the series

// missing are those of the drawn members that are not known, or no more.
export function missing(drawn: readonly string[], known: ReadonlyMap<string, Known>, now: number): string[] {
  return drawn.filter((name) => now - (known.get(name)?.at ?? -Infinity) >= keep);
}

// withSeries is known with an answer about some members: one that is not in it had none where all is known.
export function withSeries(known: ReadonlyMap<string, Known>, asked: readonly string[], series: Series, at: number): Map<string, Known> {
  const next = new Map(known), some = series.truncated !== true && series.known.some((is) => is);
  for (const name of asked) next.set(name, { values: some ? undefined : [], at });
  for (const one of series.series) if (one.member !== undefined) next.set(one.member, { values: one.values, at });
  return next;
}

export interface Trends {
  known: ReadonlyMap<string, Known>;
  onWindow(first: number, end: number): void;
}

export function useTrends(names: readonly string[]): Trends {
  const [known, setKnown] = useState<ReadonlyMap<string, Known>>(new Map());
  const [drawn, onWindow] = useWindow();
  const latest = useRef({ names, known });
  latest.current = { names, known };
  const order = names.join(" ");
  useEffect(() => {
    const abort = new AbortController();
    const look = async () => {
      const asked = document.hidden ? [] : missing(latest.current.names.slice(...drawn), latest.current.known, Date.now());
      if (asked.length === 0) return;
      const series = await get<Series>(withQuery("/query/v1/series", { metric: "violations", hours: 24, groupBy: "member", member: asked }), { signal: abort.signal });
      setKnown(withSeries(latest.current.known, asked, series, Date.now()));
    };
    const quietly = () => void look().catch(() => {}); // what is not known stays so, and is asked for again
    const timer = setTimeout(quietly, rest), again = setInterval(quietly, keep / 5);
    return () => { abort.abort(); clearTimeout(timer); clearInterval(again); };
  }, [drawn, order]);
  return { known, onWindow };
}

function useWindow(): [[number, number], (first: number, end: number) => void] {
  const [drawn, set] = useState<[number, number]>([0, 0]);
  return [drawn, useMemo(() => (first: number, end: number) => set([first, end]), [])];
}
