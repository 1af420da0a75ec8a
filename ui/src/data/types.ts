// The shapes of the query API's answers, as docs/queries.md and the OpenAPI describe them.
import type { StopItem } from "./policytypes";

export interface Status {
  kind: "Status";
  code: number;
  reason?: string;
  message: string;
}

export interface Session {
  user: string;
  groups?: string[];
  methods: string[];
  canWrite: boolean;
  cannotWriteWhy?: string;
  expires?: string;
  version?: string;
  hub?: boolean;
}

export interface NotSynced {
  member: string;
  kind?: string;
  state: string;
  reason?: string;
  age?: string;
}

export interface ScopeDetails {
  kind: string;
  version?: string;
  state: string;
  reason?: string;
  age?: string;
  proved?: string;
  objects?: number;
  bytes?: number;
}

export interface MemberError {
  message: string;
  time: string;
}

export interface MemberHealth {
  state: string;
  reason?: string;
  message?: string;
  since: string;
  freshness?: string;
  transport?: string;
  budget: { objects: number; maxObjects: number; bytes: number; maxBytes: number };
  error?: MemberError;
  lastError?: MemberError;
  audit?: {
    oldest: string;
    oldestFirstTier: string;
    behind?: boolean;
    unaudited?: number;
    lost?: number;
    lastLoss?: { time: string; kind: string; namespace?: string; differences: Record<string, number>; example?: string };
  };
}

export interface MemberInfo {
  name: string;
  version?: string;
  labels?: Record<string, string>;
  scopes: Record<string, number>;
  objects: number;
  bytes: number;
  held?: string;
  writesWith?: string;
  notSynced?: NotSynced[];
  notSyncedMore?: number;
  details?: ScopeDetails[];
  health?: MemberHealth;
  healthForbidden?: string;
}

export interface MemberSummary {
  members: number;
  synced: number;
  byState: Record<string, number>;
  scopes: Record<string, number>;
  objects: number;
  bytes: number;
}

export interface MemberList {
  revision: string;
  items: MemberInfo[];
  continue?: string;
  summary?: MemberSummary;
}

export interface Subject {
  member?: string;
  kind?: string;
  namespace?: string;
  name?: string;
  key?: string;
}

export interface FoundViolation {
  msg: string;
  details?: unknown;
  exempt?: string;
  firstSeen?: string;
  remedy?: { action: string; target: Subject; object?: unknown; patch?: unknown };
}

export interface Gap {
  member?: string;
  kind?: string;
  state?: string;
  failure?: string;
}

export interface Finding {
  policy: string;
  package: string;
  severity: string;
  subject: Subject;
  state: string;
  message?: string;
  since?: string;
  revision: string;
  violations?: FoundViolation[];
  gaps?: Gap[];
}

export interface FindingGroup {
  key: string[];
  subjects: number;
  violations: number;
  exempt: number;
  unknown: number;
  errors: number;
}

export interface Violations {
  revision: string;
  resourceVersion?: string;
  synced: boolean;
  items?: Finding[];
  groupBy?: string[];
  groups?: FindingGroup[];
  truncated?: boolean;
  continue?: string;
  failed?: string[];
  withheld?: string[];
}

export interface Find {
  items: { resource: string; kind: string; namespace?: string; name: string; member: string; members: number }[];
  truncated?: boolean;
  notSynced?: NotSynced[];
}

export interface Count {
  revision: string;
  total: number;
  groupBy?: string[];
  groups?: { key: string[]; count: number }[];
  other?: number;
  truncated?: boolean;
  notSynced?: NotSynced[];
  notSyncedMore?: number;
}

export interface GraphNode {
  member: string;
  apiVersion: string;
  kind: string;
  namespace?: string;
  name: string;
  uid?: string;
  distance?: number;
}

export interface Graph {
  revision: string;
  nodes: GraphNode[];
  edges?: { from: number; to: number; relation: string }[];
  truncated?: boolean;
  notSynced?: NotSynced[];
}

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [field: string]: unknown;
}

export interface TableColumn {
  name: string;
  type: string;
  format?: string;
  description?: string;
  priority: number;
}

export interface TableRow {
  cells: unknown[];
  object: { metadata: ObjectMeta };
}

export interface KubeTable {
  kind: "Table";
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number; annotations?: Record<string, string> };
  columnDefinitions?: TableColumn[] | null; // null in events after the first
  rows: TableRow[];
}

export interface PlanSummary {
  name: string;
  hash: string;
  purpose?: string;
  state: string;
  required?: number;
  approvals?: unknown;
}

export interface PolicyInfo {
  name: string;
  package: string;
  title?: string;
  description?: string;
  severity: string;
  source?: { name: string; commit?: string; file?: string } | null;
  kinds?: string[];
  subject?: string;
  mode?: string;
  state?: string;
  message?: string;
  withheld?: boolean;
  violations?: number;
  exempt?: number;
  unknown?: number;
  errors?: number;
  subjects?: number;
  exemptions?: { reason: string; expires?: string; members?: unknown; namespaces?: unknown; names?: unknown }[];
  quarantines?: { member: string; until?: string; reason?: string }[];
  cost?: { windowSeconds: number; cpuShare: number; evaluationsPerSecond: number; perEvaluationMicros: number; rules?: { rule?: string; file: string; line: number; share: number; micros: number }[]; samples?: number } | null;
  tests?: { rego: number; by?: string };
  halted?: { id: string; reason?: string; message?: string; since?: string } | null;
  plans?: PlanSummary[];
  corrected?: number;
  rego?: { file: string; text: string }[];
  parameters?: unknown;
  fleetPolicy?: KubeObject | null;
}

export interface Policies {
  revision: number | string;
  synced: boolean;
  items: PolicyInfo[];
  stale?: boolean; // the hub is out of reach: FleetPolicies may have changed
  hubForbidden?: string;
}

export interface ActionSummary {
  name: string;
  policy: string;
  member: string;
  target: Subject & { uid?: string };
  verb: string;
  phase: string;
  message?: string;
  manager?: string;
  violation?: string;
  commit?: string;
  reason?: string;
  rollbackOf?: string;
  wave?: string | number;
  created?: string;
  startedAt?: string;
  endedAt?: string;
  acknowledgedBy?: string;
}

export interface Actions {
  items: ActionSummary[];
  continue?: string;
  total?: number;
  hidden?: number;
  stale?: boolean; // the hub is out of reach: there may be newer ones
}

export interface Series {
  stepSeconds: number;
  start: string;
  truncated?: boolean;
  known: boolean[]; // of each step: a series that is not in the answer was 0 where it is true
  partial?: boolean; // some are left out, as one may not read all that they count
  dropped?: number;
  series: { policy?: string; member?: string; metric: string; values: (number | null)[] }[];
}

export interface HaltRecord {
  policy: string;
  id: string;
  reason?: string;
  message?: string;
  began?: string;
  stands: boolean;
  ended?: string;
  by?: string; // who acknowledged it
  ending?: string; // why it ended
}

export interface Halts {
  items: HaltRecord[];
  older?: boolean; // there may be older ones, which are not kept
  stale?: boolean;
}

export interface Stops {
  stale?: boolean; // the hub is out of reach
  items: StopItem[];
}
