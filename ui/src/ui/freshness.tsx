import { useLive } from "../data/live";
import type { MemberList, NotSynced } from "../data/types";
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
  stale?: boolean | undefined; // the hub is out of reach
  live?: boolean;
}

// useMembers is how many members there are, asked for where not all is evaluated: without members nothing ever is.
export function useMembers(synced: boolean | undefined): number | undefined {
  const live = useLive<MemberList>(synced === false ? "/query/v1/members?summary=true" : null);
  return synced === false && live.error !== undefined ? NaN : live.value?.summary?.members;
}

// Freshness is the line of each list that says how current it is, and of how many members.
export function Freshness({ at, revision, members, notSynced = [], more = 0, synced, stale, live = true }: FreshnessProps) {
  const bad = new Set(notSynced.map((n) => n.member)).size + more;
  const all = useMembers(synced);
  const link = linkState.value.state;
  if (at === 0) return <span class="fresh">not loaded</span>;
  return (
    <span class="fresh" title={revision === undefined ? undefined : `revision ${revision}`}>
      {live && link === "live" && outdated.value.size === 0 ? "live" : `as of ${clock(at)}`}
      {members !== undefined && <> · of {many(members, "member")}</>}
      {bad > 0 && <> · <a class="bad" href={href("/", { show: "notSynced" })} title={notSynced.map((n) => `${n.member} ${n.kind ?? ""} ${n.state}`).join("\n")}>{many(bad, "member")} not fresh</a></>}
      {synced === false && all !== undefined && <> · {all === 0 ? "no members" : <span class="bad">not all is evaluated yet</span>}</>}
      {stale === true && <> · <span class="bad">the hub is out of reach, there may be newer</span></>}
    </span>
  );
}
