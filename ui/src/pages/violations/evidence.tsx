import type { Explanation, ExplainedRead } from "../../data/policytypes";
import { objectHref, policyHref, subjectText } from "../../pieces/links";
import { Rego } from "../../pieces/rego";
import { StateMark, bytes, many } from "../../ui";

// Evidence is the policy's source with the lines that held, and the values that they read.
export function Evidence({ explanation: e }: { explanation: Explanation }) {
  const evaluated = new Set(e.lines.filter((line) => line.evaluated > 0).map((line) => line.file));
  const files = [...e.files].sort((a, b) => Number(evaluated.has(b.file)) - Number(evaluated.has(a.file)));
  const link = (path: string) => {
    if (path.startsWith("input.object") && e.finding.subject.name !== undefined) return objectHref(e.finding.subject, path.slice("input.object".length).replaceAll(".", "/"));
    if (path.startsWith("input.parameters")) return policyHref(e.policy);
    return undefined;
  };
  return (
    <section class="section" id="evidence">
      <h3>Why <span class="dim">● held, ○ was evaluated and did not; held/evaluated at the right</span></h3>
      {files.length === 0 && <p class="dim">The source is not shown: you may not read it, or nothing of it was evaluated.</p>}
      {files.map((file) => <Rego key={file.file} file={file.file} text={file.text} lines={e.lines} input={e.input} linkOf={link} />)}
    </section>
  );
}

// Reads are the documents that the evaluation read, of which member, and how fresh they were.
export function Reads({ explanation: e }: { explanation: Explanation }) {
  const reads = e.reads ?? [], stale = (e.freshness ?? []).filter((scope) => scope.state !== "Synced" && scope.state !== "NotServed");
  return (
    <section class="section">
      <h3>What was read <span class="dim">{stale.length === 0 ? "all of it is fresh" : `${many(stale.length, "scope")} not fresh`}</span></h3>
      {stale.length > 0 && <ul class="plainlist hatched">{stale.map((scope, i) => <li key={i}><span class="text"><StateMark state={scope.state} /> {scope.member} {scope.kind} <span>{scope.reason ?? ""}</span></span></li>)}</ul>}
      {reads.length === 0 ? <p class="dim">Nothing but the input.</p> : <ul class="plainlist">{reads.map((read) => <Read key={read.path} read={read} />)}</ul>}
    </section>
  );
}

function Read({ read }: { read: ExplainedRead }) {
  return (
    <li>
      <code>{read.path}</code>
      <span class="dim">{read.found ? "" : "not there · "}{read.times > 1 ? `${read.times} times · ` : ""}{read.bytes > 0 ? bytes(read.bytes) : ""}</span>
      {(read.objects ?? []).map((object, i) => <a key={i} href={objectHref(object)}>{object.member} {object.kind} {subjectText(object)}</a>)}
      {read.moreObjects !== undefined && read.moreObjects > 0 && <span class="dim">and {many(read.moreObjects, "more object", "more objects")}</span>}
    </li>
  );
}
