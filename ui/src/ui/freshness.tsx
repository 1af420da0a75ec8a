import type { NotSynced } from "../data/types";
import { href } from "../app/location";
import { clock, many } from "./format";
import { linkState, outdated } from "../data/link";

export interface FreshnessProps {
  at: number; // when it was received
  revision?: string | number;
  members?: number; // of how many
  notSynced?: readonly NotSynced[];
  more?: number;
  synced?: boolean;
  live?: boolean;
}

// Freshness is the line of each list that says how current it is, and of how many members.
export function Freshness({ at, revision, members, notSynced = [], more = 0, synced, live = true }: FreshnessProps) {
  if (at === 0) return <span class="fresh">not loaded yet</span>;
  const bad = new Set(notSynced.map((n) => n.member)).size + more;
  const link = linkState.value.state;
  return (
    <span class="fresh" title={revision === undefined ? undefined : `revision ${revision}`}>
      {live && link === "live" && outdated.value.size === 0 ? "live" : `as of ${clock(at)}`}
      {members !== undefined && <> · of {many(members, "member")}</>}
      {bad > 0 && <> · <a class="bad" href={href("/", { show: "notSynced" })} title={notSynced.map((n) => `${n.member} ${n.kind ?? ""} ${n.state}`).join("\n")}>{many(bad, "member")} not fresh</a></>}
      {synced === false && <> · <span class="bad">not all is evaluated yet</span></>}
    </span>
  );
}
