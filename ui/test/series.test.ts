import { expect, test } from "vitest";
import { rateNow, someKnown } from "../src/data/series";
import type { Series } from "../src/data/types";

const series = (...all: [string, string, (number | null)[]][]): Series => ({ stepSeconds: 300, start: "2026-01-01T00:00:00Z", series: all.map(([policy, member, values]) => ({ policy, member, metric: "violations", values })) });

test("the rate is of the last step that is known", () => {
  expect(rateNow(series(["", "f/a", [3, 300, null]], ["", "f/b", [null, 600, null]]))).toBe(3);
  expect(rateNow(series())).toBeUndefined();
  expect(rateNow(series(["", "f/a", [null]]))).toBeUndefined();
});

test("nothing known is not a line", () => expect([someKnown([null, null]), someKnown([null, 0])]).toEqual([false, true]));
