import "./pieces.css";
import { useMemo, useState } from "preact/hooks";
import { compare } from "./objectdiff";
import { plain } from "../ui/plain";
import { scalar } from "./yamllines";

export interface CompareColumn {
  title: string;
  object: unknown; // undefined: not there
  href?: string;
  note?: string; // why it is not there, or not fresh
}

// Compare shows the same object in several members beside each other. Only what differs is unfolded.
export function Compare({ columns }: { columns: readonly CompareColumn[] }) {
  const rows = useMemo(() => compare(columns.map((column) => column.object)), [columns]);
  const [all, setAll] = useState(false);
  const differing = rows.filter((row) => row.differs);
  const shown = all ? rows : differing;
  return (
    <div class="compare">
      <div class="compare-bar">
        <span>{differing.length === 0 ? `The same in all ${columns.length}` : `${differing.length} of ${rows.length} fields differ`}</span>
        <button type="button" class="link" aria-pressed={all} onClick={() => setAll(!all)}>{all ? "only what differs" : `all ${rows.length} fields`}</button>
      </div>
      <div class="compare-box" tabIndex={0} role="group" aria-label="The same object in several members">
        <table>
          <thead><tr><th scope="col">Field</th>{columns.map((column) => (
            <th key={column.title} scope="col">{column.href === undefined ? column.title : <a href={column.href}>{column.title}</a>}{column.note !== undefined && <div class="dim">{column.note}</div>}</th>
          ))}</tr></thead>
          <tbody>{shown.map((row) => <Row key={row.path} path={row.path} values={row.values} differs={row.differs} />)}</tbody>
        </table>
      </div>
    </div>
  );
}

function Row({ path, values, differs }: { path: string; values: readonly unknown[]; differs: boolean }) {
  const most = commonest(values);
  return (
    <tr class={differs ? "differs" : ""}>
      <th scope="row"><code>{path}</code></th>
      {values.map((value, i) => (
        <td key={i} class={differs && JSON.stringify(value) !== most ? "odd" : ""}>{value === undefined ? <span class="dim">not set</span> : <code>{typeof value === "object" ? plain(JSON.stringify(value)) : scalar(value)}</code>}</td>
      ))}
    </tr>
  );
}

// commonest is what most members have, so that the odd one stands out.
function commonest(values: readonly unknown[]): string | undefined {
  const counts = new Map<string | undefined, number>();
  for (const value of values) counts.set(JSON.stringify(value), (counts.get(JSON.stringify(value)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}
