// Series are sums of what the server has by policy and member. A step of which any part is not known is not known.
import type { Series } from "./types";

type Values = (number | null)[];

// sumByMember adds up all series of each member. Series that were 0 all the time are not sent.
export function sumByMember(series: Series): Map<string, Values> {
  const sums = new Map<string, Values>();
  for (const one of series.series) {
    const member = one.member ?? "";
    const before = sums.get(member);
    sums.set(member, before === undefined ? [...one.values] : before.map((value, i) => plus(value, one.values[i] ?? null)));
  }
  return sums;
}

function plus(a: number | null, b: number | null): number | null {
  return a === null || b === null ? null : a + b;
}

// rateNow is how many a second there were in the last step that is known, over all series.
export function rateNow(series: Series): number | undefined {
  const length = Math.max(0, ...series.series.map((one) => one.values.length));
  for (let i = length - 1; i >= 0; i--) {
    const values = series.series.map((one) => one.values[i] ?? null).filter((value) => value !== null);
    if (values.length > 0) return values.reduce((a, b) => a + b, 0) / series.stepSeconds;
  }
  return undefined;
}

// someKnown says whether anything is known at all.
export function someKnown(values: Values): boolean {
  return values.some((value) => value !== null);
}
