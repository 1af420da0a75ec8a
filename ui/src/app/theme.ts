import { computed, effect, signal } from "@preact/signals";
import { address, setParams } from "./location";

const preference = matchMedia("(prefers-color-scheme: dark)");
const system = signal<"dark" | "light">(preference.matches ? "dark" : "light");
preference.addEventListener("change", () => { system.value = preference.matches ? "dark" : "light"; });

export const theme = computed<"dark" | "light">(() => {
  const chosen = address.value.params.get("theme");
  return chosen === "dark" || chosen === "light" ? chosen : system.value;
});

export function switchTheme(): void {
  const next = theme.value === "dark" ? "light" : "dark";
  setParams({ theme: next === system.value ? null : next }, { replace: true });
}

export function startTheme(): void {
  effect(() => { document.documentElement.dataset["theme"] = theme.value; });
}
