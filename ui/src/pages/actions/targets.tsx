import { withQuery } from "../../data/api";
import { useLive } from "../../data/live";
import type { Explanation, PlanTarget } from "../../data/policytypes";
import { FieldDiff, TextDiff } from "../../pieces/fielddiff";
import { objectHref, subjectText } from "../../pieces/links";
import { Loading, count, many } from "../../ui";
import { useState } from "preact/hooks";

// Targets lists each object of a Plan with what would be done to it.
export function Targets({ policy, items, total, more, rollback }: { policy: string; items: readonly PlanTarget[]; total: number; more?: () => void; rollback: boolean }) {
  if (items.length === 0) return <p class="dim">None of its targets is one that you may see.</p>;
  return (
    <section class="section">
      <h3>What would be let pass <span class="dim">{many(items.length, "object")}{items.length < total ? ` of ${count(total)}` : ""}</span></h3>
      <div class="targets">{items.map((item, i) => <Target key={`${item.member} ${item.kind} ${item.namespace ?? ""} ${item.name}`} policy={policy} item={item} first={i < 3} rollback={rollback} />)}</div>
      {more !== undefined && <button type="button" onClick={more}>Show more</button>}
    </section>
  );
}

function Target({ policy, item, first, rollback }: { policy: string; item: PlanTarget; first: boolean; rollback: boolean }) {
  const [open, setOpen] = useState(first);
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{item.verb} {item.kind} <b>{subjectText(item)}</b> in {item.member}{item.irreversible !== undefined && item.irreversible !== "" && <span class="wrong"> · cannot be rolled back: {item.irreversible}</span>}{item.message !== undefined && item.message !== "" && <span class="dim"> · {item.dryRun}: {item.message}</span>}</summary>
      {open && <div class="inside">
        {item.diff !== undefined && item.diff !== "" ? <TextDiff text={item.diff} label={`What changes of ${item.name}`} /> : rollback ? <p class="dim">It gets back what it was before the policy wrote it.</p> : <Explained policy={policy} item={item} />}
        <p><a href={objectHref(item)}>See the object as it is</a> {item.remedy !== "" && <span class="dim">remedy <code>{item.remedy.slice(0, 12)}</code></span>}</p>
      </div>}
    </details>
  );
}

// Explained asks what the remedy would change now: a Plan has the digest of a remedy, and diffs only of a dry run's sample.
function Explained({ policy, item }: { policy: string; item: PlanTarget }) {
  const live = useLive<Explanation>(withQuery("/query/v1/explain", { policy, member: item.member, kind: item.kind, namespace: item.namespace, name: item.name }));
  if (live.value === undefined) return live.error === undefined ? <Loading rows={2} /> : <p class="dim">What changes cannot be shown: {live.error.message}</p>;
  const mine = (live.value.remedies ?? []).filter((r) => r.target.name === item.name && r.target.member === item.member);
  if (mine.length === 0) return <p class="dim">The object does not violate the policy by itself now: another subject asks for the change, or it has been corrected.</p>;
  return <>{mine.map((remedy, i) => remedy.problem !== undefined && remedy.problem !== "" ? <p key={i} class="dim">{remedy.problem}</p> : <FieldDiff key={i} changes={remedy.changes ?? []} label={`What changes of ${item.name}`} />)}</>;
}
