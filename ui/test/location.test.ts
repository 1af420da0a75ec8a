import { describe, expect, test } from "vitest";
import { codeIn, format, parse, withValues } from "../src/app/location";
import { find, type Page } from "../src/pages/registry";

describe("the address", () => {
  test.each([
    ["/ui", "/"], ["/ui/", "/"], ["/ui/explore", "/explore"], ["/ui/explore/", "/explore"], ["/ui//members/a/b", "/members/a/b"],
  ])("%s is page %s", (pathname, path) => expect(parse(pathname, "").path).toBe(path));

  test("comes back as it was", () => {
    const params = new URLSearchParams([["q", 'pods ns:shop app="a b"&c'], ["x", "f/a/b/c"], ["x", "f/d/e/f"], ["theme", "dark"]]);
    const text = format("/explore", params);
    const [path = "", query = ""] = text.split("?");
    expect([...parse(path, query).params]).toEqual([...params]);
  });
  test("is written as people read it", () => expect(format("/explore", new URLSearchParams({ open: "fleet/eu-1/shop/web" }))).toBe("/ui/explore?open=fleet/eu-1/shop/web"));
  test("values are set, kept and removed", () => {
    const before = new URLSearchParams("a=1&b=2&c=3");
    expect(withValues(before, { a: null, b: "x", d: ["1", "2"], e: "", f: undefined }).toString()).toBe("c=3&b=x&d=1&d=2");
    expect(before.toString()).toBe("a=1&b=2&c=3");
  });
});

describe("pages", () => {
  const page = (path: string): Page => ({ path, title: path, icon: "x", nav: true, load: () => Promise.reject(new Error()) });
  const all = [page("/"), page("/policies"), page("/members")];
  test.each([
    ["/", "/", []], ["/policies", "/policies", []], ["/policies/a%2Fb", "/policies", ["a/b"]], ["/members/fleet/eu-1", "/members", ["fleet", "eu-1"]], ["/policies/%zz", "/policies", ["%zz"]],
  ])("%s", (path, found, rest) => {
    expect(find(path, all)?.page.path).toBe(found);
    expect(find(path, all)?.rest).toEqual(rest);
  });
  test("what is not there is not found", () => expect(find("/policiesx", all)).toBeUndefined());
});

test("the code of federator ui is in the fragment, where servers do not see it", () => {
  expect([codeIn("#code=ABC-1"), codeIn("#code="), codeIn(""), codeIn("#other=1")]).toEqual(["ABC-1", "", "", ""]);
});
