import { send } from "../data/api";
import type { Candidate, Evidence, FleetPolicy } from "../data/policytypes";
import type { KubeObject } from "../data/types";
import { StateMark, ago, many, plain } from "../ui";
import { candidateOf, evidenceText, phaseTitle, phaseTone, stepsOf } from "./rolloutmodel";
import { commitHref } from "./links";
import { ReasonForm } from "./reasonform";

// Version is a version of a policy that is to take the place of the one in effect.
export function Version({ of }: { of: KubeObject | null | undefined }) {
  const candidate = candidateOf(of);
  if (candidate === undefined) return null;
  const origin = candidate.origin;
  return (
    <section class="section" role="note">
      <h2><StateMark state={candidate.phase} tone={phaseTone(candidate.phase)}>New version: {phaseTitle(candidate.phase)}</StateMark> <span class="dim">for {ago(candidate.since)}</span></h2>
      {candidate.message !== undefined && candidate.message !== "" && <p class="message">{plain(candidate.message)}</p>}
      <Steps candidate={candidate} of={of as FleetPolicy} />
      <Found evidence={candidate.evidence} />
      <p class="dim">Version <code title={candidate.digest}>{candidate.digest.slice(0, 12)}</code>{origin?.source !== undefined && origin.commit !== undefined && <> of <a href={commitHref(origin.source, origin.commit)}>{origin.source} @ {origin.commit.slice(0, 8)}</a></>}. {candidate.phase === "TakenBack" ? "The version in effect only observes until there is another one." : candidate.phase === "Promoted" ? "" : "Where it is not in effect, the version before it is, and corrects."}</p>
      {candidate.phase === "Shadow" && of != null && <EndShadow approval={{ fleetPolicy: of.metadata.name, version: candidate.digest }} />}
    </section>
  );
}

// EndShadow approves that a version, or a commit, is in shadow no longer.
export function EndShadow({ approval }: { approval: { fleetPolicy: string; version: string } | { policySource: string; commit: string } }) {
  return <ReasonForm verb="End the shadow" send={async (reason) => {
    const made = await send<KubeObject>("POST", "/ui/relay/approvals", { ...approval, reason, expiresSeconds: 86_400 });
    return { text: `Approved as ${made?.metadata.name ?? "you"}.` };
  }} />;
}

// Steps are what it passes, with where it is.
function Steps({ candidate, of }: { candidate: Candidate; of: FleetPolicy }) {
  if (candidate.phase === "TakenBack") return null;
  return <ul class="plainlist">{stepsOf(candidate, of).map((step) => <li key={step.name}><StateMark state={step.state} tone={step.state === "passed" ? "ok" : step.state === "now" ? "busy" : "off"}>{step.name}</StateMark> <span class="dim">{step.state === "passed" ? "" : step.state}</span></li>)}</ul>;
}

// Found is how what it finds differs.
export function Found({ evidence }: { evidence: Evidence | undefined }) {
  if (evidence === undefined) return <p class="dim">Nothing is known of what it finds yet.</p>;
  return <p>{evidence.complete === true ? "" : "So far: "}{evidenceText(evidence)} <span class="dim">on {many(evidence.subjects, "subject")}, in all members</span></p>;
}
