// One line at the foot of the page: what has just happened.
import { signal } from "@preact/signals";

export interface Toast {
  text: string;
  href?: string;
  link?: string; // what the link says
  wrong?: boolean;
}

export const toast = signal<Toast | undefined>(undefined);
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, more: Omit<Toast, "text"> = {}): void {
  toast.value = { text, ...more };
  clearTimeout(timer);
  timer = setTimeout(() => { toast.value = undefined; }, more.wrong === true || more.href !== undefined ? 12_000 : 4_000);
}
