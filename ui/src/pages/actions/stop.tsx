import "./actions.css";
import { useState } from "preact/hooks";
import { send } from "../../data/api";
import { useLive } from "../../data/live";
import type { StopItem } from "../../data/policytypes";
import type { MemberList, Policies, Stops } from "../../data/types";
import { ReasonForm } from "../../pieces/reasonform";
import { Dialog, Lock, ToneShape, ago } from "../../ui";
import { byWhom } from "./model";

const stopsPath = "/query/v1/stops";
const scopes = [["", "All writes"], ["policy", "One policy"], ["member", "One member"], ["source", "One source"]] as const;

export function scopeText(stop: StopItem): string {
  return stop.scope === "" ? "All writes are stopped" : `Writes of ${stop.scope} ${stop.name ?? ""} are stopped`;
}

// Stop is in reach from everywhere: it says what is stopped, and stops.
export default function Stop() {
  const live = useLive<Stops>(stopsPath);
  const [open, setOpen] = useState(false);
  const items = live.value?.items ?? [];
  const forbidden = live.error?.code === 403;
  const unknown = !forbidden && (live.error !== undefined || live.value?.stale === true); // a stop may be in force
  const label = items.length === 0 ? unknown ? "Stop (state not known)" : "Stop" : items.some((stop) => stop.scope === "") ? "Stopped" : `${items.length} stopped`;
  return (
    <>
      <button type="button" class={items.length > 0 ? "stop danger on" : "stop danger"} onClick={() => setOpen(true)} title={items.length === 0 ? unknown ? "What is stopped is not known: the hub or the server does not answer" : "Stop writes" : items.map(scopeText).join("; ")} aria-haspopup="dialog">
        <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true"><path d="M3 0h4l3 3v4l-3 3H3L0 7V3z" fill="currentColor" /></svg> {label}
      </button>
      {items.length > 0 && <div class="stopline" role="status">{items.map((stop) => <StopLine key={`${stop.scope}/${stop.name ?? ""}`} stop={stop} onResume={() => setOpen(true)} />)}</div>}
      {open && <Dialog label="Stop writes" class="stopdialog" onClose={() => setOpen(false)}><div class="inner">
        {forbidden && <p class="dim"><Lock /> What is stopped now is not shown: {live.error?.message}</p>}
        {!forbidden && live.value === undefined && <p class="dim">{live.error === undefined ? "Looking what is stopped …" : `What is stopped is not known: ${live.error.message}`}</p>}
        {items.map((stop) => <Resume key={`${stop.scope}/${stop.name ?? ""}`} stop={stop} />)}
        <New onDone={() => setOpen(false)} />
        <button type="button" class="plain" onClick={() => setOpen(false)}>Close</button>
      </div></Dialog>}
    </>
  );
}

function StopLine({ stop, onResume }: { stop: StopItem; onResume: () => void }) {
  return (
    <span><ToneShape tone="wrong" /> <b>{scopeText(stop)}</b>{stop.since !== undefined && <> <time dateTime={stop.since} title={stop.since}>{ago(stop.since)} ago</time></>} {byWhom(stop)}{stop.problem !== undefined && stop.problem !== "" && ` (${stop.problem})`} <button type="button" class="link" onClick={onResume}>Resume…</button></span>
  );
}

function Resume({ stop }: { stop: StopItem }) {
  return (
    <section class="section">
      <h3><ToneShape tone="wrong" /> {scopeText(stop)}</h3>
      <p class="dim">{stop.since !== undefined && `since ${stop.since}, `}{byWhom(stop)}</p>
      <ResumeForm stop={stop} />
    </section>
  );
}

export function ResumeForm({ stop }: { stop: StopItem }) {
  return (
    <ReasonForm verb={stop.scope === "" ? "Resume all writes" : `Resume ${stop.scope} ${stop.name ?? ""}`} needsReason={false} send={async () => {
      await send("DELETE", `/ui/relay/stops?${new URLSearchParams({ scope: stop.scope, name: stop.name ?? "" }).toString()}`);
      return { text: "Resumed" };
    }} />
  );
}

function New({ onDone }: { onDone: () => void }) {
  const [scope, setScope] = useState("");
  const [name, setName] = useState("");
  const members = useLive<MemberList>(scope === "member" ? "/query/v1/members?limit=1000" : null);
  const policies = useLive<Policies>(scope === "policy" || scope === "source" ? "/query/v1/policies" : null);
  const names = scope === "member" ? members.value?.items.map((m) => m.name) ?? [] : scope === "policy" ? policies.value?.items.map((p) => p.name) ?? [] : [...new Set((policies.value?.items ?? []).flatMap((p) => p.source?.name ?? []))].filter((n) => n !== "");
  return (
    <section class="section">
      <h3>Stop writes</h3>
      <p class="dim">Nothing that the scope names is written to members any more, from now until somebody resumes it. Policies go on to observe.</p>
      <ReasonForm verb={scope === "" ? "Stop all writes" : `Stop ${scope} ${name}`.trim()} danger blocked={scope !== "" && name === "" ? `Name the ${scope}.` : ""} onDone={onDone} send={async (reason) => {
        await send("POST", "/ui/relay/stops", { scope, name: scope === "" ? "" : name, reason });
        return { text: scope === "" ? "All writes are stopped" : `Writes of ${scope} ${name} are stopped` };
      }}>
        <div class="bar" role="group" aria-label="Scope">{scopes.map(([id, title]) => <button key={id} type="button" aria-pressed={scope === id} onClick={() => { setScope(id); setName(""); }}>{title}</button>)}</div>
        {scope !== "" && <label class="reason-why">Which {scope}<input list="stop-names" value={name} spellcheck={false} autoComplete="off" onInput={(event) => setName(event.currentTarget.value)} /><datalist id="stop-names">{names.map((one) => <option key={one} value={one} />)}</datalist></label>}
      </ReasonForm>
    </section>
  );
}
