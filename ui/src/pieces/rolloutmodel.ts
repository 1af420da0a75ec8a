// A version of a policy on its way: what it has passed, and what is known of it.
import type { Candidate, Evidence, FleetPolicy, RolloutPhase } from "../data/policytypes";
import type { KubeObject } from "../data/types";

// candidateOf is the version that is to take the place of the one in effect; undefined where there is none.
export function candidateOf(of: KubeObject | null | undefined): Candidate | undefined {
  return (of as FleetPolicy | null | undefined)?.status?.rollout?.candidate;
}

export function phaseTitle(phase: RolloutPhase): string {
  return { Shadow: "in shadow", Waves: "in waves", Promoted: "in effect everywhere", TakenBack: "taken back" }[phase];
}

export function phaseTone(phase: RolloutPhase): "busy" | "ok" | "wrong" {
  return phase === "TakenBack" ? "wrong" : phase === "Promoted" ? "ok" : "busy";
}

// evidenceText is what a version finds otherwise than the one in effect, in words.
export function evidenceText(e: Evidence): string {
  const parts = [`${e.new} new violation${e.new === 1 ? "" : "s"}`, `${e.gone} gone`];
  if (e.errors > 0) parts.push(`it fails on ${e.errors} more`);
  if (e.cost !== undefined) parts.push(`takes ${e.cost}% of the time`);
  return parts.join(", ");
}

export interface Step {
  name: string;
  state: "passed" | "now" | "to come";
}

// stepsOf are the shadow, the waves and the end, as far as the version has come. Without waves it takes effect
// everywhere after the shadow.
export function stepsOf(c: Candidate, of: FleetPolicy): Step[] {
  const waves = of.spec.rollout?.waves ?? of.spec.waves ?? [];
  const at = c.phase === "Shadow" ? 0 : c.phase === "Waves" ? Math.max(1, c.waves ?? 1) : waves.length + 1;
  return ["in shadow", ...waves.map((w) => `wave ${w.name}`), "in effect everywhere"].map((name, i) => ({ name, state: i < at || c.phase === "Promoted" ? "passed" : i === at ? "now" : "to come" }));
}
