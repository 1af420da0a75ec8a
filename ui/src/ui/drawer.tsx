import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { keep, kept } from "../app/kept";
import { bind } from "../app/keyboard";

const least = 320;

// Drawer stands beside a list. Its content follows from the address; Escape closes it and focus goes back to the list.
export function Drawer({ title, sub, tools, onClose, children, id = "drawer", width: first = 560 }: { title: ComponentChildren; sub?: ComponentChildren; tools?: ComponentChildren; onClose: () => void; children: ComponentChildren; id?: string; width?: number }) {
  const [width, setWidth] = useState(() => kept<number>(`${id}.width`, first));
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const before = document.activeElement;
    const unbind = bind("Escape", () => close.current());
    return () => {
      unbind();
      if (before instanceof HTMLElement && before.isConnected && before !== document.body) before.focus();
      else document.querySelector<HTMLElement>(".grid .over")?.focus();
    };
  }, []);
  const set = (next: number, store: boolean) => {
    const value = Math.round(Math.min(Math.max(next, least), innerWidth * 0.75));
    setWidth(value);
    if (store) keep(`${id}.width`, value);
  };
  const drag = (event: PointerEvent) => {
    const grip = event.currentTarget as HTMLElement;
    grip.setPointerCapture(event.pointerId);
    const right = (grip.parentElement?.getBoundingClientRect().right ?? innerWidth);
    let last = width;
    grip.onpointermove = (move) => { last = right - move.clientX; set(last, false); };
    grip.onpointerup = () => { grip.onpointermove = grip.onpointerup = null; set(last, true); };
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "ArrowLeft") set(width + 32, true);
    else if (event.key === "ArrowRight") set(width - 32, true);
    else return;
    event.preventDefault();
  };
  return (
    <aside class="drawer" aria-label="Details" style={{ "--width": `${width}px` }}>
      <div class="grip" role="separator" tabIndex={0} aria-orientation="vertical" aria-label="Width of the details" aria-valuenow={width} aria-valuemin={least} aria-valuemax={1600} onPointerDown={drag} onKeyDown={keys} />
      <header>
        <div class="grow"><h2>{title}</h2>{sub !== undefined && <div class="dim">{sub}</div>}</div>
        {tools}
        <button type="button" class="plain" onClick={onClose} aria-label="Close details" title="Close (Escape)">✕</button>
      </header>
      <div class="inside">{children}</div>
    </aside>
  );
}
