import "./pieces.css";
import { useMemo, useState } from "preact/hooks";
import { brief, cut, hunks, markOf, pathsOf, tokenize, valueAt, type EvidenceLine } from "./regolines";

export interface RegoProps {
  file: string;
  text: string;
  lines?: readonly EvidenceLine[]; // what was evaluated; none: the source alone
  input?: unknown; // what the policy sees of the subject
  linkOf?: (path: string) => string | undefined; // where a value was read from, such as input.object.spec
  line?: number; // to point at
}

// Rego shows a file with its evidence: the lines that held, how often, and the values that they read.
export function Rego({ file, text, lines, input, linkOf, line }: RegoProps) {
  const tokens = useMemo(() => tokenize(text.replace(/\n$/, "")), [text]);
  const of = useMemo(() => new Map((lines ?? []).filter((l) => l.file === file).map((l) => [l.row, l] as const)), [lines, file]);
  const evaluated = [...of.values()].filter((l) => l.evaluated > 0).map((l) => l.row);
  const [all, setAll] = useState(lines === undefined || evaluated.length === 0);
  const [most, setMost] = useState(1_000);
  const whole: [number, number][] = all || evaluated.length === 0 ? [[1, tokens.length]] : hunks(line === undefined ? evaluated : [...evaluated, line], tokens.length);
  const parts = cut(whole, most, line);
  const left = count(whole) - count(parts);
  return (
    <figure class="rego">
      <figcaption>
        <code>{file}</code>
        {evaluated.length > 0 && <button type="button" class="link" onClick={() => setAll(!all)}>{all ? "only what was evaluated" : `all ${tokens.length} lines`}</button>}
      </figcaption>
      <div class="rego-lines" tabIndex={0} role="group" aria-label={`Source of ${file}`}>
        {parts.map(([from, to], part) => (
          <div key={from} class="rego-part">
            {part > 0 && <div class="rego-gap" aria-hidden="true">⋯</div>}
            {tokens.slice(from - 1, to).map((line_, i) => <Line key={from + i} row={from + i} tokens={line_} evidence={of.get(from + i)} input={input} linkOf={linkOf} here={line === from + i} traced={lines !== undefined} />)}
          </div>
        ))}
        {left > 0 && <button type="button" class="link" onClick={() => setMost(most * 2)}>{left} more lines</button>}
      </div>
    </figure>
  );
}

function count(parts: readonly [number, number][]): number {
  return parts.reduce((n, [from, to]) => n + to - from + 1, 0);
}

interface LineProps {
  row: number;
  tokens: readonly { type: string; text: string }[];
  evidence: EvidenceLine | undefined;
  input: unknown;
  linkOf: ((path: string) => string | undefined) | undefined;
  here: boolean;
  traced: boolean;
}

function Line({ row, tokens, evidence, input, linkOf, here, traced }: LineProps) {
  const mark = markOf(evidence);
  const values = mark === "" || input === undefined ? [] : pathsOf(tokens.map((t) => t.text).join("")).map((path) => ({ path, ...valueAt(input, path) })).filter((v) => v.found || v.path.startsWith("input."));
  const said = mark === "held" ? `held ${evidence?.held ?? 0} of ${evidence?.evaluated ?? 0}` : mark === "failed" ? `did not hold, evaluated ${evidence?.evaluated ?? 0} times` : "";
  return (
    <div class={`rego-line ${mark}${here ? " here" : ""}`}>
      {traced && <span class="rego-mark" title={said}>{mark === "held" ? "●" : mark === "failed" ? "○" : ""}<span class="sr">{said}</span></span>}
      <span class="rego-row">{row}</span>
      <span class="rego-text">
        <code>{tokens.map((token, i) => token.type === "" ? token.text : <span key={i} class={`t-${token.type}`}>{token.text}</span>)}</code>
        {values.length > 0 && <span class="rego-values">{values.map((value) => <Value key={value.path} path={value.path} found={value.found} value={value.value} link={linkOf?.(value.path)} />)}</span>}
      </span>
      {traced && <span class="rego-count" title={said}>{evidence !== undefined && evidence.evaluated > 0 ? `${evidence.held}/${evidence.evaluated}` : ""}</span>}
    </div>
  );
}

function Value({ path, found, value, link }: { path: string; found: boolean; value: unknown; link: string | undefined }) {
  const text = found ? brief(value) : "not set";
  const name = path.split(".").slice(-1)[0] ?? path;
  return link === undefined ? <span class="rego-value" title={path}>{name} = {text}</span> : <a class="rego-value" href={link} title={`${path}: where it was read from`}>{name} = {text}</a>;
}
