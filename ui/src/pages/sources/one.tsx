import type { ComponentChildren } from "preact";
import { href } from "../../app/location";
import { send } from "../../data/api";
import { useLive } from "../../data/live";
import type { PolicySource, SourceCommit } from "../../data/policytypes";
import type { KubeObject, Policies, PolicyInfo } from "../../data/types";
import { policyHref } from "../../pieces/links";
import { ReasonForm } from "../../pieces/reasonform";
import { EndShadow, Found } from "../../pieces/rollout";
import { phaseTitle, phaseTone } from "../../pieces/rolloutmodel";
import { Yaml } from "../../pieces/yaml";
import { StateMark, ToneShape, ago, many, plain, shortPolicy } from "../../ui";
import { diffSize, diffText, gatesOf, held, rollsOut, webLink } from "./model";

// One is a repository: its commits with their gates, what they find and what they change.
export function One({ source, commit }: { source: PolicySource; commit: string }) {
  const s = source.status ?? {};
  const policies = useLive<Policies>("/query/v1/policies");
  const mine = (policies.value?.items ?? []).filter((p) => p.source?.name === source.metadata.name);
  const why = held(source);
  const other = commit !== "" && commit !== s.activeCommit?.hash && commit !== s.observedCommit?.hash;
  return (
    <div class="scroll pad sources">
      <p class="dim">{source.spec.url}{source.spec.path === undefined ? "" : ` · ${source.spec.path}`}{source.spec.ref === undefined ? "" : ` · ${Object.entries(source.spec.ref).map(([k, v]) => `${k} ${v}`).join(" ")}`} · {s.lastContact === undefined ? "never read" : `read ${ago(s.lastContact)} ago`}</p>
      {other && <p class="waiting open">Commit <Hash source={source} hash={commit} /> is neither the newest nor the active one any more.</p>}
      <div class="commits">
        {s.observedCommit !== undefined && s.observedCommit.hash !== s.activeCommit?.hash && <Commit title="Newest, not active" source={source} commit={s.observedCommit} here={commit} tone="warn">{why !== undefined && <p class="message">{why.reason}: {why.message}</p>}<RollsOut source={source} policies={mine} /><Approve source={source} /></Commit>}
        {s.activeCommit !== undefined ? <Commit title={s.observedCommit?.hash === s.activeCommit.hash ? "Active, the newest" : rollsOut(source) ? "Active: in effect where the newest is not" : "Active: what is good is observed until a commit passes"} source={source} commit={s.activeCommit} here={commit} tone="ok" /> : <p>No commit has been active yet.</p>}
      </div>
      <section class="section"><h2>Gates</h2><ul class="plainlist">{gatesOf(s.conditions ?? []).map((gate) => (
        <li key={gate.name} class={gate.state === "unknown" ? "hatched" : ""}><span class="text"><ToneShape tone={gate.state === "passed" ? "ok" : gate.state === "failed" ? "wrong" : "unknown"} /> <b>{gate.name}</b> <span>{gate.state === "passed" ? "" : gate.state}</span> {gate.reason} <span class="dim">{gate.message}{gate.since === "" ? "" : ` · for ${ago(gate.since)}`}</span></span></li>
      ))}</ul></section>
      <Findings source={source} />
      <section class="section"><h2>Changes in verdicts</h2>{s.lastDiff === undefined ? <p class="dim">Not computed: no commit was compared with the live fleet yet.</p> : <>
        <p>Commit <Hash source={source} hash={s.lastDiff.commit} />: {diffText(s.lastDiff)}{s.lastDiff.allowed !== undefined && s.lastDiff.allowed > 0 && <span class={diffSize(s.lastDiff) > s.lastDiff.allowed ? "wrong" : "dim"}> · {diffSize(s.lastDiff)} of {s.lastDiff.allowed} that may change at once</span>}</p></>}</section>
      <section class="section"><h2>Approvals</h2>{(s.approvals ?? []).length === 0 ? <p class="dim">None counts for the newest commit{source.spec.maxDiff === undefined ? ", and none is needed: maxDiff is not set." : "."}</p> : <ul class="plainlist">{(s.approvals ?? []).map((a) => <li key={a.name}><StateMark state="Active">{a.by}</StateMark> <span class="dim">{ago(a.at)} ago, until {a.expires}</span></li>)}</ul>}</section>
      <section class="section"><h2>Policies</h2>{mine.length === 0 ? <p class="dim">No policy that you may see is read from it. {many((s.packages ?? []).length, "package")}: {(s.packages ?? []).join(", ")}</p> : <ul class="plainlist">{mine.map((p) => <li key={p.name}><a href={policyHref(p.name)}>{shortPolicy(p.name)}</a> <span class="dim">{p.mode} {p.state}</span> {(p.violations ?? 0) > 0 && <a href={href("/violations", { policy: p.name, exempt: "false" })}>{many(p.violations ?? 0, "violation")}</a>} <code class="dim">{p.source?.file}</code></li>)}</ul>}
        {s.fleetPolicies !== undefined && <p class="dim">FleetPolicies: {s.fleetPolicies.synced ?? 0} applied, {s.fleetPolicies.failed} failed, {s.fleetPolicies.pruned} deleted, {s.fleetPolicies.kept} kept although they are gone from the repository.</p>}</section>
      <details><summary>The PolicySource as it is on the hub</summary><Yaml value={source} label="PolicySource" /></details>
    </div>
  );
}

function Hash({ source, hash }: { source: PolicySource; hash: string }) {
  const link = webLink(source.spec.url, hash);
  return link === undefined ? <code title={hash}>{hash.slice(0, 8)}</code> : <a href={link} target="_blank" rel="noreferrer"><code>{hash.slice(0, 8)}</code></a>;
}

function Commit({ title, source, commit, here, tone, children }: { title: string; source: PolicySource; commit: SourceCommit; here: string; tone: "ok" | "warn"; children?: ComponentChildren }) {
  return (
    <section class={commit.hash === here ? "waiting open" : "waiting"}>
      <h2><ToneShape tone={tone} /> {title}</h2>
      <dl class="facts">
        <dt>Commit</dt><dd><Hash source={source} hash={commit.hash} /> <code class="dim hash">{commit.hash}</code></dd>
        {commit.author !== undefined && <><dt>Author</dt><dd>{commit.author}{commit.time !== undefined && <span class="dim">, {ago(commit.time)} ago</span>}</dd></>}
        <dt>Signature</dt><dd>{commit.signer === undefined || commit.signer === "" ? <span class="dim">{source.spec.verification === undefined ? "not checked" : "none that is trusted"}</span> : `signed by ${commit.signer}`}</dd>
        {commit.since !== undefined && <><dt>Since</dt><dd>{ago(commit.since)} ago</dd></>}
      </dl>
      {children}
    </section>
  );
}

// RollsOut is how far the newest commit has come that takes the place of the active one, and lets its shadow end.
function RollsOut({ source, policies }: { source: PolicySource; policies: readonly PolicyInfo[] }) {
  const r = source.status?.rollout;
  if (r === undefined || r.commit !== source.status?.observedCommit?.hash) return null;
  return (
    <>
      <p><StateMark state={r.phase} tone={phaseTone(r.phase)}>{phaseTitle(r.phase)}</StateMark> <span class="dim">for {ago(r.since)}</span>{r.policies !== undefined && r.phase !== "TakenBack" && <> · {r.policies - (r.waiting ?? 0)} of {many(r.policies, "changed policy", "changed policies")} in effect everywhere</>}</p>
      {r.evidence !== undefined && <Found evidence={r.evidence} />}
      {policies.length > 0 && <p>{policies.map((p) => <a key={p.name} class="pill" href={policyHref(p.name)}>{shortPolicy(p.name)}</a>)}</p>}
      {r.phase === "Shadow" && <EndShadow approval={{ policySource: source.metadata.name, commit: r.commit }} />}
    </>
  );
}

// Approve lets a commit pass that changes more verdicts than its source may at once.
function Approve({ source }: { source: PolicySource }) {
  const s = source.status ?? {}, diff = s.lastDiff, commit = s.observedCommit;
  if ((s.findings ?? []).some((f) => f.severity === "error")) return null; // that is what holds it
  if (commit === undefined || diff === undefined || diff.commit !== commit.hash || diff.allowed === undefined || diffSize(diff) <= diff.allowed) return null;
  return (
    <>
      <p>It changes {many(diffSize(diff), "verdict")}: {diffText(diff)}. {diff.allowed} may change at once.</p>
      <ReasonForm verb={`Let ${many(diffSize(diff), "changed verdict")} pass`} send={async (reason) => {
        const made = await send<KubeObject>("POST", "/ui/relay/approvals", { policySource: source.metadata.name, commit: commit.hash, reason, expiresSeconds: 86_400 });
        return { text: `Approved as ${made?.metadata.name ?? "you"}.` };
      }} />
    </>
  );
}

function Findings({ source }: { source: PolicySource }) {
  const findings = source.status?.findings ?? [], commit = source.status?.observedCommit?.hash ?? "";
  return (
    <section class="section"><h2>Findings <span class="dim">in the newest commit</span></h2>
      {findings.length === 0 ? <p class="dim">None.</p> : <ul class="plainlist">{findings.map((f, i) => {
        const at = f.file === undefined ? "" : `${f.file}${f.line === undefined || f.line === 0 ? "" : `:${f.line}${f.column === undefined || f.column === 0 ? "" : `:${f.column}`}`}`;
        const link = f.file === undefined ? undefined : webLink(source.spec.url, commit, f.file, f.line);
        return <li key={i}><StateMark state={f.severity} tone={f.severity === "error" ? "wrong" : "warn"} /> {at !== "" && (link === undefined ? <code>{at}</code> : <a href={link} target="_blank" rel="noreferrer"><code>{at}</code></a>)} <span>{plain(f.message)}</span> {f.code !== undefined && f.code !== "" && <span class="pill">{f.code}</span>}</li>;
      })}</ul>}
    </section>
  );
}
