import { expect, test } from "vitest";
import { noneOf, rateNow, someKnown } from "../src/data/series";
import type { Series } from "../src/data/types";

const series = (...all: [string, string, (number | null)[]][]): Series => ({ stepSeconds: 300, start: "2026-01-01T00:00:00Z", series: all.map(([policy, member, values]) => ({ policy, member, metric: "violations", values })) });

test("the rate is of the last step that is known", () => {
  expect(rateNow(series(["", "f/a", [3, 300, null]], ["", "f/b", [null, 600, null]]))).toBe(3);
  expect(rateNow(series())).toBeUndefined();
  expect(rateNow(series(["", "f/a", [null]]))).toBeUndefined();
});

test("nothing known is not a line", () => expect([someKnown([null, null]), someKnown([null, 0])]).toEqual([false, true]));

test("none is said of what is known, and of what was counted", () => {
  const of = (known: boolean[], more = {}) => noneOf({ ...series(), known, ...more }, "None");
  expect([of([false, true]), of([true], { partial: true }), of([false]), of([])]).toEqual(["None.", "None. What you may not read is not counted.", "Not known yet.", "Not known yet."]);
});
