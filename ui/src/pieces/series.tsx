import "uplot/dist/uPlot.min.css";
import "./pieces.css";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { largest, lastKnown, sparkPath } from "./sparkline";

// Sparkline is a trend in a row. Give all sparklines of a row the same most, or say that they differ.
export function Sparkline({ values, most, width = 96, height = 18, label }: { values: readonly (number | null)[]; most?: number; width?: number; height?: number; label: string }) {
  const known = values.some((value) => value !== null);
  const now = lastKnown(values);
  const text = known ? `${label}: ${now === null ? "not known now" : now}` : `${label}: not known`;
  return (
    <svg class={known ? "spark" : "spark unknown"} width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text}>
      {known ? <path d={sparkPath(values, width - 2, height, most ?? largest(values))} /> : <path class="none" d={`M0 ${height / 2}H${width}`} />}
    </svg>
  );
}

export interface TrendLine {
  name: string;
  values: readonly (number | null)[];
  colour: "accent" | "critical" | "high" | "medium" | "low" | "ok" | "unknown"; // a CSS variable
}

export interface TrendProps {
  start: string;
  stepSeconds: number;
  lines: readonly TrendLine[];
  height?: number;
  theme?: string;
}

// Trend draws series over time; where they are not known, there is a gap.
export function Trend({ start, stepSeconds, lines, height = 160, theme = "" }: TrendProps) {
  const box = useRef<HTMLDivElement>(null), plot = useRef<uPlot | undefined>(undefined);
  const names = lines.map((line) => `${line.name} ${line.colour}`).join("|");
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const style = getComputedStyle(element);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis: uPlot.Axis = { stroke: colour("fg3"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const made = new uPlot({
      width: element.clientWidth || 400, height,
      legend: { show: true, live: true },
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
      axes: [{ ...axis, values: [[86_400, "{DD}/{MM}"], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, text]) => [step, text, null, null, null, null, null, null, 1]) as (string | number | null)[][] }, { ...axis, size: 44 }],
      series: [{ value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...lines.map((line) => ({ label: line.name, stroke: colour(line.colour === "unknown" ? "unknown-fill" : line.colour), width: 1.5, spanGaps: false, points: { show: false } }))],
    }, dataOf(start, stepSeconds, lines), element);
    plot.current = made;
    const observer = new ResizeObserver(([entry]) => { if (entry !== undefined && entry.contentRect.width > 0) made.setSize({ width: entry.contentRect.width, height }); });
    observer.observe(element);
    return () => { observer.disconnect(); made.destroy(); plot.current = undefined; };
  }, [names, height, theme]);
  useEffect(() => { plot.current?.setData(dataOf(start, stepSeconds, lines)); }, [start, stepSeconds, lines]);
  const told = lines.map((line) => `${line.name}: ${lastKnown(line.values) ?? "not known"} now`).join(", ");
  return <div class="trend" role="img" aria-label={told} ref={box} />;
}

function dataOf(start: string, stepSeconds: number, lines: readonly TrendLine[]): uPlot.AlignedData {
  const from = Date.parse(start) / 1000;
  const length = Math.max(0, ...lines.map((line) => line.values.length));
  return [Array.from({ length }, (_, i) => from + i * stepSeconds), ...lines.map((line) => Array.from({ length }, (_, i) => line.values[i] ?? null))];
}
