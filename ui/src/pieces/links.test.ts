import { expect, test } from "vitest";
import { findingKey } from "../data/keys";
import { findingHref, objectHref, subjectOf, subjectText } from "./links";

const subject = { member: "fleet/eu-1", kind: "Deployment.apps", namespace: "shop", name: "cart" };

test("the key of a finding names it again", () => {
  expect(subjectOf(findingKey({ policy: "p", subject }))).toEqual({ policy: "p", subject });
  expect(subjectOf(findingKey({ policy: "p", subject: { key: "a|b" } }))).toEqual({ policy: "p", subject: { key: "a|b" } });
  expect(subjectOf(findingKey({ policy: "p", subject: { member: "m/1" } }))).toEqual({ policy: "p", subject: { member: "m/1" } });
  expect(subjectOf("nonsense")).toBeUndefined();
});

test("an object is found by Explore, and a field of it", () => {
  expect(objectHref(subject, "/spec/replicas")).toBe("/ui/explore?q=Deployment.apps+member:fleet/eu-1+ns:shop&open=fleet/eu-1/shop/cart&at=/spec/replicas");
  expect(findingHref("p", subject)).toContain("open=p%7Cfleet/eu-1%7C");
});

test("a subject in words", () => {
  expect([subject, { key: "host" }, { member: "m/1" }, { name: "node-1" }].map(subjectText)).toEqual(["shop/cart", "host", "m/1", "node-1"]);
});
