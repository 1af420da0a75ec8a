import { expect, test } from "vitest";
import type { Finding, PolicyInfo } from "../../data/types";
import { byWhom, remediesOf, waitingOf } from "./model";

const policy = (more: Partial<PolicyInfo>): PolicyInfo => ({ name: "p", package: "p", severity: "low", ...more });

test("halts come first, with their Plan, and a Plan of a halt is not listed twice", () => {
  const halt = { id: "h1", reason: "OverLimit" };
  const plans = [{ name: "p-1", hash: "1", purpose: "Halt", state: "Waiting" }];
  const waits = waitingOf([policy({ name: "q", plans: [{ name: "q-1", hash: "2", purpose: "Rollback", state: "Waiting" }] }), policy({ halted: halt, plans })]);
  expect(waits.map((w) => [w.policy.name, w.halt, w.plan, w.title])).toEqual([["p", "h1", "p-1", "halted: OverLimit"], ["q", "", "q-1", "a rollback waits for approval"]]);
});

test("what has been approved does not wait", () => {
  expect(waitingOf([policy({ plans: [{ name: "p-1", hash: "1", purpose: "Generation", state: "Approved" }] })])).toEqual([]);
});

test("targets of violations are listed once", () => {
  const target = { kind: "Deployment.apps", namespace: "shop", name: "web" };
  const finding: Finding = { policy: "p", package: "p", severity: "low", state: "Known", revision: "1", subject: { member: "m/1" }, violations: [{ msg: "a", remedy: { action: "patch", target } }, { msg: "b", remedy: { action: "patch", target } }, { msg: "c" }] };
  expect(remediesOf([finding])).toEqual([{ plan: "", member: "m/1", verb: "patch", remedy: "", ...target }]);
});

test("who has stopped, and why, is not told as missing where it is not sent", () => {
  const stop = { scope: "policy", name: "p" };
  expect(byWhom({ ...stop, by: "ann", reason: "4711" })).toBe("by ann: 4711");
  expect(byWhom(stop)).toBe("by somebody: no reason is given");
  expect(byWhom({ ...stop, hubForbidden: "list fleetpolicies.federator.dev" })).toBe("(by whom and why is not shown: you lack list fleetpolicies.federator.dev on the hub)");
});
