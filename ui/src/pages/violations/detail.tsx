import { setParams } from "../../app/location";
import { withQuery } from "../../data/api";
import { useLive } from "../../data/live";
import type { Explanation, ExplainedRemedy } from "../../data/policytypes";
import type { ActionSummary, Finding, FoundViolation } from "../../data/types";
import { FieldDiff } from "../../pieces/fielddiff";
import { actionHref, commitHref, memberHref, objectHref, policyHref, subjectOf, subjectText } from "../../pieces/links";
import { markOf } from "../../pieces/regolines";
import { Yaml } from "../../pieces/yaml";
import { Before, CopyAs, Drawer, Failed, Freshness, Loading, SeverityMark, StateMark, Unknown, ago, plain, shortPolicy } from "../../ui";
import { Evidence, Reads } from "./evidence";

// Detail is how one verdict came about: from its message to the line, the commit and what was tried.
export function Detail({ open }: { open: string }) {
  const at = subjectOf(open);
  const path = at === undefined ? null : withQuery("/query/v1/explain", { policy: at.policy, member: at.subject.member, kind: at.subject.kind, namespace: at.subject.namespace, name: at.subject.name, key: at.subject.key });
  const live = useLive<Explanation>(path);
  const close = () => setParams({ open: null });
  if (at === undefined || path === null) return <Drawer title="There is no such violation" onClose={close}><p>The address names no policy and no subject.</p></Drawer>;
  const found = live.value;
  return (
    <Drawer id="violation" title={<>{found !== undefined && <SeverityMark severity={found.severity} text={false} />} {found?.title ?? shortPolicy(at.policy)}</>} onClose={close}
      sub={<><a href={policyHref(at.policy)} title={at.policy}>{shortPolicy(at.policy)}</a> · {at.subject.member !== undefined && <><a href={memberHref(at.subject.member)}>{at.subject.member}</a> · </>}{at.subject.kind !== undefined ? <a href={objectHref(at.subject)}>{at.subject.kind} {subjectText(at.subject)}</a> : subjectText(at.subject)}</>}
      tools={<CopyAs commands={{ kubectl: `kubectl --context fleet get --raw '${path}'`, curl: path }} />}>
      {found === undefined ? live.error === undefined ? <Loading /> : <Failed status={live.error} /> : <><Before live={live} /><Explained explanation={found} /></>}
      {found !== undefined && <p class="dim"><Freshness at={live.at} revision={found.revision} /> · revision {found.revision}</p>}
    </Drawer>
  );
}

function Explained({ explanation: e }: { explanation: Explanation }) {
  const violations = e.finding.violations ?? [];
  return (
    <>
      <Trail explanation={e} />
      {e.finding.state === "Unknown" && <Unknown title="Not known" gaps={e.finding.gaps ?? []}><p>The verdict depends on what was not read completely:</p></Unknown>}
      {e.finding.state === "Error" && <div class="section" role="note"><h3><StateMark state="Error">The evaluation failed</StateMark></h3><p class="message">{e.finding.message}</p>{e.finding.since !== undefined && <p class="dim">for {ago(e.finding.since)}</p>}</div>}
      {violations.map((violation, i) => <Message key={i} violation={violation} />)}
      {violations.length === 0 && e.finding.state === "Known" && <p>It does not violate the policy any more.</p>}
      {e.repeated !== undefined && <Repeated finding={e.repeated} />}
      {(e.remedies ?? []).map((remedy, i) => <Remedy key={i} remedy={remedy} />)}
      <Evidence explanation={e} />
      <Tried policy={e.policy} actions={e.actions ?? []} />
      <Reads explanation={e} />
    </>
  );
}

// Trail leads from the violation to the line, the commit and the Action, each in one click.
function Trail({ explanation: e }: { explanation: Explanation }) {
  const rule = e.lines.find((line) => line.rule && markOf(line) === "held") ?? e.lines.find((line) => markOf(line) === "held");
  const newest = e.actions?.find((action) => action.policy === e.policy);
  return (
    <nav class="trail" aria-label="Where it comes from">
      {rule !== undefined && <button type="button" class="link mono" onClick={() => document.getElementById("evidence")?.scrollIntoView({ block: "start" })}>{rule.file}:{rule.row}</button>}
      {e.commit != null && <><span class="sep" aria-hidden="true">←</span><a href={commitHref(e.commit.source, e.commit.hash)} title={[e.commit.author, e.commit.time, e.commit.signer === undefined ? "not signed" : `signed by ${e.commit.signer}`].filter((x) => x !== undefined).join(", ")}>commit <code>{e.commit.hash.slice(0, 8)}</code></a>{e.commit.author !== undefined && <span class="dim">by {plain(e.commit.author.replace(/ <.*>$/, ""))}</span>}</>}
      {newest !== undefined && <><span class="sep" aria-hidden="true">→</span><a href={actionHref(newest.name)}>Action <code>{newest.name}</code></a> <StateMark state={newest.phase || "Pending"} /></>}
    </nav>
  );
}

function Message({ violation }: { violation: FoundViolation }) {
  const details = violation.details;
  return (
    <section class="section">
      <p class="message">{plain(violation.msg)}</p>
      <p class="dim">{violation.firstSeen !== undefined && <time dateTime={violation.firstSeen} title={violation.firstSeen}>first seen {ago(violation.firstSeen)} ago</time>}{violation.exempt !== undefined && <> · <span class="pill">exempt</span> {violation.exempt}</>}</p>
      {details !== undefined && details !== null && <Yaml value={details} label="Details" />}
    </section>
  );
}

function Repeated({ finding }: { finding: Finding }) {
  return <section class="section" role="note"><h3>Evaluated again, it is {finding.state}</h3><p class="dim">{finding.message ?? (finding.violations ?? []).map((v) => v.msg).join("; ")}</p></section>;
}

function Remedy({ remedy }: { remedy: ExplainedRemedy }) {
  return (
    <section class="section">
      <h3>Remedy <span class="dim">{remedy.action} {remedy.target.kind} {subjectText(remedy.target)} in {remedy.target.member}</span></h3>
      {remedy.problem !== undefined && remedy.problem !== "" ? <p class="wrong">{remedy.problem}</p> : remedy.action === "delete" && (remedy.changes ?? []).length === 0 ? <p>The object would be deleted.</p> : <FieldDiff changes={remedy.changes ?? []} label="What the remedy changes" />}
      {remedy.about === true && <p class="dim">About: how lists merge only the member's server knows.</p>}
      {remedy.more !== undefined && remedy.more > 0 && <p class="dim">and {remedy.more} more fields</p>}
    </section>
  );
}

function Tried({ policy, actions }: { policy: string; actions: readonly ActionSummary[] }) {
  return (
    <section class="section">
      <h3>What has been tried</h3>
      {actions.length === 0 ? <p class="dim">Nothing was written to this object, as far as Actions are kept and you may list them.</p> : (
        <ul class="plainlist">{actions.map((action) => (
          <li key={action.name}><StateMark state={action.phase || "Pending"} /> <a href={actionHref(action.name)}>{action.verb} · {action.name}</a> {action.policy !== policy && <span class="pill">by {shortPolicy(action.policy)}</span>} <span class="dim">{action.startedAt === undefined ? "" : `${ago(action.startedAt)} ago`} {action.message ?? ""}</span></li>
        ))}</ul>
      )}
    </section>
  );
}
