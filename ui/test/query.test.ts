import { describe, expect, test } from "vitest";
import { formatQuery, parseQuery, selectorsOf, tokenize } from "../src/data/query";
import { complete, insert } from "../src/pages/explore/complete";
import { choose, chosenOf, countPath, parseID } from "../src/pages/explore/model";
import type { Kind } from "../src/data/kinds";

const pods: Kind = { resource: "pods", kind: "Pod", group: "", version: "v1", plural: "pods", namespaced: true, short: ["po"] };

describe("the query line", () => {
  test.each([
    ["pods", "", ""],
    ["pods member:fleet/eu-1", "federator.dev/member=fleet.eu-1", ""],
    ["pods member:fleet/eu-1,fleet/eu-2", "federator.dev/member in (fleet.eu-1,fleet.eu-2)", ""],
    ["pods member.env=prod", "member.federator.dev/env=prod", ""],
    ["pods app=web", "app=web", ""],
    ["pods app==web", "app=web", ""],
    ["pods app=a,b", "app in (a,b)", ""],
    ["pods app!=a,b", "app notin (a,b)", ""],
    ["pods label:canary", "canary", ""],
    ["pods -label:canary", "!canary", ""],
    ["pods -label:app=web", "app!=web", ""],
    ["pods app.kubernetes.io/name=web", "app.kubernetes.io/name=web", ""],
    ["pods status.phase=Running", "", "status.phase=Running"],
    ["pods status.phase!=Running name:web", "", "metadata.name=web,status.phase!=Running"],
    ["pods field:type=Opaque", "", "type=Opaque"],
    ["pods label:spec.x=y", "spec.x=y", ""],
    ['pods field:metadata.annotations.note="two words"', "", "metadata.annotations.note=two words"],
    ['pods field:x="a,b=c"', "", "x=a\\,b\\=c"],
  ])("%s", (line, labelSelector, fieldSelector) => {
    const { query, problems } = parseQuery(line);
    expect(problems).toEqual([]);
    expect(query.kind).toBe("pods");
    expect(selectorsOf(query)).toEqual({ labelSelector, fieldSelector });
    expect(selectorsOf(parseQuery(formatQuery(query)).query)).toEqual({ labelSelector, fieldSelector });
  });

  test.each([
    ["pods web", "say what web is: name:web, ns:web or label:web"],
    ["pods ns:a ns:b", "one namespace at a time"],
    ["pods name:a name:b", "one name at a time"],
    ["pods member:eu-1", "a member is written <namespace>/<name>, not eu-1"],
    ["pods status.phase=a,b", "the field status.phase has one value; labels may have several"],
    ["pods app=a!", "a! cannot be of a label"],
    ["pods ns:", "ns: needs a value"],
    ["pods -ns:a", "-ns: is not supported; only -label: is"],
  ])("%s is refused", (line, message) => {
    const { problems } = parseQuery(line);
    expect(problems.map((problem) => problem.message)).toEqual([message]);
    expect(line.slice(problems[0]?.start, problems[0]?.end)).toBe(line.split(" ").pop());
  });

  test("the kind may come as kind:", () => expect(parseQuery("ns:shop kind:pods").query).toMatchObject({ kind: "pods", namespace: "shop" }));
  test("nothing is a query, too", () => expect(parseQuery("  ")).toMatchObject({ problems: [], tokens: [] }));
  test("a quote that is not closed ends with the line", () => expect(tokenize('a "b c').map((t) => t.text)).toEqual(["a", '"b c']));
});

describe("facets", () => {
  const { query } = parseQuery("pods app=web status.phase=Running");
  test("say what is chosen", () => {
    expect(chosenOf(query, "label:app")).toEqual(["web"]);
    expect(chosenOf(query, "field:status.phase")).toEqual(["Running"]);
    expect(chosenOf(query, "namespace")).toEqual([]);
  });
  test("change one part of the query", () => {
    expect(formatQuery(choose(query, "label:app", ["web", "api"]))).toBe("pods app=web,api status.phase=Running");
    expect(formatQuery(choose(query, "field:status.phase", []))).toBe("pods app=web");
    expect(formatQuery(choose(query, "namespace", ["a", "b"]))).toBe("pods ns:b app=web status.phase=Running");
    expect(formatQuery(choose(query, "member", ["f/a", "f/b"]))).toBe("pods member:f/a,f/b app=web status.phase=Running");
  });
  test("are counted", () => expect(countPath(pods, parseQuery("pods ns:shop app=web").query, "member")).toBe("/query/v1/count?resource=pods&groupBy=member&namespace=shop&labelSelector=app%3Dweb"));
});

describe("completion", () => {
  const known = { kinds: [{ resource: "pods", kind: "Pod", short: ["po"] }, { resource: "podtemplates", kind: "PodTemplate", short: [] }], labels: ["app"], memberLabels: ["env"], fields: ["status.phase"] };
  test("of kinds", () => expect(complete("po", 2, known).suggestions.map((s) => s.text)).toEqual(["pods", "podtemplates"]));
  test("of keys", () => expect(complete("pods ", 5, known).suggestions.map((s) => s.text)).toEqual(["ns:", "name:", "member:", "app=", "status.phase=", "member.env="]));
  test.each([
    ["pods ns:sh", "namespace", "ns:", "sh"],
    ["pods member:f/a,f/", "member", "member:f/a,", "f/"],
    ["pods app=we", "label:app", "app=", "we"],
    ["pods status.phase=R", "field:status.phase", "status.phase=", "R"],
    ["pods member.env=p", "memberLabel:env", "member.env=", "p"],
    ["pods app!=a,b", "label:app", "app!=a,", "b"],
  ])("of values: %s", (line, groupBy, prefix, typed) => expect(complete(line, line.length, known).values).toEqual({ groupBy, prefix, typed }));
  test("takes the place of the token", () => {
    const wanted = complete("pods ap x", 7, known);
    expect(insert("pods ap x", wanted, { text: "app=", open: true })).toEqual({ line: "pods app= x", caret: 9 });
    expect(insert("po", { start: 0, end: 2 }, { text: "pods" })).toEqual({ line: "pods ", caret: 5 });
  });
});

test("the key of a row names an object", () => {
  expect(parseID("fleet/eu-1/shop/web")).toEqual({ member: "fleet/eu-1", namespace: "shop", name: "web" });
  expect(parseID("fleet/eu-1//node-1")).toEqual({ member: "fleet/eu-1", namespace: "", name: "node-1" });
  expect(parseID("x")).toBeUndefined();
});
