// JSON as lines of YAML, each with its path, so that a view can fold and search them.
import { plain } from "../ui/plain";

export interface YamlLine {
  path: string; // a JSON pointer
  depth: number;
  text: string;
  folds: boolean; // lines below belong to it
  inside: number; // how many of them
  redacted: boolean;
}

const bare = /^[A-Za-z_/][\w./@-]*(?: [\w./@-]+)*$/;
const words = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"]);

export function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  return bare.test(value) && !words.has(value.toLowerCase()) ? value : plain(JSON.stringify(value));
}

export function pointer(path: string, key: string | number): string {
  return `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

// isRedacted reports whether a value stands for one that is not kept.
export function isRedacted(value: unknown): boolean {
  return typeof value === "string" && /^(?:<redacted>|\*{3,}|redacted:.*|sha256:redacted.*)$/i.test(value);
}

export function yamlLines(value: unknown, redacted: (path: string, value: unknown) => boolean = (_, v) => isRedacted(v)): YamlLine[] {
  const lines: YamlLine[] = [];
  const walk = (node: unknown, path: string, depth: number, lead: string) => {
    if (typeof node === "object" && node !== null && Object.keys(node).length > 0) {
      const at = lines.length;
      const list = Array.isArray(node);
      if (lead !== "") lines.push({ path, depth, text: lead, folds: true, inside: 0, redacted: false });
      for (const [key, child] of Object.entries(node)) {
        const below = lead === "" ? depth : depth + 1;
        const name = list ? "-" : `${scalar(key)}:`;
        walk(child, pointer(path, key), below, name);
      }
      const head = lines[at];
      if (lead !== "" && head !== undefined) head.inside = lines.length - at - 1;
      return;
    }
    const text = Array.isArray(node) ? "[]" : typeof node === "object" && node !== null ? "{}" : scalar(node);
    lines.push({ path, depth, text: lead === "" ? text : `${lead} ${text}`, folds: false, inside: 0, redacted: redacted(path, node) });
  };
  walk(value, "", 0, "");
  return lines;
}

// visible leaves out what lies below folded lines.
export function visible(lines: readonly YamlLine[], folded: ReadonlySet<string>): number[] {
  const shown: number[] = [];
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    if (line === undefined) continue;
    shown.push(i);
    if (line.folds && folded.has(line.path)) i += line.inside;
  }
  return shown;
}

export function search(lines: readonly YamlLine[], text: string): number[] {
  const wanted = text.toLowerCase();
  return wanted === "" ? [] : lines.flatMap((line, i) => line.text.toLowerCase().includes(wanted) || line.path.toLowerCase().includes(wanted) && !line.folds ? [i] : []);
}

// above are the paths that must be open so that a line can be seen.
export function above(path: string): string[] {
  const parts = path.split("/").slice(1, -1);
  return parts.map((_, i) => `/${parts.slice(0, i + 1).join("/")}`);
}
