// The tab's end of the browser's one stream: a SharedWorker's port, or a stream of its own where there is none.
import { signal } from "@preact/signals";
import type { FromStream, LinkState, ToStream } from "./protocol";
import { Streams } from "./streams";
import type { Status } from "./types";
import workerURL from "./worker.ts?sharedworker&url";

export interface Receiver {
  path: string;
  resourceVersion(): string | undefined;
  receive(message: FromStream): void;
}

export const linkState = signal<{ state: LinkState; at: number }>({ state: "idle", at: 0 });
// outdated is why answers on this page may be old although the stream is there, by subscription.
export const outdated = signal<ReadonlyMap<number, Status>>(new Map());
export const hidden = signal(document.hidden);

const receivers = new Map<number, Receiver>();
const pauseAfter = 1_000;
let post: ((message: ToStream) => void) | undefined;
let nextID = 1;
let user = "";
let onEnded: (why: string) => void = () => {};

export function whenEnded(call: (why: string) => void): void {
  onEnded = call;
}

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): unknown };
}

// trusted makes the worker's address one that Trusted Types let pass; no other address becomes one.
function trusted(url: string): string {
  const types = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes;
  if (types === undefined) return url;
  const policy = types.createPolicy("federator", {
    createScriptURL(candidate) {
      if (candidate !== workerURL) throw new TypeError("not the address of our worker");
      return candidate;
    },
  });
  return policy.createScriptURL(url) as string;
}

function connect(): (message: ToStream) => void {
  if (typeof SharedWorker !== "undefined") {
    try {
      const worker = new SharedWorker(trusted(workerURL), { type: "module", name: "federator" });
      worker.port.onmessage = (event: MessageEvent<FromStream>) => receive(event.data);
      worker.onerror = () => standAlone("the SharedWorker could not be loaded");
      worker.port.start();
      const lock = `federator-tab-${crypto.randomUUID()}`;
      if ("locks" in navigator) {
        void navigator.locks.request(lock, () => {
          worker.port.postMessage({ t: "lock", name: lock }); // not before it is ours: the worker takes a free lock for a tab that is gone
          return new Promise(() => {}); // as long as this tab lives
        });
      }
      return (message) => worker.port.postMessage(message);
    } catch (error) {
      console.warn("no SharedWorker, this tab has a stream of its own:", error);
    }
  }
  return new Streams().attach(receive);
}

// standAlone gives this tab a stream of its own, with all that it had asked for.
function standAlone(why: string): void {
  console.warn(`${why}: this tab has a stream of its own`);
  post = new Streams().attach(receive);
  say({ t: "user", user });
  if (!hidden.value) for (const [id, receiver] of receivers) ask(id, receiver);
}

function receive(message: FromStream): void {
  if (message.t === "link") linkState.value = { state: message.state, at: message.at };
  else if (message.t === "ended") {
    user = "";
    onEnded(message.why);
  } else if (receivers.has(message.id)) {
    note(message.id, message.t === "error" && !message.final ? message.status : undefined);
    receivers.get(message.id)?.receive(message);
  }
}

function note(id: number, why: Status | undefined): void {
  if (why === undefined && !outdated.value.has(id)) return;
  const next = new Map(outdated.value);
  if (why === undefined) next.delete(id);
  else next.set(id, why);
  outdated.value = next;
}

function say(message: ToStream): void {
  post ??= connect();
  post(message);
}

function ask(id: number, receiver: Receiver): void {
  const resourceVersion = receiver.resourceVersion();
  say({ t: "subscribe", id, path: receiver.path, ...(resourceVersion === undefined ? {} : { resourceVersion }) });
}

// startLink loads what will hold the stream. Without a user it asks for nothing.
export function startLink(): void {
  post ??= connect();
}

// subscribe passes what comes for a path to receiver until the function returned is called.
export function subscribe(receiver: Receiver): () => void {
  const id = nextID++;
  receivers.set(id, receiver);
  if (!hidden.value) ask(id, receiver);
  return () => {
    note(id, undefined);
    if (receivers.delete(id) && !hidden.value) say({ t: "unsubscribe", id });
  };
}

export function setUser(name: string): void {
  if (user === "" && name === "") return; // this tab has nothing to take back
  user = name;
  say({ t: "user", user });
}

let pauseTimer: ReturnType<typeof setTimeout> | undefined;

function pause(): void {
  if (hidden.value) return;
  hidden.value = true;
  if (post !== undefined) for (const id of receivers.keys()) say({ t: "unsubscribe", id });
}

function resume(): void {
  clearTimeout(pauseTimer);
  if (!hidden.value) return;
  hidden.value = false;
  if (linkState.value.state === "live") linkState.value = { ...linkState.value, state: "connecting" }; // what is shown is from before
  for (const [id, receiver] of receivers) ask(id, receiver);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(pauseTimer);
  if (document.hidden) pauseTimer = setTimeout(pause, pauseAfter);
  else resume();
});
// A page kept for "back" lives on without its stream, and has one again when it is shown.
addEventListener("pagehide", () => { if (post !== undefined) say({ t: "bye" }); });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
