import { useLayoutEffect, useRef } from "preact/hooks";
import { bind } from "../app/keyboard";

// FilterBox is the field that "/" goes to.
export function FilterBox({ value, onInput, placeholder, label }: { value: string; onInput: (value: string) => void; placeholder: string; label: string }) {
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => bind("/", () => { input.current?.focus(); input.current?.select(); }), []);
  return (
    <input ref={input} type="search" value={value} placeholder={placeholder} aria-label={label} spellcheck={false} autoComplete="off"
      onInput={(event) => onInput(event.currentTarget.value)}
      onKeyDown={(event) => { if (event.key === "Escape") { event.currentTarget.blur(); event.preventDefault(); } }} />
  );
}
