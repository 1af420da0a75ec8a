import { useLive } from "../../data/live";
import type { Stops as Answer } from "../../data/types";
import { CopyAs, Empty, Failed, Freshness, Loading, Lock, StateMark, ago } from "../../ui";
import { byWhom } from "./model";
import { ResumeForm, scopeText } from "./stop";

const path = "/query/v1/stops";

// Stops lists what is stopped, by whom and why.
export function Stops() {
  const live = useLive<Answer>(path);
  if (live.value === undefined) return live.error === undefined ? <Loading /> : <Failed status={live.error} />;
  return (
    <div class="scroll pad">
      <div class="bar"><span class="grow" /><Freshness at={live.at} /><CopyAs commands={{ federator: "federator actions stop --help", curl: path }} /></div>
      {live.value.stale === true && <p class="wrong" role="alert">The hub is out of reach: this is from before.</p>}
      {live.value.items.length === 0 && live.value.stale === true ? null : live.value.items.length === 0 ? <Empty title="Nothing is stopped"><p>The Stop button in the header stops all writes, or those of one policy, member or source.</p></Empty> : live.value.items.map((stop) => (
        <section key={`${stop.scope}/${stop.name ?? ""}`} class="waiting">
          <h2><StateMark state="Halted">{scopeText(stop)}</StateMark>{stop.since !== undefined && <span class="dim">for {ago(stop.since)}</span>}</h2>
          <p class={stop.hubForbidden === undefined ? "message" : "dim"}>{stop.hubForbidden !== undefined && <Lock />} {byWhom(stop)}</p>
          <ResumeForm stop={stop} />
        </section>
      ))}
    </div>
  );
}
