// The pages. Each is loaded when it is first shown: the default export of <name>/index.tsx.
import type { ComponentType } from "preact";

export interface PageProps {
  rest: string[]; // what follows the page's path in the address, decoded
}

export interface Page {
  path: string;
  title: string;
  icon: string; // a letter
  nav: boolean;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

const found = import.meta.glob<{ default: ComponentType<PageProps> }>("./*/index.tsx");

function page(path: string, title: string, name: string, nav = true): Page[] {
  const load = found[`./${name}/index.tsx`];
  return load === undefined ? [] : [{ path, title, icon: title.charAt(0), nav, load }];
}

export const pages: readonly Page[] = [
  ...page("/", "Fleet", "fleet"),
  ...page("/explore", "Explore", "explore"),
  ...page("/violations", "Violations", "violations"),
  ...page("/policies", "Policies", "policies"),
  ...page("/actions", "Actions", "actions"),
  ...page("/sources", "Sources", "sources"),
  ...page("/members", "Member", "member", false),
];

// find is the page of an address, with what follows its path.
export function find(path: string, among: readonly Page[] = pages): { page: Page; rest: string[] } | undefined {
  const parts = path.split("/").filter((part) => part !== "");
  for (const candidate of among) {
    const own = candidate.path.split("/").filter((part) => part !== "");
    if (own.length === 0 ? parts.length > 0 : !own.every((part, i) => parts[i] === part)) continue;
    return { page: candidate, rest: parts.slice(own.length).map(decode) };
  }
  return undefined;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
