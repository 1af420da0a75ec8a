import "./pieces.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { above, search, visible, yamlLines } from "./yamllines";

export interface YamlProps {
  value: unknown;
  at?: string; // a path to point at, such as /spec/replicas
  redacted?: (path: string, value: unknown) => boolean;
  folded?: readonly string[];
  label?: string;
}

// Yaml shows JSON as YAML. Lines fold; what is redacted says so.
export function Yaml({ value, at, redacted, folded = ["/metadata/managedFields"], label = "YAML" }: YamlProps) {
  const lines = useMemo(() => yamlLines(value, redacted), [value, redacted]);
  const [closed, setClosed] = useState<ReadonlySet<string>>(() => new Set(folded));
  const [text, setText] = useState("");
  const [nth, setNth] = useState(0);
  const [most, setMost] = useState(2_000); // lines that are drawn
  const box = useRef<HTMLDivElement>(null);
  const found = useMemo(() => search(lines, text), [lines, text]);
  const target = text === "" ? at : lines[found[nth % Math.max(1, found.length)] ?? -1]?.path;
  useEffect(() => {
    if (target === undefined) return;
    const open = new Set(above(target));
    const at = lines.findIndex((line) => line.path === target);
    setMost((before) => Math.max(before, at + 500));
    setClosed((before) => [...before].some((path) => open.has(path)) ? new Set([...before].filter((path) => !open.has(path))) : before);
    const frame = requestAnimationFrame(() => box.current?.querySelector(".yaml-line.here")?.scrollIntoView({ block: "nearest" }));
    return () => cancelAnimationFrame(frame);
  }, [target]);
  const toggle = (path: string) => setClosed((before) => {
    const next = new Set(before);
    if (!next.delete(path)) next.add(path);
    return next;
  });
  const hits = new Set(found);
  const seen = visible(lines, closed);
  return (
    <div class="yaml">
      {lines.length > 16 && <div class="yaml-bar">
        <input type="search" placeholder="Find" aria-label={`Find in ${label}`} value={text} spellcheck={false} onInput={(event) => { setText(event.currentTarget.value); setNth(0); }}
          onKeyDown={(event) => { if (event.key === "Enter" && found.length > 0) { setNth((nth + (event.shiftKey ? found.length - 1 : 1)) % found.length); event.preventDefault(); } }} />
        {text !== "" && <span class="dim" role="status">{found.length === 0 ? "not found" : `${nth + 1} of ${found.length}`}</span>}
      </div>}
      <div class="yaml-lines" ref={box} tabIndex={0} role="group" aria-label={label}>
        {seen.slice(0, most).map((i) => {
          const line = lines[i];
          if (line === undefined) return null;
          const shut = closed.has(line.path);
          const name = `yaml-line${line.path === target ? " here" : ""}${hits.has(i) ? " hit" : ""}`;
          return (
            <div key={line.path} class={name} style={{ paddingLeft: `${16 + line.depth * 14}px` }}>
              {line.folds && <button type="button" class="yaml-fold" aria-expanded={!shut} aria-label={`${shut ? "Unfold" : "Fold"} ${line.path}`} onClick={() => toggle(line.path)} style={{ left: `${line.depth * 14}px` }}>{shut ? "▸" : "▾"}</button>}
              {line.redacted ? <><code>{line.text.split(" ")[0]}</code> <span class="pill" title="The value is not kept">redacted</span></> : <code>{colour(line.text)}</code>}
              {line.folds && shut && <span class="dim"> … {line.inside} lines</span>}
            </div>
          );
        })}
        {seen.length > most && <button type="button" class="link" onClick={() => setMost(most * 2)}>{seen.length - most} more lines</button>}
      </div>
    </div>
  );
}

function colour(text: string) {
  const end = /^(?:"(?:\\.|[^"\\])*"|[^\s"]+?):(?: |$)/.exec(text);
  if (end === null) return text;
  const key = end[0].trimEnd(), rest = text.slice(key.length);
  return <><span class="t-property">{key}</span>{rest}</>;
}
