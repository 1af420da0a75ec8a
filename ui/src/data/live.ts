// What components use to read: values that stay current, and requests that are made once.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, statusFrom } from "./api";
import { subscribe } from "./link";
import type { Status } from "./types";

export interface Live<T> {
  value: T | undefined; // the last that was received, also when an error came since
  error: Status | undefined;
  at: number; // when value was received, 0 for never
  path: string | null;
}

const nothing = { value: undefined, error: undefined, at: 0 };

// useLive is the answer of a GET, kept current. It is empty while path is null.
export function useLive<T>(path: string | null): Live<T> {
  const [state, set] = useState<Live<T>>({ ...nothing, path });
  useEffect(() => {
    if (path === null) return undefined;
    return subscribe({
      path,
      resourceVersion: () => undefined,
      receive(message) {
        if (message.t === "value") set({ value: message.value as T, error: undefined, at: message.at, path });
        else if (message.t === "error") set((before) => ({ ...(before.path === path ? before : { ...nothing, path }), error: message.status }));
      },
    });
  }, [path]);
  return state.path === path ? state : { ...nothing, path };
}

// useOnce is the answer of a GET at one time; again asks anew.
export function useOnce<T>(path: string | null, accept?: string): Live<T> & { again(): void } {
  const [state, set] = useState<Live<T>>({ ...nothing, path });
  const [turn, setTurn] = useState(0);
  const last = useRef(0);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    last.current = turn;
    get<T>(path, { signal: abort.signal, ...(accept === undefined ? {} : { accept }) }).then(
      (value) => set({ value, error: undefined, at: Date.now(), path }),
      (error: unknown) => {
        if (!abort.signal.aborted) set((before) => ({ ...(before.path === path ? before : { ...nothing, path }), error: statusFrom(error) }));
      },
    );
    return () => abort.abort();
  }, [path, turn]);
  return { ...(state.path === path ? state : { ...nothing, path }), again: () => setTurn(turn + 1) };
}
