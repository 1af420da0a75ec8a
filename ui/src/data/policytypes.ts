// The shapes of answers about policies: explanations, Actions, Plans, sources.
import type { ActionSummary, Finding, KubeObject, Subject } from "./types";

export interface Change {
  path: string;
  before?: unknown;
  after?: unknown;
  redacted?: boolean;
}

export interface ExplainedScope {
  member: string;
  kind: string;
  state: string;
  reason?: string;
}

export interface ExplainedRead {
  path: string;
  found: boolean;
  times: number;
  bytes: number;
  objects?: (Subject & { member: string; kind: string; name: string; resourceVersion: string; revision: string | number })[];
  moreObjects?: number;
  scopes?: ExplainedScope[];
  moreScopes?: number;
}

export interface ExplainedRemedy {
  violation: string;
  action: string;
  target: Subject;
  changes?: Change[];
  more?: number;
  about?: boolean; // what applying probably does: only a server knows its lists
  problem?: string;
  hubForbidden?: string; // the permission without which by and reason are not sent
}

export interface Explanation {
  policy: string;
  package: string;
  title?: string;
  severity: string;
  revision: string | number;
  finding: Finding;
  repeated?: Finding;
  input?: unknown;
  lines: { file: string; row: number; text: string; evaluated: number; held: number; rule: boolean }[];
  files: { file: string; text: string }[];
  reads: ExplainedRead[] | null;
  freshness?: ExplainedScope[];
  commit?: { hash: string; source: string; author?: string; signer?: string; time?: string; ref?: string } | null;
  remedies?: ExplainedRemedy[];
  actions?: ActionSummary[];
}

export interface ActionDetail {
  summary: ActionSummary;
  changes?: Change[];
  irreversible?: string;
  action: KubeObject;
}

export interface PlanInfo {
  name: string;
  hash: string;
  purpose: string;
  state: string;
  since?: string;
  created: string;
  amends?: string;
  halt?: string;
  required: number;
  approved: number;
  targets: number;
  hidden: number;
  written: number;
  problem?: string; // such a Plan must not be approved
  irreversible: number;
  counts?: { member: string; kind: string; verb: string; targets: number }[];
  countsOmitted?: number;
  dryRun?: Record<string, number>;
  messages?: { dryRun: string; message: string; targets: number }[];
}

export interface PlanTarget {
  plan: string;
  member: string;
  kind: string;
  namespace?: string;
  name: string;
  verb: string;
  remedy: string;
  irreversible?: string;
  diff?: string;
  dryRun?: string;
  message?: string;
}

export interface PlanList {
  policy: string;
  plans?: PlanInfo[];
  omitted?: number;
  items?: PlanTarget[];
  continue?: string;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export type RolloutPhase = "Shadow" | "Waves" | "Promoted" | "TakenBack";

// Evidence is how the verdicts of a version differ from those of the one in effect.
export interface Evidence {
  complete?: boolean;
  subjects: number;
  new: number;
  gone: number;
  errors: number;
  cost?: number; // percent of the CPU time of the one in effect
}

// Candidate is a version of a policy that is to take the place of the one in effect.
export interface Candidate {
  digest: string;
  origin?: { source?: string; commit?: string; path?: string };
  phase: RolloutPhase;
  began: string;
  since: string;
  waves?: number;
  message?: string;
  evidence?: Evidence;
}

export interface SourceRollout {
  commit: string;
  phase: RolloutPhase;
  began: string;
  since: string;
  policies?: number;
  waiting?: number;
  message?: string;
  evidence?: Evidence;
}

export interface FleetPolicy extends KubeObject {
  spec: { waves?: { name: string }[]; rollout?: { waves?: { name: string }[] } };
  status?: { rollout?: { candidate?: Candidate } };
}

export interface SourceCommit {
  hash: string;
  ref?: string;
  path?: string;
  author?: string;
  time?: string;
  signer?: string;
  since?: string;
}

export interface PolicySource extends KubeObject {
  spec: { url: string; path?: string; ref?: Record<string, string>; interval?: string; maxDiff?: number; maxPrune?: number; verification?: { mode?: string }; ceiling?: Record<string, unknown> };
  status?: {
    conditions?: Condition[];
    activeCommit?: SourceCommit;
    observedCommit?: SourceCommit;
    packages?: string[];
    rollout?: SourceRollout;
    lastDiff?: { commit: string; appeared: number; cleared: number; changed: number; unknown: number; enforcement?: number; allowed?: number };
    approvals?: { name: string; by: string; at: string; expires: string }[];
    findings?: { file?: string; line?: number; column?: number; severity: string; code?: string; message: string }[];
    fleetPolicies?: { commit: string; synced?: number; failed: number; pruned: number; kept: number };
    lastContact?: string;
  };
}

export interface Sources {
  stale?: boolean; // the hub is out of reach
  items: PolicySource[];
}

export interface StopItem {
  scope: string;
  name?: string;
  by?: string;
  reason?: string;
  since?: string;
  problem?: string;
  hubForbidden?: string; // the permission without which by and reason are not sent
}
