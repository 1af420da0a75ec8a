// What a matrix of policies and members shows, without a screen.
import { seriate } from "./seriate";

export interface MatrixCell {
  violations: number;
  unknown: number; // subjects that are not known
  errors?: number;
}

export interface MatrixRow {
  name: string;
  label?: string;
  severity: string;
  withheld?: boolean; // the caller may not see what it found
}

export interface MatrixData {
  policies: readonly MatrixRow[];
  members: readonly string[];
  cells: ReadonlyMap<string, MatrixCell>; // by keyOf
}

export function keyOf(policy: string, member: string): string {
  return `${policy}\u0000${member}`;
}

export interface Grid {
  rows: readonly MatrixRow[];
  columns: readonly string[];
  at(row: number, column: number): MatrixCell | undefined;
  most: number; // violations of one cell
}

// arrange orders rows and columns so that what is alike lies together.
export function arrange(data: MatrixData): Grid {
  const rowOf = data.policies.map(() => new Map<number, number>());
  const columnOf = data.members.map(() => new Map<number, number>());
  let most = 0;
  data.policies.forEach((policy, p) => data.members.forEach((member, m) => {
    const cell = data.cells.get(keyOf(policy.name, member));
    if (cell === undefined) return;
    const weight = cell.violations + (cell.unknown + (cell.errors ?? 0) > 0 ? 0.5 : 0);
    most = Math.max(most, cell.violations);
    if (weight === 0) return;
    rowOf[p]?.set(m, Math.log1p(weight));
    columnOf[m]?.set(p, Math.log1p(weight));
  }));
  const rows = seriate(rowOf).flatMap((i) => data.policies[i] ?? []);
  const columns = seriate(columnOf).flatMap((i) => data.members[i] ?? []);
  const cells = rows.map((row) => columns.map((column) => data.cells.get(keyOf(row.name, column))));
  return { rows, columns, most, at: (row, column) => cells[row]?.[column] };
}

// columnLabels are names that are told apart where there is little room: without the namespace that all share, and with their
// ends, since names of members begin alike.
export function columnLabels(members: readonly string[], room = 14): string[] {
  const namespace = members[0]?.slice(0, members[0].indexOf("/") + 1) ?? "";
  const shared = namespace !== "" && members.every((member) => member.startsWith(namespace));
  return members.map((member) => {
    const name = shared ? member.slice(namespace.length) : member;
    return name.length <= room ? name : `…${name.slice(1 - room)}`;
  });
}

// strength is how dark a cell is, in five steps that are told apart at a glance: 0 for none.
export function strength(violations: number, most: number): number {
  if (violations <= 0) return 0;
  if (most <= 1) return 5;
  return 1 + Math.min(4, Math.floor((Math.log(violations) / Math.log(most)) * 4.001));
}

// cellSize keeps cells between 10 and 18 pixels, as large as the width allows.
export function cellSize(columns: number, width: number): number {
  return Math.max(10, Math.min(18, Math.floor(width / Math.max(1, columns))));
}

export function move(key: string, row: number, column: number, rows: number, columns: number): [number, number] | undefined {
  const far = 10;
  switch (key) {
    case "ArrowUp": return [Math.max(0, row - 1), column];
    case "ArrowDown": return [Math.min(rows - 1, row + 1), column];
    case "ArrowLeft": return [row, Math.max(0, column - 1)];
    case "ArrowRight": return [row, Math.min(columns - 1, column + 1)];
    case "PageUp": return [Math.max(0, row - far), column];
    case "PageDown": return [Math.min(rows - 1, row + far), column];
    case "Home": return [row, 0];
    case "End": return [row, columns - 1];
    default: return undefined;
  }
}

// tell is a cell in words.
export function tell(row: MatrixRow, member: string, cell: MatrixCell | undefined): string {
  if (row.withheld === true) return `${row.name}, ${member}: you may not see it`;
  const parts: string[] = [];
  if (cell !== undefined && cell.violations > 0) parts.push(`${cell.violations} ${cell.violations === 1 ? "violation" : "violations"}`);
  if (cell !== undefined && cell.unknown > 0) parts.push(`${cell.unknown} unknown`);
  if (cell?.errors !== undefined && cell.errors > 0) parts.push(`${cell.errors} failed`);
  return `${row.name}, ${member}: ${parts.length === 0 ? "none" : parts.join(", ")}`;
}
