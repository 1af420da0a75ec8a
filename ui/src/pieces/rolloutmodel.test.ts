import { expect, test } from "vitest";
import type { Candidate, FleetPolicy } from "../data/policytypes";
import { candidateOf, evidenceText, stepsOf } from "./rolloutmodel";

const candidate: Candidate = { digest: "a", phase: "Shadow", began: "", since: "" };
const policy: FleetPolicy = { apiVersion: "", kind: "", metadata: { name: "p" }, spec: { waves: [{ name: "canary" }, { name: "rest" }] } };

test("a version passes its shadow, and then one wave after another", () => {
  const states = (c: Candidate) => stepsOf(c, policy).map((s) => `${s.name}: ${s.state}`);
  expect(states(candidate)).toEqual(["in shadow: now", "wave canary: to come", "wave rest: to come", "in effect everywhere: to come"]);
  expect(states({ ...candidate, phase: "Waves", waves: 1 })).toEqual(["in shadow: passed", "wave canary: now", "wave rest: to come", "in effect everywhere: to come"]);
  expect(states({ ...candidate, phase: "Waves", waves: 2 })).toEqual(["in shadow: passed", "wave canary: passed", "wave rest: now", "in effect everywhere: to come"]);
  expect(states({ ...candidate, phase: "Promoted" })).toEqual(["in shadow: passed", "wave canary: passed", "wave rest: passed", "in effect everywhere: passed"]);
});

test("a FleetPolicy without a rollout has no candidate", () => {
  expect(candidateOf(undefined)).toBeUndefined();
  expect(candidateOf(policy)).toBeUndefined();
  expect(candidateOf({ ...policy, status: { rollout: { candidate } } })).toBe(candidate);
});

test("evidence, in words", () => {
  expect(evidenceText({ subjects: 9, new: 1, gone: 2, errors: 0 })).toBe("1 new violation, 2 gone");
  expect(evidenceText({ subjects: 9, new: 0, gone: 0, errors: 3, cost: 180 })).toBe("0 new violations, 0 gone, it fails on 3 more, takes 180% of the time");
});
