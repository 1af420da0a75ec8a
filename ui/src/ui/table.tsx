// A table of up to thousands of rows: only those on the screen are drawn. Rows never move by themselves.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { bind } from "../app/keyboard";
import { address } from "../app/location";
import { ColumnChoice, Head, gridTemplate, useColumns } from "./columns";
import { count } from "./format";
import { reveal, windowOf } from "./window";

export interface Column<R> {
  id: string;
  title: string;
  width: number; // at first, in pixels
  render: (row: R) => ComponentChildren;
  text?: (row: R) => string; // for the tooltip
  right?: boolean;
  named?: boolean; // on a narrow screen, as those on the right are
  hidden?: boolean; // until it is chosen
  describe?: string;
  sortable?: boolean;
  line?: 1 | 2 | 0; // of the row on a narrow screen; the first three columns are line 1, the others line 2
}

export interface Sort {
  by: string;
  down: boolean;
}

export interface TableProps<R> {
  id: string; // under which widths and columns are kept
  label: string;
  columns: readonly Column<R>[];
  rows: readonly R[];
  rowKey: (row: R) => string;
  open?: string; // the key of the row whose drawer is open
  onOpen?: (row: R) => void;
  chosen?: ReadonlySet<string>;
  onChoose?: (key: string) => void;
  rowClass?: (row: R) => string;
  sort?: Sort;
  onSort?: (sort: Sort | undefined) => void;
  fresh?: number; // rows that wait
  gone?: number; // rows that are struck out
  onFresh?: () => void;
  onEnd?: () => void; // the last rows are near
  onWindow?: (first: number, end: number) => void; // the rows that are drawn
  bar?: ComponentChildren; // left of the choice of columns
  empty?: ComponentChildren;
  total?: number; // of all rows that there are, where not all are loaded
}

const rowHeight = 28;
const rowHeightNarrow = 48;
const narrow = matchMedia("(max-width: 700px)");

export function Table<R>(props: TableProps<R>) {
  const { rows, rowKey, onOpen, onChoose, onEnd } = props;
  const columns = useColumns(props.id, props.columns);
  const over = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600, narrow: narrow.matches });
  const [activeKey, setActive] = useState<string | undefined>(props.open);
  const height = view.narrow ? rowHeightNarrow : rowHeight;
  const head = view.narrow ? 0 : rowHeight;
  const at = windowOf(rows.length, height, view.top, view.height - head);
  const place = useRef(-1); // where the active row was last: it seldom moves
  if (activeKey === undefined || activeKey === "") place.current = -1;
  else {
    const there = rows[place.current];
    if (there === undefined || rowKey(there) !== activeKey) place.current = rows.findIndex((row) => rowKey(row) === activeKey);
  }
  const active = place.current;

  useEffect(() => {
    const box = over.current;
    if (box === null) return;
    const measure = () => setView({ top: box.scrollTop, height: box.clientHeight, narrow: narrow.matches });
    const scrolled = () => { // the height is not read: that would lay out the page once more
      const top = box.scrollTop;
      setView((before) => (top === before.top ? before : { ...before, top }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    box.addEventListener("scroll", scrolled, { passive: true });
    return () => { observer.disconnect(); box.removeEventListener("scroll", scrolled); };
  }, []);
  useEffect(() => { props.onWindow?.(at.first, at.end); }, [at.first, at.end, props.onWindow]);
  useEffect(() => { if (at.end >= rows.length - 20 && rows.length > 0) onEnd?.(); }, [at.end, rows.length, onEnd]);
  useEffect(() => { if (props.open !== undefined && props.open !== "") setActive(props.open); }, [props.open]);

  const move = (to: number) => {
    const index = Math.max(0, Math.min(rows.length - 1, to));
    const row = rows[index];
    const box = over.current;
    if (row === undefined || box === null) return;
    setActive(rowKey(row));
    newest.current = row;
    const top = reveal(index, height, box.scrollTop, box.clientHeight - head);
    if (top !== box.scrollTop) box.scrollTop = top;
    if (props.open !== undefined && props.open !== "") onOpen?.(row);
  };
  const tick = useTick();
  const clicked = useRef((_: R) => {});
  clicked.current = (row) => { setActive(rowKey(row)); onOpen?.(row); };
  const onClick = useMemo(() => (row: R) => clicked.current(row), []);
  const act = useRef({ move, open: () => {}, choose: () => {} });
  const current = rows[active];
  const newest = useRef<R | undefined>(current); // keys come faster than frames: j and Enter are of the same row
  newest.current = current;
  act.current = {
    move: (step) => { over.current?.focus({ preventScroll: true }); move(active < 0 ? 0 : active + step); },
    open: () => {
      const row = newest.current;
      if (row === undefined) return;
      if (props.open === rowKey(row)) document.querySelector<HTMLElement>(".drawer .inside :is(a[href], button, [tabindex='0'])")?.focus(); // it is open: into it
      else onOpen?.(row);
    },
    choose: () => { if (newest.current !== undefined) onChoose?.(rowKey(newest.current)); },
  };
  useLayoutEffect(() => {
    const step = (by: number) => () => act.current.move(by);
    const unbind = [
      bind("j", step(1)), bind("k", step(-1)), bind("Enter", () => act.current.open()), bind("x", () => act.current.choose()),
    ];
    return () => unbind.forEach((call) => call());
  }, []);
  const keys = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((view.height - head) / height) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    const by = steps[event.key];
    if (by === undefined || event.target !== event.currentTarget) return;
    act.current.move(by);
    event.preventDefault();
  };
  const idOf = (index: number) => `${props.id.replaceAll(/[^\w-]/g, "-")}-row-${index}`;
  const shown = rows.slice(at.first, at.end);
  return (
    <div class="grid" style={{ "--cols": gridTemplate(columns.shown, columns.widths) }}>
      <div class="gridbar">{props.bar}<span class="grow" />
        {props.total !== undefined && props.total > rows.length && <span class="dim">{count(rows.length)} of {count(props.total)} loaded</span>}
        <ColumnChoice columns={props.columns} state={columns} />
      </div>
      {(props.fresh ?? 0) + (props.gone ?? 0) > 0 && <button type="button" class="newrows primary" onClick={props.onFresh}>{[[props.fresh ?? 0, "new"], [props.gone ?? 0, "gone"]].filter(([n]) => n !== 0).map(([n, what]) => `${count(Number(n))} ${what}`).join(", ")}</button>}
      <div class="over" ref={over} tabIndex={0} role="grid" aria-label={props.label} aria-rowcount={rows.length + 1} aria-colcount={columns.shown.length}
        aria-activedescendant={active >= at.first && active < at.end ? idOf(active) : undefined} onKeyDown={keys}>
        <Head columns={columns} {...(props.sort === undefined ? {} : { sort: props.sort })} {...(props.onSort === undefined ? {} : { onSort: props.onSort })} />
        <div class="tbody" role="rowgroup" style={{ height: `${at.height}px` }}>
          {shown.map((row, i) => {
            const index = at.first + i;
            const key = rowKey(row);
            return (
              <Row key={key} id={idOf(index)} row={row} index={index} top={index * height} columns={columns.shown} narrow={view.narrow} tick={tick}
                name={`tr${index === active ? " active" : ""} ${props.rowClass?.(row) ?? ""}`}
                selected={props.open === key || props.chosen?.has(key) === true}
                onClick={onClick} />
            );
          })}
        </div>
        {rows.length === 0 && props.empty !== undefined && <div role="row"><div role="gridcell">{props.empty}</div></div>}
      </div>
    </div>
  );
}

const ages = 30_000;

function useTick(): number {
  const [n, turn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) turn((before) => before + 1); }, ages);
    return () => clearInterval(timer);
  }, []);
  return n;
}

interface RowProps<R> {
  id: string;
  row: R;
  index: number;
  top: number;
  columns: readonly Column<R>[];
  narrow: boolean;
  tick: number; // cells that say how long ago something was are drawn again with it
  name: string;
  selected: boolean;
  onClick: (row: R) => void;
}

function Row<R>({ id, row, index, top, columns, narrow: isNarrow, name, selected, onClick }: RowProps<R>) {
  // A component that reads a signal is drawn again only when its properties or its signals are others: links have the
  // theme, and cells may read more. So a row that is the same costs nothing, however often others change.
  void address.value;
  const click = (event: MouseEvent) => {
    if ((event.target as Element).closest("a, button, input") !== null || getSelection()?.isCollapsed === false) return;
    onClick(row);
  };
  const style = { transform: `translateY(${top}px)` };
  if (isNarrow) {
    const lines = [1, 2].map((line) => columns.filter((column, i) => (column.line ?? (i < 3 ? 1 : 2)) === line));
    return (
      <div class={name} id={id} role="row" aria-rowindex={index + 2} aria-selected={selected} style={style} onClick={click}>
        <div class="lines" role="gridcell">{lines.map((some, i) => <div key={i} class={i === 1 ? "second" : "first"}>{some.map((column) => <span key={column.id}>{(column.right === true || column.named === true) && <span class="dim">{column.title.toLowerCase()} </span>}{column.render(row)}</span>)}</div>)}</div>
      </div>
    );
  }
  return (
    <div class={name} id={id} role="row" aria-rowindex={index + 2} aria-selected={selected} style={style} onClick={click}>
      {columns.map((column) => {
        const text = column.text?.(row);
        return <div key={column.id} role="gridcell" class={column.right === true ? "td right" : "td"} title={text}>{column.render(row)}</div>;
      })}
    </div>
  );
}
