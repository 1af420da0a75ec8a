import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { linkState, outdated } from "../data/link";
import { logOut, session, sessionError } from "../data/session";
import { find, pages, type PageProps } from "../pages/registry";
import { clock } from "../ui/format";
import { Loading } from "../ui/states";
import { StopSlot } from "../ui/stop";
import { Help } from "./help";
import { bind } from "./keyboard";
import { address, href, path } from "./location";
import { LogIn } from "./login";
import { toast } from "./notices";
import { Palette, openPalette } from "./palette";
import { switchTheme, theme } from "./theme";

export function Shell() {
  const who = session.value;
  if (who === undefined) return <main class="login" aria-busy={sessionError.value === ""}>{sessionError.value === "" ? <Loading /> : <Unreachable />}</main>;
  if (who.user === "") return <LogIn session={who} />;
  return (
    <div class="shell" key={who.user}>{/* nothing that a component holds is passed on to another user */}
      <Top />
      <div role="status">{sessionError.value !== "" && <div class="notice">{sessionError.value}</div>}<Link /><Outdated /></div>
      <main class="main" id="main" tabIndex={-1}><Current /></main>
      <Foot />
      <Palette />
      <Help />
    </div>
  );
}

function Unreachable() {
  return <><h1>federator</h1><p>{sessionError.value}</p><button type="button" onClick={() => location.reload()}>Try again</button></>;
}

function Top() {
  const here = find(path.value)?.page;
  return (
    <header class="top">
      <a class="brand" href={href("/")}>federator</a>
      <nav class="nav" aria-label="Pages">
        {pages.filter((page) => page.nav).map((page) => (
          <a key={page.path} href={href(page.path)} aria-current={here === page ? "page" : undefined}>{page.title}</a>
        ))}
      </nav>
      <div class="tools">
        <StopSlot />
        <button type="button" class="plain" onClick={openPalette} title="Go anywhere (⌘K or Ctrl K)"><span class="wide">Go to </span><kbd>⌘K</kbd></button>
        <button type="button" class="plain" onClick={switchTheme} aria-label={theme.value === "dark" ? "Light theme" : "Dark theme"} title="Theme">{theme.value === "dark" ? "☀" : "☾"}</button>
        <span class="who cut dim" title={session.value?.user}>{session.value?.user.replace(/^system:serviceaccount:/, "")}</span>
        <button type="button" class="plain" onClick={() => void logOut()}>Log out</button>
      </div>
    </header>
  );
}

// Link says in a line that what is shown is old, and since when.
function Link() {
  const { state, at } = linkState.value;
  if (state !== "lost") return null;
  return <div class="notice hatched">Reconnecting{at === 0 ? "" : `, what is shown is from ${clock(at)}`} …</div>;
}

// Outdated says in a line that some of what is shown could not be asked again.
function Outdated() {
  const why = [...outdated.value.values()][0];
  if (why === undefined || linkState.value.state === "lost") return null;
  return <div class="notice hatched">Not all that is shown is current: {why.message} ({why.code}). It is asked again.</div>;
}

function Current() {
  const at = find(path.value);
  const [loaded, set] = useState<{ path: string; component?: ComponentType<PageProps>; error?: string }>({ path: "" });
  const page = at?.page;
  useEffect(() => {
    if (page === undefined) return;
    let wanted = true;
    document.title = `${page.title} · federator`;
    page.load().then(
      (module) => { if (wanted) set({ path: page.path, component: module.default }); },
      (error: unknown) => { if (wanted) set({ path: page.path, error: String(error) }); },
    );
    return () => { wanted = false; };
  }, [page]);
  if (at === undefined) return <div class="state"><h1>There is no such page</h1><p><a href={href("/")}>See the fleet</a></p></div>;
  if (loaded.path !== at.page.path) return <Loading />;
  if (loaded.component === undefined) {
    return <div class="state"><h1>This page could not be loaded</h1><p>{loaded.error}. A newer version may be running.</p><button type="button" onClick={() => location.reload()}>Load again</button></div>;
  }
  const Component = loaded.component;
  return <Component rest={at.rest} />;
}

function Foot() {
  useEffect(() => bind("Escape", () => {
    if (toast.value === undefined) return false;
    toast.value = undefined;
    return true;
  }), []);
  const now = toast.value;
  return (
    <div role="status" aria-live="polite">
      {now !== undefined && <div class="toast"><span>{now.text}</span>{now.href !== undefined && <a href={now.href}>{now.link ?? "See it"}</a>}</div>}
      <span class="sr">{address.value.path === "" ? "" : find(path.value)?.page.title}</span>
    </div>
  );
}
