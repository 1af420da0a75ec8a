// Rego by lines: tokens of prism's grammar, never its HTML.
import Prism from "prismjs/components/prism-core";
import "prismjs/components/prism-rego";
import { plain } from "../ui/plain";

(Prism as { manual?: boolean }).manual = true; // it must not look through the page

export interface Token {
  type: string; // "" for plain text
  text: string;
}

export interface EvidenceLine {
  file: string;
  row: number;
  text?: string;
  evaluated: number;
  held: number;
  rule?: boolean;
}

type Piece = string | { type: string; content: Piece | Piece[] };

const colourless = 500_000; // characters from which on colours are not worth the time

// tokenize splits a text into lines of tokens.
export function tokenize(text: string): Token[][] {
  const grammar = Prism.languages["rego"];
  const lines: Token[][] = [[]];
  const add = (type: string, part: string) => {
    part.split("\n").forEach((line, i) => {
      if (i > 0) lines.push([]);
      if (line !== "") lines[lines.length - 1]?.push({ type, text: plain(line) });
    });
  };
  const walk = (piece: Piece | Piece[], type: string) => {
    if (typeof piece === "string") add(type, piece);
    else if (Array.isArray(piece)) for (const one of piece) walk(one, type);
    else walk(piece.content, piece.type);
  };
  walk(grammar === undefined || text.length > colourless ? text : Prism.tokenize(text, grammar) as Piece[], "");
  return lines;
}

export type Mark = "held" | "failed" | "";

// markOf is what a line did: it held, it was evaluated and did not, or nothing of it was evaluated.
export function markOf(line: EvidenceLine | undefined): Mark {
  if (line === undefined || line.evaluated === 0) return "";
  return line.held > 0 ? "held" : "failed";
}

// hunks are the parts of a file around the lines that were evaluated, with so many lines before and after.
export function hunks(rows: readonly number[], total: number, around = 2): [number, number][] {
  const parts: [number, number][] = [];
  for (const row of [...rows].sort((a, b) => a - b)) {
    const from = Math.max(1, row - around), to = Math.min(total, row + around);
    const last = parts[parts.length - 1];
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else parts.push([from, to]);
  }
  return parts;
}

// cut keeps so many lines of the parts, around one that is pointed at.
export function cut(parts: readonly [number, number][], most: number, line = 1): [number, number][] {
  const size = ([from, to]: [number, number]) => to - from + 1;
  if (parts.reduce((n, part) => n + size(part), 0) <= most) return [...parts];
  const kept: [number, number][] = [];
  let room = most;
  const before = Math.max(1, line - Math.floor(most / 2));
  for (const [from, to] of parts) {
    const first = line > 1 ? Math.max(from, before) : from;
    const last = Math.min(to, first + room - 1);
    if (last < first) continue;
    kept.push([first, last]);
    room -= last - first + 1;
  }
  return kept;
}

// pathsOf finds what a line names of the input or of the fleet: input.object.spec.replicas.
export function pathsOf(line: string): string[] {
  const code = line.replace(/"(?:\\.|[^"\\])*"/g, (text) => "x".repeat(text.length)).replace(/#.*$/, "");
  const found = code.match(/\b(?:input|data)(?:\.[A-Za-z_]\w*)+/g) ?? [];
  return [...new Set(found)];
}

// valueAt is the value of a path in the input, and whether there is one.
export function valueAt(input: unknown, path: string): { found: boolean; value?: unknown } {
  let at: unknown = input;
  for (const part of path.split(".").slice(1)) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, part)) return { found: false };
    at = (at as Record<string, unknown>)[part];
  }
  return { found: true, value: at };
}

export function brief(value: unknown, most = 60): string {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
