import "./pieces.css";
import { useState } from "preact/hooks";
import { plain } from "../ui/plain";
import { scalar, yamlLines } from "./yamllines";

export interface FieldChange {
  path: string;
  before?: unknown;
  after?: unknown;
}

// FieldDiff lists what changes field by field. A side that is not there was not set, or is removed.
export function FieldDiff({ changes, label = "Changes" }: { changes: readonly FieldChange[]; label?: string }) {
  if (changes.length === 0) return <p class="dim">No field differs.</p>;
  return (
    <div class="fielddiff-box" tabIndex={0} role="group" aria-label={label}>
      <table class="fielddiff">
        <thead><tr><th scope="col">Field</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
        <tbody>
          {changes.map((change) => (
            <tr key={change.path}>
              <th scope="row"><code>{change.path === "" ? "/" : change.path}</code></th>
              <td class={change.before === undefined ? "" : "del"}><Side value={change.before} sign="−" /></td>
              <td class={change.after === undefined ? "" : "add"}><Side value={change.after} sign="+" /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Side({ value, sign }: { value: unknown; sign: string }) {
  if (value === undefined) return <span class="dim">not set</span>;
  const text = typeof value === "object" && value !== null ? yamlLines(value).map((line) => "  ".repeat(line.depth) + line.text).join("\n") : scalar(value);
  return <pre><span aria-hidden="true">{sign} </span>{text}</pre>;
}

// TextDiff shows a unified diff of text.
export function TextDiff({ text, label = "Diff" }: { text: string; label?: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const [most, setMost] = useState(2_000);
  return (
    <div class="textdiff" tabIndex={0} role="group" aria-label={label}>
      {lines.slice(0, most).map((line, i) => (
        <div key={i} class={line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "dim" : ""}><code>{line === "" ? " " : plain(line)}</code></div>
      ))}
      {lines.length > most && <button type="button" class="link" onClick={() => setMost(most * 2)}>{lines.length - most} more lines</button>}
    </div>
  );
}
