import { expect, test } from "vitest";
import { answered, nothing } from "../src/data/answer";

const status = (code: number) => ({ kind: "Status" as const, code, message: "no" });
const had = answered(nothing<number>("/a"), "/a", { t: "value", id: 1, value: 7, at: 5 });

test("an answer stays while it cannot be asked again, and says why", () => {
  expect(answered(had, "/a", { t: "error", id: 1, status: status(503), final: false })).toEqual({ value: 7, error: status(503), at: 5, path: "/a" });
});

test("what may not be read any more is not shown any more", () => {
  expect(answered(had, "/a", { t: "error", id: 1, status: status(403), final: true })).toEqual({ value: undefined, error: status(403), at: 0, path: "/a" });
});

test("the error of one question does not keep the answer of another", () => {
  expect(answered(had, "/b", { t: "error", id: 2, status: status(500), final: false }).value).toBeUndefined();
});
