// Who is logged in, for all tabs of this browser.
import { signal } from "@preact/signals";
import { codeIn } from "../app/location";
import { toast } from "../app/notices";
import { get, send, statusFrom, whenUnauthorized } from "./api";
import { forgetKinds } from "./kinds";
import { setUser, whenEnded } from "./link";
import type { Session } from "./types";

export const session = signal<Session | undefined>(undefined); // undefined: not known yet
export const sessionError = signal<string>("");
export const endedWhy = signal<string>("");

const channel = typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel("federator-session");
let expiry: ReturnType<typeof setTimeout> | undefined;

function take(next: Session): void {
  const before = session.value?.user ?? "";
  if (before !== next.user) forget();
  session.value = next;
  sessionError.value = "";
  setUser(next.user);
  if (next.user !== "") endedWhy.value = "";
  if (before !== next.user) channel?.postMessage(next.user);
  clearTimeout(expiry);
  const left = next.expires === undefined || next.expires === "" ? NaN : Date.parse(next.expires) - Date.now();
  if (next.user !== "" && left >= 0) expiry = setTimeout(() => void loadSession(), Math.min(left + 500, 2 ** 31 - 1));
}

let asked = 0; // an answer that was overtaken does not count: it may be of before a log-out

export async function loadSession(): Promise<void> {
  const mine = ++asked;
  const before = session.value?.user ?? "";
  try {
    const next = await get<Session>("/ui/session");
    if (mine !== asked) return;
    if (before !== "" && before !== next.user) empty(next.user === "" ? "Your session has ended." : "Another user has logged in.");
    take(next);
  } catch (error) {
    if (mine === asked) sessionError.value = error instanceof Error ? error.message : String(error);
  }
}

export async function logIn(token: string): Promise<void> {
  const next = await send<Session>("POST", "/ui/session", { token });
  asked++;
  if (next !== undefined) take(next);
}

export async function logOut(): Promise<void> {
  asked++;
  try {
    await send("DELETE", "/ui/session");
  } catch (error) {
    if (statusFrom(error).code !== 401) { // then there is no session any more
      sessionError.value = `You are still logged in: ${statusFrom(error).message}.`;
      return;
    }
  }
  empty("");
  await loadSession();
}

// forget drops what is held outside of components.
function forget(): void {
  forgetKinds();
  toast.value = undefined;
}

// empty takes everything off the page: what was read belongs to the user who is not here any more.
function empty(why: string, tell = true): void {
  const was = session.value;
  endedWhy.value = why;
  forget();
  if (was !== undefined && was.user !== "") session.value = { ...was, user: "", groups: [], canWrite: false };
  if (!tell) return; // who has told us has told all
  setUser("");
  channel?.postMessage("");
}

export function startSession(): void {
  whenUnauthorized(() => { if ((session.value?.user ?? "") !== "") void loadSession(); });
  whenEnded((why) => {
    empty(why.charAt(0).toUpperCase() + why.slice(1) + (why.endsWith(".") ? "" : "."), false);
    void loadSession();
  });
  channel?.addEventListener("message", (event: MessageEvent<string>) => {
    if (event.data !== (session.value?.user ?? "")) void loadSession();
  });
  // The code goes from the address before anything else: it must not be in the history, or be sent on.
  const code = codeIn(location.hash);
  if (code === "") {
    void loadSession();
    return;
  }
  history.replaceState(null, "", location.pathname + location.search);
  void logInByCode(code);
}

// logInByCode proves to the proxy of `federator ui` that this is the browser that it has opened.
async function logInByCode(code: string): Promise<void> {
  let failed = "";
  try {
    const next = await send<Session>("POST", "/ui/session", { code });
    asked++;
    if (next !== undefined && next.user !== "") {
      take(next);
      return;
    }
  } catch (error) {
    failed = statusFrom(error).message;
  }
  await loadSession(); // it may be logged in: the code of a page that is loaded again was used before
  if (session.value?.user === "" && failed !== "") endedWhy.value = `${failed.charAt(0).toUpperCase()}${failed.slice(1)}.`;
}
