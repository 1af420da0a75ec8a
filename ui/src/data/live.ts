// What components use to read: values that stay current, and requests that are made once.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, statusFrom } from "./api";
import { subscribe } from "./link";
import { answered, nothing, type Live } from "./answer";

export type { Live } from "./answer";

// useLive is the answer of a GET, kept current. It is empty while path is null.
export function useLive<T>(path: string | null): Live<T> {
  const [state, set] = useState<Live<T>>(() => nothing(path));
  useEffect(() => {
    if (path === null) return undefined;
    return subscribe({
      path,
      resourceVersion: () => undefined,
      receive(message) {
        set((before) => answered(before, path, message));
      },
    });
  }, [path]);
  return state.path === path ? state : nothing<T>(path);
}

// useLast is a live answer, or the one before it while a longer answer to the same question is on its way: what is
// read, scrolled and written below it stays.
export function useLast<T>(live: Live<T>, question: string): Live<T> {
  const last = useRef<{ question: string; live: Live<T> } | undefined>(undefined);
  if (live.value !== undefined || live.error !== undefined) last.current = { question, live };
  return live.value === undefined && live.error === undefined && last.current?.question === question ? last.current.live : live;
}

// useOnce is the answer of a GET at one time; again asks once more.
export function useOnce<T>(path: string | null, accept?: string): Live<T> & { again(): void } {
  const [state, set] = useState<Live<T>>(() => nothing(path));
  const [turn, setTurn] = useState(0);
  const last = useRef(0);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    last.current = turn;
    get<T>(path, { signal: abort.signal, ...(accept === undefined ? {} : { accept }) }).then(
      (value) => set({ value, error: undefined, at: Date.now(), path }),
      (error: unknown) => {
        if (!abort.signal.aborted) set((before) => answered(before, path, { t: "error", id: 0, status: statusFrom(error), final: true }));
      },
    );
    return () => abort.abort();
  }, [path, turn]);
  return { ...(state.path === path ? state : nothing<T>(path)), again: () => setTurn(turn + 1) };
}
