// Four different things that look different: loading, none, not known, not allowed.
import type { ComponentChildren } from "preact";
import type { Live } from "../data/live";
import type { Status } from "../data/types";

export function Loading({ rows = 8, label = "Loading" }: { rows?: number; label?: string }) {
  return <div class="skeleton" role="status" aria-label={label}>{Array.from({ length: rows }, (_, i) => <i key={i} />)}</div>;
}

// Empty says what was looked at: "No Pod in 12 members matches, at revision 3."
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="state"><h2>{title}</h2>{children}</div>;
}

export function Unknown({ title, gaps = [], more = 0, children }: { title: string; gaps?: readonly { member?: string; kind?: string; state?: string; reason?: string; failure?: string }[]; more?: number; children?: ComponentChildren }) {
  return (
    <div class="state unknown hatched">
      <div class="text">
        <h2>{title}</h2>
        {children}
        {gaps.length > 0 && <ul>{gaps.map((gap, i) => <li key={i}>{[gap.member, gap.kind, gap.state, gap.reason ?? gap.failure].filter((x) => x !== undefined && x !== "").join(" · ")}</li>)}{more > 0 && <li>and {more} more</li>}</ul>}
      </div>
    </div>
  );
}

export function Forbidden({ missing, children }: { missing: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <h2><Lock /> You may not read this</h2>
      <p>Missing: <code>{missing}</code></p>
      {children}
    </div>
  );
}

export function Lock() {
  return <svg width="12" height="14" viewBox="0 0 12 14" aria-hidden="true"><path fill="none" stroke="currentColor" stroke-width="1.5" d="M3 6V4a3 3 0 0 1 6 0v2" /><rect x="1" y="6" width="10" height="7" rx="1" fill="currentColor" /></svg>;
}

// Failed is what an error looks like: a lock for a 403, a sentence for all others.
export function Failed({ status, again }: { status: Status; again?: () => void }) {
  if (status.code === 403) {
    const missing = verbIn(status.message);
    return <Forbidden missing={missing}>{missing !== status.message && <p class="dim">{status.message}</p>}</Forbidden>;
  }
  return (
    <div class="state" role="alert">
      <h2>{status.code === 404 ? "Not found" : status.code === 0 ? "The server cannot be reached" : `This cannot be shown (${status.code})`}</h2>
      <p>{status.message}</p>
      {again !== undefined && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

// verbIn finds the verb and resource in the words of a Kubernetes refusal.
function verbIn(message: string): string {
  const plain = /you may not (\w+ [\w.]+) on the hub/.exec(message);
  if (plain !== null) return plain[1] ?? message;
  const found = /cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?/.exec(message);
  if (found === null) return message;
  return `${found[1] ?? ""} ${found[2] ?? ""}${found[3] === undefined || found[3] === "" ? "" : `.${found[3]}`}`;
}

// Before says that what follows could not be read again, and why.
export function Before({ live }: { live: Live<unknown> }) {
  return live.error === undefined || live.value === undefined ? null : <p class="wrong" role="alert">{live.error.message}: what follows is from before.</p>;
}

// Shown shows a live value, or why there is none.
export function Shown<T>({ live, children, rows }: { live: Live<T> & { again?: () => void }; children: (value: T) => ComponentChildren; rows?: number }) {
  if (live.value !== undefined) return <><Before live={live} />{children(live.value)}</>;
  if (live.error !== undefined) return live.again === undefined ? <Failed status={live.error} /> : <Failed status={live.error} again={live.again} />;
  return rows === undefined ? <Loading /> : <Loading rows={rows} />;
}
