import { sparkPath } from "../../pieces/sparkline";

// Spark is a small line. All that are compared share one scale; where nothing is known it has a gap.
export function Spark({ values, most, label, width = 92, height = 18 }: { values: readonly (number | null)[]; most: number; label: string; width?: number; height?: number }) {
  return <svg width={width} height={height} role="img" aria-label={label} class="spark"><path d={sparkPath(values, width, height, most)} fill="none" stroke="currentColor" stroke-width="1.5" /></svg>;
}
