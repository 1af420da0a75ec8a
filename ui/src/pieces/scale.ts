// A time axis: places, ticks and spans.
export interface Span {
  from: number; // milliseconds
  to: number;
}

const steps = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800].map((s) => s * 1000);

export function place(at: number, span: Span, width: number): number {
  return span.to <= span.from ? 0 : ((at - span.from) / (span.to - span.from)) * width;
}

export function timeAt(x: number, span: Span, width: number): number {
  return span.from + (Math.min(Math.max(0, x), width) / Math.max(1, width)) * (span.to - span.from);
}

// ticks are round times, about one for each 90 pixels.
export function ticks(span: Span, width: number, offsetMinutes = new Date(span.from).getTimezoneOffset()): number[] {
  const wanted = (span.to - span.from) / Math.max(1, Math.floor(width / 90));
  const step = steps.find((s) => s >= wanted) ?? steps[steps.length - 1] ?? 1000;
  const shift = offsetMinutes * 60_000;
  const found: number[] = [];
  for (let at = Math.ceil((span.from - shift) / step) * step + shift; at <= span.to; at += step) found.push(at);
  return found;
}

// around is a span that holds all times, with some room; of none, the last hour.
export function around(times: readonly number[], now: number): Span {
  const known = times.filter((t) => Number.isFinite(t));
  if (known.length === 0) return { from: now - 3_600_000, to: now };
  let from = Infinity, to = -Infinity;
  for (const t of known) { from = Math.min(from, t); to = Math.max(to, t); }
  const room = Math.max((to - from) * 0.04, 30_000);
  return { from: from - room, to: to + room };
}

export function label(at: number, span: Span): string {
  const date = new Date(at);
  const time = date.toLocaleTimeString("en-GB", span.to - span.from < 600_000 ? {} : { hour: "2-digit", minute: "2-digit" });
  return span.to - span.from > 129_600_000 ? `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}` : time;
}

// stack puts marks that would lie on each other into one, which counts them.
export function stack<T extends { at: number }>(marks: readonly T[], span: Span, width: number, gap = 12): { x: number; marks: T[] }[] {
  const stacks: { x: number; marks: T[] }[] = [];
  for (const mark of [...marks].sort((a, b) => a.at - b.at)) {
    if (mark.at < span.from || mark.at > span.to) continue;
    const x = place(mark.at, span, width), last = stacks[stacks.length - 1];
    if (last !== undefined && x - last.x < gap) last.marks.push(mark);
    else stacks.push({ x, marks: [mark] });
  }
  return stacks;
}
