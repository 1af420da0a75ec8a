import { expect, test } from "vitest";
import type { Finding } from "../../data/types";
import { chosenOf, facetOf, facetPath, keep, listPath, rowsOf, tell, worstFirst } from "./model";

const chosen = chosenOf(new URLSearchParams("policy=a&policy=b&severity=high&exempt=false"));
const finding: Finding = {
  policy: "a", package: "p", severity: "high", revision: "1", state: "Known", subject: { member: "m/1", kind: "Pod", namespace: "n", name: "x" },
  violations: [{ msg: "two replicas", firstSeen: "2026-01-02T00:00:00Z" }, { msg: "odd", exempt: "because", firstSeen: "2026-01-01T00:00:00Z" }],
};

test("the address becomes the question", () => {
  expect(listPath(chosen, 500)).toBe("/query/v1/violations?policy=a&policy=b&severity=high&exempt=false&limit=500");
  expect(listPath({ ...chosen, since: "24h", search: " web " }, 500)).toContain("firstSeenSince=24h&search=web");
});

test("a facet's counts are those of the other filters", () => {
  expect(facetPath(chosen, "policy")).toBe("/query/v1/violations?severity=high&exempt=false&groupBy=policy");
  const facet = facetOf("policy", { revision: "1", synced: true, groups: [{ key: ["a"], subjects: 3, violations: 2, exempt: 1 }] }, chosen);
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

test("the worst is first, and of that the newest", () => {
  const of = (policy: string, severity: string, firstSeen: string): Finding => ({ ...finding, policy, severity, violations: [{ msg: policy, firstSeen }] });
  const rows = rowsOf([of("a", "low", "2026-01-09T00:00:00Z"), of("b", "critical", "2026-01-01T00:00:00Z"), of("c", "critical", "2026-01-02T00:00:00Z"), of("d", "odd", "2026-01-03T00:00:00Z")]);
  expect(worstFirst(rows).map((row) => row.text)).toEqual(["c", "b", "a", "d"]);
});

test("what is not known is not counted as a violation", () => {
  const none: Finding = { ...finding, state: "Unknown", violations: [] };
  expect(tell(rowsOf([finding, none, { ...none, state: "Error" }]))).toBe("2 violations, 1 not known, 1 failed");
});

test("a facet that is not loaded, or cannot be, does not say that there are none", () => {
  expect([facetOf("kind", undefined, chosen).pending, facetOf("kind", undefined, chosen, true).pending, facetOf("kind", { revision: "1", synced: true }, chosen).pending]).toEqual(["…", "not known", undefined]);
});
