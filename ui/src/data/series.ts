// Series are sums of what the server has by policy and member. A step of which any part is not known is not known.
import type { Series } from "./types";

type Values = (number | null)[];

// rateNow is how many a second there were in the last step that is known, over all series.
export function rateNow(series: Series): number | undefined {
  const length = Math.max(0, ...series.series.map((one) => one.values.length));
  for (let i = length - 1; i >= 0; i--) {
    const values = series.series.map((one) => one.values[i] ?? null).filter((value) => value !== null);
    if (values.length > 0) return values.reduce((a, b) => a + b, 0) / series.stepSeconds;
  }
  return undefined;
}

// noneOf says that there was none, where that is known.
export function noneOf({ known, partial }: Series, text: string): string {
  return known.some((is) => is) ? `${text}${partial === true ? ". What you may not read is not counted" : ""}.` : "Not known yet.";
}

// someKnown says whether anything is known at all.
export function someKnown(values: Values): boolean {
  return values.some((value) => value !== null);
}
