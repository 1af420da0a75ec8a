import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { bind } from "../../app/keyboard";
import { get, withQuery } from "../../data/api";
import { parseQuery } from "../../data/query";
import type { Count } from "../../data/types";
import { count } from "../../ui";
import { complete, insert, type Known, type Suggestion, type Wanted } from "./complete";

export interface LineProps {
  value: string;
  known: Known;
  onRun: (line: string) => void;
}

const shown = 12;

// QueryLine is where one says what to see. What it suggests is what there is.
export function QueryLine({ value, known, onRun }: LineProps) {
  const [text, setText] = useState(value);
  const [wanted, setWanted] = useState<Wanted | undefined>(undefined);
  const [values, setValues] = useState<Suggestion[]>([]);
  const [at, setAt] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setText(value), [value]);
  useLayoutEffect(() => bind("/", () => { input.current?.focus(); input.current?.select(); }), []);
  const ask = wanted?.values === undefined ? "" : valuesPath(text, wanted.values.groupBy);
  useEffect(() => {
    setValues([]);
    if (ask === "" || wanted?.values === undefined) return;
    const { prefix, typed } = wanted.values;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      get<Count>(ask, { signal: abort.signal }).then((answer) => {
        const t = typed.toLowerCase();
        const found = (answer.groups ?? []).filter((group) => (group.key[0] ?? "") !== "" && (group.key[0] ?? "").toLowerCase().includes(t));
        setValues(found.slice(0, shown).map((group) => ({ text: prefix + (group.key[0] ?? ""), more: count(group.count) })));
      }, () => {});
    }, 80);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [ask, wanted?.values?.prefix, wanted?.values?.typed]);
  const suggestions = wanted === undefined ? [] : wanted.values === undefined ? wanted.suggestions : values;
  const look = () => {
    const box = input.current;
    if (box === null) return;
    setWanted(complete(box.value, box.selectionStart ?? box.value.length, known));
    setAt(-1);
  };
  const takeOne = (suggestion: Suggestion) => {
    const box = input.current;
    if (wanted === undefined || box === null) return;
    const next = insert(text, wanted, suggestion);
    setText(next.line);
    box.value = next.line;
    box.focus();
    box.setSelectionRange(next.caret, next.caret);
    look();
    if (suggestion.open !== true) onRun(next.line.trim());
  };
  const keys = (event: KeyboardEvent) => {
    const chosen = suggestions[at];
    if (event.key === "ArrowDown") setAt(Math.min(suggestions.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(-1, at - 1));
    else if (event.key === "Tab" && !event.shiftKey && suggestions.length > 0 && wanted !== undefined && text.slice(wanted.start, wanted.end) !== "") takeOne(chosen ?? suggestions[0] as Suggestion);
    else if (event.key === "Enter") {
      if (chosen !== undefined) takeOne(chosen);
      else { setWanted(undefined); onRun(text.trim()); }
    } else if (event.key === "Escape") {
      if (wanted !== undefined && suggestions.length > 0) setWanted(undefined);
      else input.current?.blur();
    } else return;
    event.preventDefault();
  };
  const problems = parseQuery(text).problems;
  const open = wanted !== undefined && suggestions.length > 0;
  return (
    <div class="queryline">
      <input ref={input} type="text" role="combobox" aria-label="Query" aria-expanded={open} aria-controls="suggestions" aria-autocomplete="list" aria-activedescendant={open && at >= 0 ? `suggestion-${at}` : undefined}
        aria-invalid={problems.length > 0} aria-describedby={problems.length > 0 ? "query-problem" : undefined} spellcheck={false} autoComplete="off"
        placeholder="pods ns:shop app=web status.phase=Running member.env=prod" value={text}
        onInput={(event) => { setText(event.currentTarget.value); look(); }} onClick={look} onFocus={look} onBlur={() => setTimeout(() => setWanted(undefined), 150)} onKeyDown={keys} />
      {open && (
        <ul role="listbox" id="suggestions" aria-label="Suggestions">
          {suggestions.map((s, i) => (
            <li key={s.text} id={`suggestion-${i}`} role="option" aria-selected={i === at} onPointerDown={(event) => { event.preventDefault(); takeOne(s); }}>
              <span class="cut mono">{s.text}</span>{s.more !== undefined && <span class="dim">{s.more}</span>}
            </li>
          ))}
        </ul>
      )}
      {problems.length > 0 && <div class="wrong" id="query-problem">{problems.map((problem) => problem.message).join("; ")}</div>}
    </div>
  );
}

// valuesPath counts by a key among objects of the kind that is written.
function valuesPath(line: string, groupBy: string): string {
  const kind = parseQuery(line).query.kind;
  return withQuery("/query/v1/count", { resource: kind === "" ? "namespaces" : kind, groupBy });
}
