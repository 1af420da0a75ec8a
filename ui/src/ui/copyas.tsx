import { say } from "../app/notices";
import { Menu } from "./menu";
import { quote } from "./quote";

export interface Commands {
  kubectl?: string;
  federator?: string;
  curl?: string; // the path and query; the rest is added
}

export function curlOf(path: string, accept?: string): string {
  const header = accept === undefined ? "" : ` -H ${quote(`Accept: ${accept}`)}`;
  return `curl -H "Authorization: Bearer $TOKEN"${header} ${quote(location.origin + path)}`;
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied: ${text.length > 120 ? text.slice(0, 120) + "…" : text}`);
  } catch {
    say("The browser does not let this page write to the clipboard", { wrong: true });
  }
}

// CopyAs offers what gives the same answer in a terminal.
export function CopyAs({ commands }: { commands: Commands }) {
  const all: [string, string | undefined][] = [
    ["kubectl", commands.kubectl], ["federator", commands.federator], ["curl", commands.curl === undefined ? undefined : curlOf(commands.curl)],
    ["address of this view", location.href],
  ];
  return (
    <Menu label="Copy as" title="Copy as a command that gives the same answer">
      {(close) => all.map(([name, text]) => text !== undefined && (
        <button key={name} type="button" title={text} onClick={() => { void copy(text); close(); }}>{name}</button>
      ))}
    </Menu>
  );
}
