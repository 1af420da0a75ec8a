import { expect, test } from "vitest";
import { cut, tokenize } from "../src/pieces/regolines";
import { scalar } from "../src/pieces/yamllines";
import { plain } from "../src/ui/plain";

const turned = "replicas: 3 \u202e0 :sacilper\u202c";

test("what turns or hides text is told by its code", () => {
  expect(plain(turned)).toBe("replicas: 3 ⟨U+202E⟩0 :sacilper⟨U+202C⟩");
  expect(plain("zero\u200bwidth \ufeff\u0007 a\tb\nc ü 日本")).toBe("zero⟨U+200B⟩width ⟨U+FEFF⟩⟨U+0007⟩ a\tb\nc ü 日本");
});

test("so it is in YAML, which diffs are of, and in Rego", () => {
  expect(scalar(turned)).not.toMatch(/[\u202a-\u202e]/);
  expect(tokenize(`# ${turned}`).flat().map((token) => token.text).join("")).not.toMatch(/[\u202a-\u202e]/);
});

test("of a long file so many lines are drawn, around the one that is pointed at", () => {
  expect(cut([[1, 100]], 1_000)).toEqual([[1, 100]]);
  expect(cut([[1, 10_000]], 1_000)).toEqual([[1, 1_000]]);
  expect(cut([[1, 10_000]], 1_000, 9_000)).toEqual([[8_500, 9_499]]);
  expect(cut([[1, 600], [700, 1_500]], 1_000)).toEqual([[1, 600], [700, 1_099]]);
});
