// Drawing of the matrix: only the cells that have changed, on a canvas of the screen's pixels.
import type { Grid } from "./matrixmodel";
import { strength } from "./matrixmodel";

export interface Palette {
  fill: Record<string, string>;
  line: string;
  hatch: string;
  background: string;
  empty: string;
}

export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(name).trim();
  return {
    fill: Object.fromEntries(["critical", "high", "medium", "low"].map((s) => [s, value(`--${s}-fill`)])),
    line: value("--line"), hatch: value("--fg3"), background: value("--bg"), empty: value("--bg2"),
  };
}

export interface View {
  size: number; // how wide a cell is
  tall: number;
  x: number; // scrolled
  y: number;
  width: number;
  height: number;
}

const shades = [0, 0.38, 0.52, 0.68, 0.84, 1]; // one alone must be seen

// Painter draws the cells in view. What is already on the canvas is moved when the view scrolls, not drawn again.
export class Painter {
  private readonly context: CanvasRenderingContext2D | null;
  private drawn: View | undefined;

  constructor(private readonly canvas: HTMLCanvasElement, private grid: Grid, private palette: Palette) {
    this.context = canvas.getContext("2d", { alpha: false });
  }

  // update takes a new state in and draws what differs, or everything where the order has changed.
  update(grid: Grid, palette: Palette): void {
    const before = this.grid, view = this.drawn;
    const same = view !== undefined && palette === this.palette && before.most === grid.most && sameNames(before, grid);
    this.grid = grid;
    this.palette = palette;
    if (!same) { this.drawn = undefined; return; }
    this.each(view, (row, column) => {
      const a = before.at(row, column), b = grid.at(row, column);
      if (a?.violations !== b?.violations || a?.unknown !== b?.unknown || a?.errors !== b?.errors) this.cell(view, row, column);
    });
  }

  draw(view: View): void {
    const context = this.context;
    if (context === null) return;
    const scale = globalThis.devicePixelRatio || 1;
    const width = Math.round(view.width * scale), height = Math.round(view.height * scale);
    const before = this.drawn;
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.drawn = undefined;
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const kept = this.drawn !== undefined && before?.size === view.size && before.tall === view.tall ? before : undefined;
    this.drawn = { ...view };
    if (kept === undefined) {
      this.clear(0, 0, view.width, view.height);
      this.each(view, (row, column) => this.cell(view, row, column));
      return;
    }
    const dx = kept.x - view.x, dy = kept.y - view.y;
    if (dx === 0 && dy === 0) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.canvas, Math.round(dx * scale), Math.round(dy * scale));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    if (dx !== 0) this.strip(view, dx > 0 ? 0 : view.width + dx, 0, Math.abs(dx), view.height);
    if (dy !== 0) this.strip(view, 0, dy > 0 ? 0 : view.height + dy, view.width, Math.abs(dy));
  }

  private strip(view: View, x: number, y: number, width: number, height: number): void {
    this.clear(x, y, width, height);
    this.each({ ...view, x: view.x + x, y: view.y + y, width, height }, (row, column) => this.cell(view, row, column));
  }

  private clear(x: number, y: number, width: number, height: number): void {
    if (this.context === null) return;
    this.context.fillStyle = this.palette.background;
    this.context.fillRect(x, y, width, height);
  }

  private each(view: View, call: (row: number, column: number) => void): void {
    const rows = Math.min(this.grid.rows.length, Math.ceil((view.y + view.height) / view.tall));
    const columns = Math.min(this.grid.columns.length, Math.ceil((view.x + view.width) / view.size));
    for (let row = Math.max(0, Math.floor(view.y / view.tall)); row < rows; row++) {
      for (let column = Math.max(0, Math.floor(view.x / view.size)); column < columns; column++) call(row, column);
    }
  }

  private cell(view: View, row: number, column: number): void {
    const context = this.context, policy = this.grid.rows[row];
    if (context === null || policy === undefined) return;
    const x = column * view.size - view.x, y = row * view.tall - view.y, size = view.size - 1, tall = view.tall - 1;
    const cell = this.grid.at(row, column);
    this.clear(x, y, view.size, view.tall);
    context.fillStyle = this.palette.empty;
    context.fillRect(x, y, size, tall);
    const dark = strength(cell?.violations ?? 0, this.grid.most);
    if (dark > 0) {
      context.globalAlpha = shades[dark] ?? 1;
      context.fillStyle = this.palette.fill[policy.severity] ?? this.palette.hatch;
      context.fillRect(x, y, size, tall);
      context.globalAlpha = 1;
    }
    if (policy.withheld === true || (cell?.unknown ?? 0) > 0 || (cell?.errors ?? 0) > 0) this.hatch(x, y, size, tall, policy.withheld === true);
  }

  private hatch(x: number, y: number, size: number, tall: number, dots: boolean): void {
    const context = this.context;
    if (context === null) return;
    if (dots) { // withheld: a dot, no hatch
      context.fillStyle = this.palette.hatch;
      context.fillRect(x + size / 2 - 1, y + tall / 2 - 1, 2, 2);
      return;
    }
    context.strokeStyle = this.palette.hatch;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = 4; at < size + tall; at += 4) {
      context.moveTo(x + Math.max(0, at - tall), y + Math.min(at, tall));
      context.lineTo(x + Math.min(at, size), y + Math.max(0, at - size));
    }
    context.stroke();
  }
}

function sameNames(a: Grid, b: Grid): boolean {
  return a.rows.length === b.rows.length && a.columns.length === b.columns.length &&
    a.columns.every((name, i) => name === b.columns[i]) &&
    a.rows.every((row, i) => row.name === b.rows[i]?.name && row.severity === b.rows[i]?.severity && row.withheld === b.rows[i]?.withheld);
}
