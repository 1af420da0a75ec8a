import "./pieces.css";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Painter, paletteOf } from "./matrixdraw";
import { arrange, cellSize, columnLabels, move, tell, type MatrixData } from "./matrixmodel";

export type { MatrixCell, MatrixData, MatrixRow } from "./matrixmodel";
export { keyOf } from "./matrixmodel";

export interface MatrixProps {
  data: MatrixData;
  onPick: (policy: string, member: string) => void;
  table?: string; // the address of the same as a table
  theme?: string; // changes when the colours do
}

const headerWidth = 180, headerMost = 108, narrow = 110, line = 14; // of which a row is at least, to be read

// Matrix shows where what is wrong: policies by members, as a heat map.
export function Matrix({ data, onPick, table, theme = "" }: MatrixProps) {
  const grid = useMemo(() => arrange(data), [data]);
  const box = useRef<HTMLDivElement>(null), canvas = useRef<HTMLCanvasElement>(null), painter = useRef<Painter | undefined>(undefined);
  const [width, setWidth] = useState(800);
  const [scroll, setScroll] = useState({ x: 0, y: 0 });
  const [active, setActive] = useState<{ row: number; column: number } | undefined>(undefined);
  const left = width < 600 ? narrow : headerWidth;
  const rows = grid.rows.length, columns = grid.columns.length;
  const size = cellSize(columns, width - left - 16), tall = Math.max(size, line);
  const labels = useMemo(() => columnLabels(grid.columns), [grid.columns]);
  const headerHeight = useMemo(() => Math.min(headerMost, 12 + 7 * Math.max(...labels.map((label) => label.length))), [labels]);
  const height = Math.min(rows * tall + headerHeight + 18, 560);
  const view = { size, tall, x: scroll.x, y: scroll.y, width: Math.max(1, Math.min(width - left, columns * size)), height: Math.max(1, Math.min(height - headerHeight, rows * tall)) };
  useEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(([entry]) => { if (entry !== undefined) setWidth(entry.contentRect.width); });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const palette = useMemo(() => box.current === null ? undefined : paletteOf(box.current), [theme, box.current]);
  useLayoutEffect(() => {
    if (canvas.current === null || box.current === null) return;
    const colours = palette ?? paletteOf(box.current);
    painter.current ??= new Painter(canvas.current, grid, colours);
    painter.current.update(grid, colours);
    painter.current.draw(view);
  }, [grid, palette, size, tall, view.x, view.y, view.width, view.height]);
  const cellAt = (event: MouseEvent) => {
    const at = canvas.current?.getBoundingClientRect();
    if (at === undefined) return undefined;
    const column = Math.floor((event.clientX - at.left + scroll.x) / size), row = Math.floor((event.clientY - at.top + scroll.y) / tall);
    return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : undefined;
  };
  const pick = (at: { row: number; column: number } | undefined) => {
    const policy = at === undefined ? undefined : grid.rows[at.row], member = at === undefined ? undefined : grid.columns[at.column];
    if (policy !== undefined && member !== undefined) onPick(policy.name, member);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter") { pick(active); event.preventDefault(); return; }
    const to = move(event.key, active?.row ?? 0, active?.column ?? 0, rows, columns);
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const [row, column] = active === undefined ? [0, 0] : to;
    setActive({ row, column });
    const element = box.current;
    if (element === null) return;
    element.scrollLeft = between(element.scrollLeft, column * size, size, view.width);
    element.scrollTop = between(element.scrollTop, row * tall, tall, view.height);
  };
  const row = active === undefined ? undefined : grid.rows[active.row], member = active === undefined ? undefined : grid.columns[active.column];
  const told = row === undefined || member === undefined || active === undefined ? "" : tell(row, member, grid.at(active.row, active.column));
  if (rows === 0 || columns === 0) return null;
  const firstRow = Math.floor(scroll.y / tall), lastRow = Math.min(rows, firstRow + Math.ceil(view.height / tall) + 1);
  const step = Math.max(1, Math.ceil(13 / size)), firstColumn = Math.floor(scroll.x / size), lastColumn = Math.min(columns, firstColumn + Math.ceil(view.width / size) + 1);
  return (
    <div class="matrix">
      <div class="matrix-box" ref={box} style={{ height: `${height}px` }} role="grid" tabIndex={0} aria-label="Violations by policy and member" aria-rowcount={rows} aria-colcount={columns}
        aria-activedescendant={active === undefined ? undefined : "matrix-active"} onKeyDown={keys} onFocus={() => { if (active === undefined) setActive({ row: 0, column: 0 }); }}
        onScroll={(event) => setScroll({ x: event.currentTarget.scrollLeft, y: event.currentTarget.scrollTop })}>
        <div class="matrix-space" style={{ width: `${left + columns * size}px`, height: `${headerHeight + rows * tall}px` }} role="presentation">
          <div class="matrix-frame" style={{ width: `${left + view.width}px`, height: `${headerHeight + view.height}px` }} role="presentation">
            <div class="matrix-columns" style={{ left: `${left}px`, height: `${headerHeight}px`, width: `${view.width}px` }} aria-hidden="true">
              {range(firstColumn, lastColumn).filter((i) => i % step === 0 || i === active?.column).map((i) => (
                <span key={i} class={i === active?.column ? "on" : ""} style={{ left: `${i * size - scroll.x + size / 2}px` }}>{labels[i]}</span>
              ))}
            </div>
            <div class="matrix-rows" style={{ top: `${headerHeight}px`, width: `${left}px`, height: `${view.height}px` }} aria-hidden="true">
              {range(firstRow, lastRow).map((i) => (
                <span key={i} class={i === active?.row ? "on" : ""} title={grid.rows[i]?.name} style={{ top: `${i * tall - scroll.y}px`, height: `${tall}px`, lineHeight: `${tall}px` }}>{grid.rows[i]?.label ?? grid.rows[i]?.name}</span>
              ))}
            </div>
            <canvas ref={canvas} class="matrix-canvas" style={{ left: `${left}px`, top: `${headerHeight}px`, width: `${view.width}px`, height: `${view.height}px` }} aria-hidden="true"
              onPointerMove={(event) => setActive(cellAt(event))} onPointerLeave={() => { if (document.activeElement !== box.current) setActive(undefined); }} onClick={(event) => pick(cellAt(event))} />
            {active !== undefined && <>
              <i class="matrix-cross" style={{ left: `${left}px`, top: `${headerHeight + active.row * tall - scroll.y}px`, width: `${view.width}px`, height: `${tall - 1}px` }} />
              <i class="matrix-cross" style={{ left: `${left + active.column * size - scroll.x}px`, top: `${headerHeight}px`, width: `${size - 1}px`, height: `${view.height}px` }} />
            </>}
            <div role="row" class="sr" aria-rowindex={(active?.row ?? 0) + 1}><div role="gridcell" id="matrix-active" aria-colindex={(active?.column ?? 0) + 1}>{told}</div></div>
          </div>
        </div>
      </div>
      <div class="matrix-foot">
        <span class="matrix-told">{told === "" ? "Point at a cell, or use the arrow keys; Enter opens its list." : told}</span>
        <span class="matrix-legend">{[1, 2, 3, 4, 5].map((n) => <i key={n} class={`shade${n}`} />)} more violations <i class="hatched" /> not known</span>
        {table !== undefined && <a href={table}>View as table</a>}
      </div>
    </div>
  );
}

function range(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);
}

function between(scrolled: number, at: number, size: number, length: number): number {
  if (at < scrolled) return at;
  return at + size > scrolled + length ? at + size - length : scrolled;
}
