import { href } from "../../app/location";
import type { MemberInfo } from "../../data/types";
import { ToneShape, bytes, count, many, severities, severityRank, toneOf } from "../../ui";
import { SeverityMark } from "../../ui";
import { worst, type Findings } from "./model";

const small = 120; // members from which on tiles have no names

// Tiles show each member as a shape and a letter; those that are wrong are told apart from afar.
export function Tiles({ groups, label, findings }: { groups: readonly (readonly [string, MemberInfo[]])[]; label: string; findings: Findings | undefined }) {
  const all = groups.reduce((n, [, members]) => n + members.length, 0);
  return (
    <div class="tilegroups">
      {groups.map(([value, members]) => (
        <section key={value}>
          {label !== "" && <h2>{value === "" ? <span class="dim">without {label}</span> : value} <span class="dim">{many(members.length, "member")}</span></h2>}
          <ul class={all > small ? "tiles small" : "tiles"}>{members.map((member) => <Tile key={member.name} member={member} findings={findings} compact={all > small} />)}</ul>
        </section>
      ))}
    </div>
  );
}

function Tile({ member, findings, compact }: { member: MemberInfo; findings: Findings | undefined; compact: boolean }) {
  const { state, kinds, of } = worst(member);
  const tally = findings?.byMember.get(member.name);
  const top = severities.find((severity) => (tally?.bySeverity[severity] ?? 0) > 0);
  const told = `${member.name}: ${state}${state === "Synced" ? "" : ` for ${kinds} of ${of} kinds`}, ${findings === undefined ? "violations not loaded yet" : tally === undefined ? "no violations" : many(tally.violations, "violation")}, ${member.version ?? "version not known"}, ${many(member.objects, "object")}, ${bytes(member.bytes)}`;
  return (
    <li>
      <a class={`tile ${toneOf(state)} ${top === undefined ? "" : `sev${severityRank(top)}`}`} href={href(`/members/${member.name}`)} title={told}>
        <ToneShape tone={toneOf(state)} size={compact ? 10 : 12} />
        {compact ? <><span class="sr">{told}</span><span class="letter" aria-hidden="true">{state === "Synced" ? "" : state.charAt(0)}{top === undefined ? "" : top.charAt(0).toUpperCase()}</span></> : <>
          <span class="cut name">{member.name.split("/")[1] ?? member.name}</span><span class="sr"> {state}</span>
          {top !== undefined && <span class="n"><SeverityMark severity={top} text={false} /> {count(tally?.violations ?? 0)}</span>}
        </>}
      </a>
    </li>
  );
}
