// What a tab and the holder of the browser's one stream (a SharedWorker, or the tab itself) say to each other.
import type { Status } from "./types";

export interface StreamEvent {
  type: string;
  object: unknown;
}

export type ToStream =
  | { t: "user"; user: string } // who this tab has; nothing is asked for before that
  | { t: "subscribe"; id: number; path: string; resourceVersion?: string }
  | { t: "unsubscribe"; id: number }
  | { t: "bye" };

export type LinkState = "idle" | "connecting" | "live" | "lost";

export type FromStream =
  | { t: "value"; id: number; value: unknown; at: number }
  | { t: "events"; id: number; events: StreamEvent[]; resourceVersion?: string; synced: boolean; at: number }
  | { t: "reset"; id: number } // the watch starts over: what was received does not count any more
  | { t: "error"; id: number; status: Status; final: boolean }
  | { t: "link"; state: LinkState; at: number } // at: when the server last said something
  | { t: "ended"; why: string };

export const maxSubscriptions = 64; // of one stream, as the server allows
