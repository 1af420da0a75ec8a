import { expect, test } from "vitest";
import { diffSize, diffText, gatesOf, webLink } from "./model";

test("gates come in the order in which a commit passes them", () => {
  expect(gatesOf([{ type: "Ready", status: "False", reason: "Compile" }, { type: "Fetched", status: "True" }, { type: "Odd", status: "Unknown" }]).map((g) => [g.name, g.state])).toEqual([["Fetched", "passed"], ["Odd", "unknown"], ["Ready", "failed"]]);
});

test("what a commit changes, in words", () => {
  const diff = { commit: "a", appeared: 9, cleared: 0, changed: 1, unknown: 0 };
  expect(diffText(diff)).toBe("9 new, 1 changed");
  expect(diffSize(diff)).toBe(10);
  expect(diffText({ ...diff, appeared: 0, changed: 0 })).toBe("no verdict changes");
});

test("commits of known hosts have a page", () => {
  expect(webLink("git@github.com:acme/policies.git", "abc")).toBe("https://github.com/acme/policies/commit/abc");
  expect(webLink("https://gitlab.com/acme/x", "abc", "a/b.rego", 3)).toBe("https://gitlab.com/acme/x/-/blob/abc/a/b.rego#L3");
  expect(webLink("file:///tmp/x", "abc")).toBeUndefined();
  expect(webLink("https://evil.example/github.com/x", "abc")).toBeUndefined();
});
