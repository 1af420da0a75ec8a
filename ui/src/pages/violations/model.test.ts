import { expect, test } from "vitest";
import type { Finding } from "../../data/types";
import { chosenOf, commandOf, dayOf, facetOf, facetPath, keep, listPath, rowsOf, sizeOf, tell } from "./model";

const chosen = chosenOf(new URLSearchParams("policy=a&policy=b&severity=high&exempt=false"));
const finding: Finding = {
  policy: "a", package: "p", severity: "high", revision: "1", state: "Known", subject: { member: "m/1", kind: "Pod", namespace: "n", name: "x" },
  violations: [{ msg: "two replicas", firstSeen: "2026-01-02T00:00:00Z" }, { msg: "odd", exempt: "because", firstSeen: "2026-01-01T00:00:00Z" }],
};

test("the address becomes the question", () => {
  expect(listPath(chosen, 500)).toBe("/query/v1/violations?policy=a&policy=b&severity=high&exempt=false&orderBy=severity&limit=500");
  expect(commandOf(chosen)).toBe("federator violations --order-by severity --policy 'a' --policy 'b' --severity 'high' --exempt 'false'");
  expect(listPath({ ...chosen, since: "24h", search: " web " }, 500)).toContain("firstSeenSince=24h&search=web");
});

test("a facet's counts are those of the other filters", () => {
  expect(facetPath(chosen, "policy")).toBe("/query/v1/violations?severity=high&exempt=false&groupBy=policy");
  const facet = facetOf("policy", { revision: "1", synced: true, groups: [{ key: ["a"], subjects: 3, violations: 2, exempt: 0, unknown: 1, errors: 0 }] }, chosen);
  expect(facet.values).toEqual([{ value: "a", label: "a", count: 2 }]);
  expect(facet.chosen).toEqual(["a", "b"]);
});

test("each violation is a row, and so is what is not known", () => {
  expect(rowsOf([finding]).map((row) => row.text)).toEqual(["two replicas", "odd"]);
  const unknown = { ...finding, state: "Unknown", violations: [], gaps: [{ member: "m/1", kind: "Pod", state: "Stale" }] };
  expect(rowsOf([unknown]).map((row) => row.text)).toEqual(["not known: m/1 Pod Stale"]);
});

test("of a subject with several violations, only those that were asked for are rows", () => {
  const rows = rowsOf([finding]);
  expect(keep(rows, 0, "").map((row) => row.text)).toEqual(["two replicas", "odd"]);
  expect(keep(rows, Date.parse("2026-01-01T12:00:00Z"), "").map((row) => row.text)).toEqual(["two replicas"]);
  expect(keep(rows, 0, "true").map((row) => row.text)).toEqual(["odd"]);
});

test("a number of violations opens a list of as many: what is not known is no violation", () => {
  const partly: Finding = { ...finding, state: "Unknown", gaps: [{ member: "m/1", kind: "Pod", state: "Stale" }] };
  expect(keep(rowsOf([partly]), 0, "false").map((row) => row.text)).toEqual(["two replicas"]);
  expect(keep(rowsOf([partly]), 0, "").length).toBe(3);
});

test("a facet's number is the number of rows", () => {
  const items: Finding[] = [finding, { ...finding, state: "Unknown", gaps: [] }, { ...finding, state: "Error", violations: [] }];
  for (const exempt of ["", "true", "false"]) {
    const of = (is: boolean) => exempt === "" || (exempt === "true") === is ? 2 : 0; // violations that are, or are not
    const group = { key: ["a"], subjects: 3, violations: of(false), exempt: of(true), unknown: 1, errors: exempt === "" ? 1 : 0 };
    expect(sizeOf(group, exempt)).toBe(keep(rowsOf(exempt === "" ? items : items.slice(0, 2)), 0, exempt).length);
  }
});

test("of a day ago and now, what is not known is said to be so", () => {
  const base = { stepSeconds: 8 * 3600, start: new Date(Date.now() - 24 * 3600_000).toISOString(), series: [] };
  const values = [{ policy: "a", metric: "violations", values: [4, 2, 2, 3] }, { policy: "b", metric: "violations", values: [null, 1, 1, 1] }];
  expect(dayOf({ ...base, known: [true, true, true, true] })).toBe("Violations of the policies and members that there are now: 24h ago 0; 0s ago, the newest count, 0. Exempt ones are not counted.");
  expect(dayOf({ ...base, known: [false, false, false, false] })).toContain("a day ago not known; now not known.");
  expect(dayOf({ ...base, known: [true, true, true, true], series: values.slice(0, 1) })).toContain("24h ago 4; 0s ago, the newest count, 3.");
  expect(dayOf({ ...base, known: [true, true, true, true], series: values })).toContain("a day ago not known; 16h ago, the first that is known, 3; 0s ago, the newest count, 4.");
  expect(dayOf({ ...base, known: [true, true, true, false], series: values })).toContain("; 8h ago, the newest count, 3.");
  expect(dayOf({ ...base, known: [true, false, false, false], partial: true })).toContain("now, where you may read all that they evaluate: 24h ago 0; now not known.");
});

test("what is not known is not counted as a violation", () => {
  const none: Finding = { ...finding, state: "Unknown", violations: [] };
  expect(tell(rowsOf([finding, none, { ...none, state: "Error" }]))).toBe("1 violation, 1 exempt, 1 not known, 1 failed");
});

test("a facet that is not loaded, or cannot be, does not say that there are none", () => {
  expect([facetOf("kind", undefined, chosen).pending, facetOf("kind", undefined, chosen, true).pending, facetOf("kind", { revision: "1", synced: true }, chosen).pending]).toEqual(["…", "not known", undefined]);
});
