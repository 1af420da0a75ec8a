import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { bind } from "../app/keyboard";

// Dialog is for what is asked in between; what is read has a Drawer. Focus goes back to where it was.
export function Dialog({ label, onClose, children, class: name = "" }: { label: string; onClose: () => void; children: ComponentChildren; class?: string }) {
  const box = useRef<HTMLDivElement>(null);
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const before = document.activeElement;
    (box.current?.querySelector<HTMLElement>("input, textarea, select, [autofocus]") ?? box.current)?.focus();
    const unbind = bind("Escape", () => close.current());
    return () => {
      unbind();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const keepIn = (event: KeyboardEvent) => {
    if (event.key !== "Tab" || box.current === null) return;
    const all = [...box.current.querySelectorAll<HTMLElement>("a[href], button:not(:disabled), input, textarea, select, [tabindex='0']")];
    const first = all[0], last = all[all.length - 1];
    if (first === undefined || last === undefined) return;
    if (event.shiftKey && (document.activeElement === first || document.activeElement === box.current)) { last.focus(); event.preventDefault(); }
    else if (!event.shiftKey && document.activeElement === last) { first.focus(); event.preventDefault(); }
  };
  return (
    <div class="layer" onPointerDown={(event) => { if (event.target === event.currentTarget) onClose(); }}>
      <div class={`dialog ${name}`} role="dialog" aria-modal="true" aria-label={label} tabIndex={-1} ref={box} onKeyDown={keepIn}>{children}</div>
    </div>
  );
}
