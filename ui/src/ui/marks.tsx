// Severity and state by shape and letter, and by colour only in addition.
import type { ComponentChildren } from "preact";

export const severities = ["critical", "high", "medium", "low"] as const;

export function severityRank(severity: string): number {
  const at = (severities as readonly string[]).indexOf(severity);
  return at < 0 ? severities.length : at;
}

const shapes: Record<string, string> = {
  critical: "M4 0h6l4 4v6l-4 4H4l-4-4V4z", // octagon
  high: "M7 0l7 13H0z", // triangle
  medium: "M7 0l7 7-7 7-7-7z", // diamond
  low: "M7 1a6 6 0 1 1 0 12A6 6 0 0 1 7 1z", // circle
};

export function SeverityMark({ severity, text = true }: { severity: string; text?: boolean }) {
  const known = severity in shapes;
  return (
    <span class="mark" title={severity}>
      <svg width="14" height="14" viewBox="0 0 14 14" role="img" aria-label={severity}>
        <path d={shapes[severity] ?? "M1 1h12v12H1z"} fill={known ? `var(--${severity}-fill)` : "var(--unknown-fill)"} />
        <text x="7" y={severity === "high" ? 11.8 : 10.3} text-anchor="middle" font-size={severity === "high" ? 7.5 : 9} font-weight="700" fill="#000">{severity.charAt(0).toUpperCase()}</text>
      </svg>
      {text && <span aria-hidden="true">{severity}</span>}
    </span>
  );
}

export type Tone = "ok" | "busy" | "warn" | "wrong" | "off" | "unknown";

const tones: Record<string, Tone> = {
  Synced: "ok", Known: "ok", Enforcing: "ok", Succeeded: "ok", Verified: "ok", Applied: "ok", Ready: "ok", Active: "ok", Observing: "ok",
  Syncing: "busy", Running: "busy", Pending: "busy", Writing: "busy", Freezing: "busy", Counting: "busy",
  Partial: "warn", Stale: "warn", Held: "warn", Waiting: "warn", OverBudget: "warn", Protected: "warn", Managed: "warn", Stopped: "warn", WindowClosed: "warn", TooManyActions: "warn", BeyondCeiling: "warn",
  DryRun: "off", DryRunning: "off", Observe: "off", Superseded: "off", Suspended: "off", NotServed: "off", RolledBack: "off", NoOp: "off",
  Forbidden: "wrong", Halted: "wrong", Failed: "wrong", Error: "wrong", Rejected: "wrong", Contended: "wrong", Unreachable: "wrong", NotReady: "wrong",
  Unknown: "unknown",
};

export function toneOf(state: string): Tone {
  return tones[state] ?? "unknown";
}

const toneColour: Record<Tone, string> = {
  ok: "var(--ok-fill)", busy: "var(--low-fill)", warn: "var(--high-fill)", wrong: "var(--critical-fill)", off: "var(--unknown-fill)", unknown: "var(--unknown-fill)",
};

export function ToneShape({ tone, size = 12 }: { tone: Tone; size?: number }) {
  const fill = toneColour[tone];
  return (
    <svg width={size} height={size} viewBox="0 0 12 12" aria-hidden="true">
      {tone === "ok" && <circle cx="6" cy="6" r="4" fill={fill} />}
      {tone === "busy" && <circle cx="6" cy="6" r="4" fill="none" stroke={fill} stroke-width="2.5" />}
      {tone === "warn" && <path d="M6 1l5.5 10h-11z" fill={fill} />}
      {tone === "wrong" && <path d="M1 3l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3z" fill={fill} />}
      {tone === "off" && <path d="M1 5h10v2.4H1z" fill={fill} />}
      {tone === "unknown" && <path d="M1 11L11 1M1 6l5-5M6 11l5-5" stroke={fill} stroke-width="1.6" />}
    </svg>
  );
}

export function StateMark({ state, tone, children }: { state: string; tone?: Tone; children?: ComponentChildren }) {
  return <span class="mark"><ToneShape tone={tone ?? toneOf(state)} /><span>{children ?? state}</span></span>;
}
