// A line of a few pixels: values that are not known are gaps, never zero.
export function sparkPath(values: readonly (number | null)[], width: number, height: number, most: number): string {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "", open = false;
  values.forEach((value, i) => {
    if (value === null) { open = false; return; }
    const y = most <= 0 ? height - 1 : height - 1 - (value / most) * (height - 2);
    const next = values[i + 1];
    path += `${open ? "L" : "M"}${round(i * step)} ${round(y)}`;
    if (!open && (next === null || next === undefined)) path += "h1"; // one value alone is a dot
    open = true;
  });
  return path;
}

export function largest(values: readonly (number | null)[]): number {
  let most = 0;
  for (const value of values) if (value !== null && value > most) most = value;
  return most;
}

// lastKnown is the last value, null where it is not known now.
export function lastKnown(values: readonly (number | null)[]): number | null {
  return values[values.length - 1] ?? null;
}

// gaps are the parts, as places in the list, whose values are not known.
export function gaps(values: readonly (number | null)[]): [number, number][] {
  const found: [number, number][] = [];
  values.forEach((value, i) => {
    if (value !== null) return;
    const last = found[found.length - 1];
    if (last !== undefined && last[1] === i - 1) last[1] = i;
    else found.push([i, i]);
  });
  return found;
}

// total adds up series step by step; a step is not known where any of them is not.
export function total(series: readonly { values: readonly (number | null)[] }[]): (number | null)[] {
  const length = Math.max(0, ...series.map((s) => s.values.length));
  return Array.from({ length }, (_, i) => series.reduce<number | null>((sum, s) => {
    const value = s.values[i] ?? null;
    return sum === null || value === null ? null : sum + value;
  }, 0));
}

function round(n: number): number {
  return Math.round(n * 10) / 10;
}
