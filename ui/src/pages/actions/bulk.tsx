import { useMemo, useState } from "preact/hooks";
import { setParams } from "../../app/location";
import { send } from "../../data/api";
import type { ActionSummary, KubeObject } from "../../data/types";
import { href } from "../../app/location";
import { actionHref, subjectText } from "../../pieces/links";
import { ReasonForm } from "../../pieces/reasonform";
import { Drawer, many, shortPolicy } from "../../ui";
import { boundsOf, canRollBack, selectedBy } from "./model";

const shown = 200;

// BulkDrawer rolls back what one policy has written in a span: the list is what the Rollback selects.
export function BulkDrawer({ actions, all, hidden, filtered, whole }: { actions: readonly ActionSummary[]; all: readonly ActionSummary[]; hidden: number; filtered: boolean; whole: boolean }) {
  const can = useMemo(() => actions.filter(canRollBack), [actions]);
  const sizes = new Map<string, number>();
  for (const action of can) sizes.set(action.policy, (sizes.get(action.policy) ?? 0) + 1);
  const policies = [...sizes].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([name]) => name);
  const [chosen, setChosen] = useState("");
  const policy = policies.includes(chosen) ? chosen : policies[0] ?? "";
  const bounds = boundsOf(can.filter((action) => action.policy === policy));
  const some = selectedBy(all, policy, bounds);
  const blocked = bounds === undefined ? "Nothing is selected." : filtered ? "Remove the filters: a Rollback is of all that the policy wrote in a span." : whole ? "" : "Choose a span: not all that the policy wrote is loaded here.";
  const members = [...new Set(some.map((action) => action.member))];
  return (
    <Drawer id="action" title={`Roll back ${many(some.length, "correction")}`} sub="What a policy has written in a span, newest first" onClose={() => setParams({ bulk: null })}>
      {policies.length === 0 ? <p>Nothing in the span was written by a policy and could be taken back.</p> : <>
        {policies.length > 1 && <label class="reason-why">A Rollback is of one policy<select value={policy} onChange={(event) => setChosen(event.currentTarget.value)}>{policies.map((one) => <option key={one} value={one}>{shortPolicy(one)}</option>)}</select></label>}
        <section class="section"><dl class="facts">
          <dt>Policy</dt><dd title={policy}>{shortPolicy(policy)}</dd><dt>From</dt><dd>{bounds?.since}</dd><dt>Until</dt><dd>{bounds?.until}</dd><dt>Members</dt><dd>{many(members.length, "member")}: {members.slice(0, 5).join(", ")}{members.length > 5 ? " …" : ""}</dd>
        </dl></section>
        <p class="dim">The hub freezes what is selected as a Plan, which is carried out once {shortPolicy(policy)} does not write the same again: when it is suspended, halted, stopped, or changed. Targets that have changed since stay as they are.</p>
        <ul class="plainlist">{some.slice(0, shown).map((action) => <li key={action.name}><a href={actionHref(action.name)}>{action.member} · {action.target.kind} {subjectText(action.target)}</a> <span class="dim">{action.violation}</span></li>)}</ul>
        {some.length > shown && <p class="dim">and {some.length - shown} more</p>}
        {hidden > 0 && <p class="wrong">{many(hidden, "Action is", "Actions are")} on objects that you may not read: those of the span are rolled back, too, and not counted here.</p>}
        <ReasonForm stick verb={`Roll back ${many(some.length, "correction")}`} danger blocked={blocked} send={async (reason) => {
          const made = await send<KubeObject>("POST", "/ui/relay/rollbacks", { fleetPolicy: policy, since: bounds?.since ?? "", until: bounds?.until ?? "", reason });
          return { text: `Rollback ${made?.metadata.name ?? ""} of ${shortPolicy(policy)} is requested.`, href: href("/actions", { tab: "waiting", policy }), link: "See what it waits for" };
        }} />
      </>}
    </Drawer>
  );
}
