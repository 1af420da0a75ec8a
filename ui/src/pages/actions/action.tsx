import { setParams } from "../../app/location";
import { send } from "../../data/api";
import { useLive } from "../../data/live";
import type { ActionDetail } from "../../data/policytypes";
import { FieldDiff } from "../../pieces/fielddiff";
import { actionHref, commitHref, findingHref, memberHref, objectHref, policyHref, subjectText } from "../../pieces/links";
import { ReasonForm } from "../../pieces/reasonform";
import { Yaml } from "../../pieces/yaml";
import { Before, CopyAs, Drawer, Failed, Loading, StateMark, ago, plain, shortPolicy } from "../../ui";
import { canRollBack } from "./model";

// ActionDrawer shows what one Action wrote, field by field, and takes it back.
export function ActionDrawer({ name }: { name: string }) {
  const path = `/query/v1/actions/${encodeURIComponent(name)}`;
  const live = useLive<ActionDetail>(path);
  const close = () => setParams({ open: null });
  const detail = live.value, action = detail?.summary;
  return (
    <Drawer id="action" title={action === undefined ? name : `${action.verb} ${action.target.kind ?? ""} ${subjectText(action.target)}`} onClose={close}
      {...(action === undefined ? {} : { sub: <><a href={policyHref(action.policy)} title={action.policy}>{shortPolicy(action.policy)}</a> · <a href={memberHref(action.member)}>{action.member}</a></> })}
      tools={<CopyAs commands={{ kubectl: `kubectl get action ${name} -o yaml`, federator: `federator actions rollback ${name} --reason '…'`, curl: path }} />}>
      {detail === undefined ? live.error === undefined ? <Loading /> : <Failed status={live.error} /> : <><Before live={live} /><Detail detail={detail} /></>}
    </Drawer>
  );
}

function Detail({ detail }: { detail: ActionDetail }) {
  const a = detail.summary;
  const spec = detail.action["spec"] as { origin?: { source?: string; commit?: string; path?: string } } | undefined;
  const source = spec?.origin?.source, commit = a.commit ?? spec?.origin?.commit;
  return (
    <>
      <section class="section"><dl class="facts">
        <dt>Phase</dt><dd><StateMark state={a.phase || "Pending"} /> {a.message !== undefined && a.message !== "" && <span>{a.message}</span>}</dd>
        <dt>When</dt><dd>{a.startedAt === undefined ? a.created ?? "not begun" : <time dateTime={a.startedAt} title={a.startedAt}>{ago(a.startedAt)} ago</time>} <span class="dim">{a.startedAt}</span></dd>
        <dt>Object</dt><dd><a href={objectHref(a.target)}>{a.target.kind} {subjectText(a.target)}</a> in <a href={memberHref(a.member)}>{a.member}</a></dd>
        {a.violation !== undefined && a.violation !== "" && (a.rollbackOf ?? "") === "" && <><dt>Violation</dt><dd><a href={findingHref(a.policy, a.target)}>{a.violation}</a></dd></>}
        {a.reason !== undefined && a.reason !== "" && <><dt>Reason</dt><dd>{plain(a.reason)}</dd></>}
        {commit !== undefined && commit !== "" && <><dt>Commit</dt><dd>{source === undefined ? <code>{commit.slice(0, 8)}</code> : <a href={commitHref(source, commit)}>{source} @ <code>{commit.slice(0, 8)}</code></a>}</dd></>}
        {a.wave !== undefined && a.wave !== 0 && <><dt>Wave</dt><dd>{a.wave}</dd></>}
        {a.manager !== undefined && a.manager !== "" && <><dt>Owned by</dt><dd>{a.manager}</dd></>}
        {a.acknowledgedBy !== undefined && a.acknowledgedBy !== "" && <><dt>Let pass by</dt><dd>{a.acknowledgedBy}</dd></>}
        {a.rollbackOf !== undefined && a.rollbackOf !== "" && <><dt>Rolls back</dt><dd><a href={actionHref(a.rollbackOf)}>{a.rollbackOf}</a></dd></>}
        <dt>Name</dt><dd><code>{a.name}</code></dd>
      </dl></section>
      <section class="section"><h3>What was written</h3>{(detail.changes ?? []).length === 0 ? <p class="dim">{a.verb === "delete" ? "The object was deleted." : "The fields are not recorded: values of Secrets and ConfigMaps are not kept."}</p> : <FieldDiff changes={detail.changes ?? []} label="Before and after" />}</section>
      <section class="section"><h3>Take it back</h3>{takeBack(detail)}</section>
      <details><summary>The Action as it is on the hub</summary><Yaml value={detail.action} label="Action" /></details>
    </>
  );
}

function takeBack(detail: ActionDetail) {
  const a = detail.summary;
  if (a.phase === "RolledBack") return <p class="dim">It is rolled back.</p>;
  if (detail.irreversible !== undefined && detail.irreversible !== "") return <p>It cannot be rolled back: {detail.irreversible}</p>;
  if (a.rollbackOf !== undefined && a.rollbackOf !== "") return <p class="dim">It is a rollback itself; the policy may write the same again when it is in force.</p>;
  if (!canRollBack(a)) return <p class="dim">Nothing was written that could be taken back.</p>;
  return (
    <>
      <p class="dim">The fields above get their values from before, if nobody has changed them since. A policy that is in force writes them again: suspend it first, or change it.</p>
      <ReasonForm verb="Roll back 1 correction" danger send={async (reason) => {
        const answer = await send<{ rolledBackBy?: string }>("POST", `/ui/relay/actions/${encodeURIComponent(a.name)}/rollback`, { reason, force: false });
        const by = answer?.rolledBackBy ?? "";
        return { text: by === "" ? "The rollback is requested." : `Rolled back by ${by}.`, ...(/^[a-z0-9.-]+$/.test(by) ? { href: actionHref(by), link: "See the Action" } : {}) };
      }} />
    </>
  );
}
