import "./pieces.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { around, label, place, stack, ticks, timeAt, type Span } from "./scale";

export type { Span } from "./scale";
export type MarkKind = "commit" | "violation" | "halt" | "end" | "approval" | "action" | "rollback" | "failure";

export interface TimelineMark {
  at: number; // milliseconds
  until?: number; // of what lasts
  kind: MarkKind;
  lane: string;
  text: string;
  href?: string;
}

export interface TimelineProps {
  marks: readonly TimelineMark[];
  lanes: readonly string[];
  now: number;
  span?: Span; // that is chosen
  onSpan?: (span: Span | undefined) => void;
  view?: Span; // that is shown; all of it else
  label?: string;
}

const laneHeight = 24, axis = 22;

// Shapes, so that kinds are told apart without colour.
const shapes: Record<MarkKind, string> = {
  commit: "M0-5L5 0 0 5-5 0z", violation: "M0-5l5 9H-5z", halt: "M-4-4H4V4H-4z", end: "M-4-4H4V4H-4z", approval: "M-5 0l3.5 4L5-4", action: "M0-4a4 4 0 1 1 0 8a4 4 0 1 1 0-8", rollback: "M4-4a5 5 0 1 0 1 5M4-4V0H0", failure: "M-4-4L4 4M-4 4L4-4",
};

// Timeline shows what happened on one axis. Dragging, or Shift with the arrow keys, chooses a span.
export function Timeline({ marks, lanes, now, span, onSpan, view, label: name = "Timeline" }: TimelineProps) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const [drag, setDrag] = useState<{ from: number; to: number } | undefined>(undefined);
  useEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(([entry]) => { if (entry !== undefined) setWidth(Math.max(120, entry.contentRect.width)); });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const left = width < 500 ? 84 : 168, inner = Math.max(40, width - left - 12);
  const shown = useMemo(() => view ?? around(marks.map((m) => m.at), now), [view, marks, now]);
  const rows = useMemo(() => lanes.map((lane) => ({ lane, stacks: stack(marks.filter((m) => m.lane === lane), shown, inner, 20) })), [lanes, marks, shown, inner]);
  const height = axis + lanes.length * laneHeight + 4;
  const xOf = (event: PointerEvent) => event.clientX - (box.current?.getBoundingClientRect().left ?? 0) - left;
  const begin = (event: PointerEvent) => {
    if (onSpan === undefined || event.button !== 0 || (event.target as Element).closest("a") !== null || xOf(event) < 0) return;
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    const at = timeAt(xOf(event), shown, inner);
    setDrag({ from: at, to: at });
  };
  const end = () => {
    if (drag === undefined) return;
    const from = Math.min(drag.from, drag.to), to = Math.max(drag.from, drag.to);
    setDrag(undefined);
    onSpan?.(place(to, shown, inner) - place(from, shown, inner) < 4 ? undefined : { from, to });
  };
  const keys = (event: KeyboardEvent) => {
    if (onSpan === undefined || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return;
    const step = (shown.to - shown.from) / 40 * (event.key === "ArrowLeft" ? -1 : 1);
    const chosen = span ?? { from: shown.from, to: shown.to };
    onSpan(event.shiftKey ? { from: chosen.from, to: Math.max(chosen.from + Math.abs(step), Math.min(shown.to, chosen.to + step)) } : { from: Math.max(shown.from, Math.min(chosen.to - Math.abs(step), chosen.from + step)), to: chosen.to });
    event.preventDefault();
  };
  const brushed = drag === undefined ? span : { from: Math.min(drag.from, drag.to), to: Math.max(drag.from, drag.to) };
  const told = brushed === undefined ? "all" : `${label(brushed.from, shown)} to ${label(brushed.to, shown)}`;
  return (
    <div class="timeline" ref={box} style={{ height: `${height}px` }}>
      <svg width={width} height={height} aria-hidden="true" onPointerDown={begin} onPointerMove={(event) => { if (drag !== undefined) setDrag({ ...drag, to: timeAt(xOf(event), shown, inner) }); }} onPointerUp={end}>
        {ticks(shown, inner).map((at) => <g key={at} transform={`translate(${left + place(at, shown, inner)},0)`}><path d={`M0 ${axis - 4}V${height}`} class="tick" /><text y={12} text-anchor="middle">{label(at, shown)}</text></g>)}
        {brushed !== undefined && <rect class="brush" x={left + place(Math.max(brushed.from, shown.from), shown, inner)} y={axis - 2} width={Math.max(1, place(Math.min(brushed.to, shown.to), shown, inner) - place(Math.max(brushed.from, shown.from), shown, inner))} height={height - axis} />}
        {rows.map(({ lane }, i) => <path key={lane} class="lane" d={`M${left} ${axis + (i + 1) * laneHeight}H${width}`} />)}
        {marks.map(({ at, until = at, lane }, i) => until > shown.from && at < shown.to && until > at && <path key={i} class="lasted" d={`M${left + place(Math.max(at, shown.from), shown, inner)} ${axis + lanes.indexOf(lane) * laneHeight + 12}H${left + place(Math.min(until, now, shown.to), shown, inner)}`} />)}
      </svg>
      {rows.map(({ lane, stacks }, i) => (
        <div key={lane} class="timeline-lane" style={{ top: `${axis + i * laneHeight}px`, height: `${laneHeight}px` }}>
          <span class="timeline-name cut" title={lane} style={{ width: `${left - 8}px` }}>{lane}</span>
          {stacks.map((one) => <Stack key={`${one.marks[0]?.at ?? 0} ${one.marks[0]?.text ?? ""}`} marks={one.marks} x={left + one.x} />)}
        </div>
      ))}
      {onSpan !== undefined && <div class="timeline-brush" role="slider" tabIndex={0} aria-label={`${name}: span. Arrow keys move its start, with Shift its end`} aria-valuemin={0} aria-valuemax={100}
        aria-valuenow={brushed === undefined ? 0 : Math.round(place(brushed.from, shown, 100))} aria-valuetext={told} onKeyDown={keys} style={{ left: `${left}px`, width: `${inner}px` }} />}
    </div>
  );
}

function Stack({ marks, x }: { marks: readonly TimelineMark[]; x: number }) {
  const first = marks[0];
  if (first === undefined) return null;
  const worst = marks.find((m) => m.kind === "failure" || m.kind === "halt") ?? first;
  const text = marks.length === 1 ? `${new Date(first.at).toLocaleTimeString("en-GB")} ${first.text}` : `${marks.length}: ${marks.slice(0, 8).map((m) => m.text).join("; ")}${marks.length > 8 ? " …" : ""}`;
  const inner = <>
    <svg width="16" height="16" viewBox="-8 -8 16 16" aria-hidden="true"><path d={shapes[worst.kind]} class={`mark-${worst.kind}`} /></svg>
    {marks.length > 1 && <small aria-hidden="true">{marks.length}</small>}
  </>;
  const place_ = { left: `${x - 8}px` };
  return first.href === undefined ? <span class="timeline-mark" role="img" aria-label={text} title={text} style={place_}>{inner}</span> : <a class="timeline-mark" href={first.href} aria-label={text} title={text} style={place_}>{inner}</a>;
}
