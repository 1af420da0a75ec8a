// The answer of a GET that is kept current, and how messages of the stream change it.
import type { FromStream } from "./protocol";
import type { Status } from "./types";

export interface Live<T> {
  value: T | undefined; // the last that was received, also when an error came since
  error: Status | undefined;
  at: number; // when value was received, 0 for never
  path: string | null;
}

export function nothing<T>(path: string | null): Live<T> {
  return { value: undefined, error: undefined, at: 0, path };
}

// answered is a live answer after a message about it. What the caller may not read any more is not kept.
export function answered<T>(before: Live<T>, path: string, message: FromStream): Live<T> {
  const own = before.path === path ? before : nothing<T>(path);
  if (message.t === "value") return { value: message.value as T, error: undefined, at: message.at, path };
  if (message.t !== "error") return before;
  return { ...(message.status.code === 401 || message.status.code === 403 ? nothing<T>(path) : own), error: message.status };
}
