import { useState } from "preact/hooks";
import { ApiError } from "../data/api";
import { endedWhy, logIn } from "../data/session";
import type { Session } from "../data/types";

export function LogIn({ session }: { session: Session }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || token.trim() === "") return; // Enter is not stopped by a disabled button
    setBusy(true);
    setError("");
    try {
      await logIn(token.trim());
    } catch (why) {
      setError(why instanceof ApiError && why.code === 401 ? "The server does not accept this token: it may have expired, or be of another cluster or audience." : why instanceof Error ? why.message : String(why));
      setBusy(false);
    }
  };
  const oidc = session.methods.includes("oidc");
  const byToken = session.methods.includes("token");
  return (
    <main class="login">
      <h1>federator</h1>
      {endedWhy.value !== "" && <p role="status">{endedWhy.value} Nothing that was read is kept on this page.</p>}
      {oidc && <div><button type="button" class="primary" onClick={() => location.assign(`/ui/oidc/login?return=${encodeURIComponent(location.pathname + location.search)}`)}>Log in with your organisation</button></div>}
      {oidc && byToken && <span class="or">or</span>}
      {byToken && (
        <form onSubmit={(event) => void submit(event)} autoComplete="off">
          <label for="token">Token of a user or ServiceAccount</label>
          <textarea id="token" rows={4} spellcheck={false} autoComplete="off" value={token} aria-describedby="how"
            onInput={(event) => setToken(event.currentTarget.value)}
            onKeyDown={(event) => { if (event.key === "Enter") void submit(event); }} />
          <span id="how" class="dim">The token in the kubeconfig that federator has written, or one by <code>kubectl create token ann -n teams --audience federator</code>. It is sent once and kept in a cookie that no script can read.</span>
          {error !== "" && <span class="wrong" role="alert">{error}</span>}
          <div><button type="submit" class={oidc ? "" : "primary"} disabled={busy || token.trim() === ""}>{busy ? "Logging in …" : "Log in"}</button></div>
        </form>
      )}
      {!oidc && !byToken && session.methods.includes("proxy") && <p>This page is opened by <code>federator ui</code>, once, with your kubeconfig. Run <code>federator ui</code> again.</p>}
      {!oidc && !byToken && !session.methods.includes("proxy") && <p>This server offers no way to log in here ({session.methods.join(", ") || "none"}). <code>federator ui</code> opens this page with your kubeconfig.</p>}
    </main>
  );
}
