import "./pieces.css";
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { say } from "../app/notices";
import { statusFrom } from "../data/api";
import { session } from "../data/session";

export interface Done {
  text: string;
  href?: string;
  link?: string;
}

export interface ReasonFormProps {
  verb: string; // with the number: "Let 9 corrections pass"
  send: (reason: string) => Promise<Done>;
  danger?: boolean;
  needsReason?: boolean;
  blocked?: string; // why it cannot be done now
  children?: ComponentChildren; // more fields
  onDone?: () => void;
  stick?: boolean; // stays in view below a long list
}

// whyNot is why the caller cannot write; "" if they can.
export function whyNot(): string {
  const who = session.value;
  if (who === undefined) return "It is not known yet who you are.";
  if (who.canWrite) return "";
  return who.cannotWriteWhy === undefined || who.cannotWriteWhy === "" ? "You are logged in to look only." : who.cannotWriteWhy;
}

// Said is what has been done.
export function Said({ done }: { done: Done }) {
  return <p class="reason-done" role="status">✓ {done.text} {done.href !== undefined && <a href={done.href}>{done.link ?? "See it"}</a>}</p>;
}

// ReasonForm is the last step of a write: a reason, and a button that says what it does. What will happen is shown above it.
export function ReasonForm({ verb, send, danger = false, needsReason = true, blocked = "", children, onDone, stick = false }: ReasonFormProps) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const sending = useRef(false);
  const [error, setError] = useState("");
  const [done, setDone] = useState<Done | undefined>(undefined);
  const why = whyNot() || blocked;
  const missing = needsReason && reason.trim() === "";
  const submit = (event: Event) => {
    event.preventDefault();
    if (why !== "" || missing || sending.current) return;
    sending.current = true; // busy is known only when the form is drawn again
    setBusy(true);
    setError("");
    const who = session.value?.user;
    send(reason.trim()).then(
      (result) => {
        if (session.value?.user !== who) return; // it is not for the user who is here now
        const { text, ...more } = result;
        sending.current = false;
        setBusy(false);
        setDone(result);
        setReason("");
        say(text, more);
        onDone?.();
      },
      (failed: unknown) => { const status = statusFrom(failed); sending.current = false; setBusy(false); setError(status.code === 0 ? status.message : `${status.message} (${status.code})`); },
    );
  };
  if (done !== undefined) return <Said done={done} />;
  return (
    <form class={stick ? "reason stick" : "reason"} onSubmit={submit}>
      {children}
      {needsReason && <label class="reason-why">Why<textarea rows={2} value={reason} disabled={why !== ""} required maxLength={1024} placeholder="What others will read beside it" onInput={(event) => setReason(event.currentTarget.value)} /></label>}
      <div class="bar">
        <button type="submit" class={danger ? "danger" : "primary"} disabled={why !== "" || missing || busy}>{busy ? "Sending …" : verb}</button>
        {why !== "" && <span class="dim">{why}</span>}
        {why === "" && missing && <span class="dim">A reason is needed.</span>}
      </div>
      {error !== "" && <p class="wrong" role="alert">{error}</p>}
    </form>
  );
}
