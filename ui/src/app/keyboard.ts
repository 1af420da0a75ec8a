// Keys that work everywhere. What is focused first has the say; then the newest that has bound a key.
import { useEffect } from "preact/hooks";

export type Binding = (event: KeyboardEvent) => boolean | void; // false: not mine, ask the next one

const bound = new Map<string, Binding[]>();

export function bind(key: string, binding: Binding): () => void {
  const list = bound.get(key) ?? [];
  list.push(binding);
  bound.set(key, list);
  return () => {
    const at = list.indexOf(binding);
    if (at >= 0) list.splice(at, 1);
  };
}

// useKey binds a key while the component is there. Modified keys are written as "mod+k".
export function useKey(key: string, binding: Binding): void {
  useEffect(() => bind(key, binding), [key, binding]);
}

function typing(target: EventTarget | null): boolean {
  const element = target instanceof HTMLElement ? target : null;
  if (element === null) return false;
  if (element instanceof HTMLInputElement) return !["checkbox", "radio", "button"].includes(element.type);
  return element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement || element.isContentEditable;
}

export function startKeyboard(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const mod = event.metaKey || event.ctrlKey;
    const key = (mod ? "mod+" : "") + (event.key.length === 1 && !mod ? event.key : event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (event.altKey) return;
    if (typing(event.target) && !mod && key !== "Escape") return;
    // A dialog is in front: keys do not reach what is behind it.
    const dialog = document.querySelector("[aria-modal=true]");
    if (dialog !== null && key !== "Escape" && !mod) return;
    const pressed = event.target instanceof HTMLElement && (key === "Enter" || key === " ");
    if (pressed && (event.target as HTMLElement).closest("a, button, summary, [role=option]") !== null) return;
    const list = bound.get(key) ?? [];
    for (let i = list.length - 1; i >= 0; i--) {
      if (list[i]?.(event) === false) continue;
      event.preventDefault();
      return;
    }
  });
}
