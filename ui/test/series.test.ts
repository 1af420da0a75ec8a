import { expect, test } from "vitest";
import { rateNow, someKnown, sumByMember } from "../src/data/series";
import type { Series } from "../src/data/types";

const series = (...all: [string, string, (number | null)[]][]): Series => ({ stepSeconds: 300, start: "2026-01-01T00:00:00Z", series: all.map(([policy, member, values]) => ({ policy, member, metric: "violations", values })) });

test("series are added up by member, and what is not known stays so", () => {
  const sums = sumByMember(series(["p", "f/a", [null, 1, 2]], ["q", "f/a", [null, 10, null]], ["p", "f/b", [1, 1, 1]]));
  expect([...sums]).toEqual([["f/a", [null, 11, null]], ["f/b", [1, 1, 1]]]);
});

test("the rate is of the last step that is known", () => {
  expect(rateNow(series(["", "f/a", [3, 300, null]], ["", "f/b", [null, 600, null]]))).toBe(3);
  expect(rateNow(series())).toBeUndefined();
  expect(rateNow(series(["", "f/a", [null]]))).toBeUndefined();
});

test("nothing known is not a line", () => expect([someKnown([null, null]), someKnown([null, 0])]).toEqual([false, true]));
