// The address is the state: what is shown follows from it, and changing what is shown changes it.
import { computed, signal } from "@preact/signals";

export const base = "/ui";

export interface Address {
  path: string; // below base, "/" for the first page
  params: URLSearchParams;
}

export function parse(pathname: string, search: string): Address {
  let path = pathname.startsWith(base) ? pathname.slice(base.length) : pathname;
  path = "/" + path.split("/").filter((part) => part !== "").join("/");
  return { path, params: new URLSearchParams(search) };
}

export type Values = Record<string, string | readonly string[] | null | undefined>;

// withValues is params with some values set, or removed where they are null, undefined, "" or an empty list.
export function withValues(params: URLSearchParams, values: Values): URLSearchParams {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    if (value === null || value === undefined || value === "") continue;
    if (typeof value === "string") next.set(name, value);
    else for (const one of value) next.append(name, one);
  }
  return next;
}

// format writes slashes, colons and commas as they are: addresses are read by people, too.
export function format(path: string, params: URLSearchParams): string {
  const query = params.toString().replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%2C", ",");
  return base + (path === "/" ? "/" : path) + (query === "" ? "" : `?${query}`);
}

// codeIn is the one-time code in the fragment of the address that `federator ui` opens; "" for none.
export function codeIn(hash: string): string {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code") ?? "";
}

const start: Address = typeof location === "undefined" ? { path: "/", params: new URLSearchParams() } : parse(location.pathname, location.search);
export const address = signal<Address>(start);
export const path = computed(() => address.value.path);

const kept = ["theme"]; // parameters that stay from page to page

const keptParams = computed(() => {
  const params = new URLSearchParams();
  for (const name of kept) {
    const value = address.value.params.get(name);
    if (value !== null) params.set(name, value);
  }
  return params;
});
const keptQuery = computed(() => format("", keptParams.value).slice(base.length));
const none: Values = {};

// href is the address of a page, in the theme that is chosen. Without values it costs little: rows have many links.
export function href(to: string, values: Values = none): string {
  return values === none ? base + to + keptQuery.value : format(to, withValues(keptParams.value, values));
}

export function go(to: string, options: { replace?: boolean } = {}): void {
  const url = new URL(to, location.href);
  const text = url.pathname + url.search;
  if (options.replace === true) history.replaceState(null, "", text);
  else if (text !== location.pathname + location.search) history.pushState(null, "", text);
  address.value = parse(url.pathname, url.search);
}

// setParams changes parameters of the page that is shown.
export function setParams(values: Values, options: { replace?: boolean } = {}): void {
  go(format(address.value.path, withValues(address.value.params, values)), options);
}

export function param(name: string): string {
  return address.value.params.get(name) ?? "";
}

export function paramList(name: string): string[] {
  return address.value.params.getAll(name);
}

// startLocation follows the browser's back and forward, and clicks on links to our own pages.
export function startLocation(): void {
  addEventListener("popstate", () => { address.value = parse(location.pathname, location.search); });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.target !== "" || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname !== base && !link.pathname.startsWith(`${base}/`)) return;
    if (/^\/ui\/(oidc|session|relay|assets)\b/.test(link.pathname) || link.pathname.endsWith(".txt")) return;
    event.preventDefault();
    go(link.href);
  });
}
