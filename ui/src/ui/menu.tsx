import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function Menu({ label, children, title, left = false }: { label: ComponentChildren; title: string; children: (close: () => void) => ComponentChildren; left?: boolean }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => { setOpen(false); button.current?.focus(); };
  useEffect(() => {
    if (!open) return;
    const outside = (event: PointerEvent) => { if (!box.current?.contains(event.target as Node)) setOpen(false); };
    document.addEventListener("pointerdown", outside);
    box.current?.querySelector<HTMLElement>(".pop button, .pop input")?.focus();
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const keys = (event: KeyboardEvent) => {
    if (!open) return;
    if (event.key === "Escape") { close(); event.preventDefault(); event.stopPropagation(); }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const all = [...(box.current?.querySelectorAll<HTMLElement>(".pop button, .pop input") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length]?.focus();
    event.preventDefault();
  };
  return (
    <div class="menu" ref={box} onKeyDown={keys}>
      <button type="button" ref={button} title={title} aria-expanded={open} onClick={() => setOpen(!open)}>{label}</button>
      {open && <div class={left ? "pop left" : "pop"}>{children(close)}</div>}
    </div>
  );
}
