// The columns of a table: which are shown, how wide they are, and by which it is sorted.
import { useMemo, useState } from "preact/hooks";
import { keep, kept } from "../app/kept";
import { Menu } from "./menu";
import type { Column, Sort } from "./table";

export interface Columns<R> {
  shown: readonly Column<R>[];
  widths: Record<string, number>;
  setWidth: (id: string, width: number, store: boolean) => void;
  visible: Record<string, boolean>;
  toggle: (id: string, shown: boolean) => void;
}

const least = 48;

export function useColumns<R>(id: string, columns: readonly Column<R>[]): Columns<R> {
  const [widths, setWidths] = useState(() => kept<Record<string, number>>(`${id}.widths`, {}));
  const [visible, setVisible] = useState(() => kept<Record<string, boolean>>(`${id}.columns`, {}));
  const shown = useMemo(() => columns.filter((column) => visible[column.id] ?? column.hidden !== true), [columns, visible]);
  return {
    shown, widths, visible,
    setWidth(column, width, store) {
      const next = { ...widths, [column]: Math.max(least, Math.round(width)) };
      setWidths(next);
      if (store) keep(`${id}.widths`, next);
    },
    toggle(column, on) {
      const next = { ...visible, [column]: on };
      setVisible(next);
      keep(`${id}.columns`, next);
    },
  };
}

// gridTemplate gives each column its width; the last one has what is left.
export function gridTemplate(columns: readonly { id: string; width: number }[], widths: Record<string, number>): string {
  return columns.map((column, i) => {
    const width = widths[column.id] ?? column.width;
    return i === columns.length - 1 ? `minmax(${width}px, 1fr)` : `${width}px`;
  }).join(" ");
}

export function Head<R>({ columns, sort, onSort }: { columns: Columns<R>; sort?: Sort; onSort?: (sort: Sort | undefined) => void }) {
  const drag = (column: Column<R>) => (event: PointerEvent) => {
    const grip = event.currentTarget as HTMLElement;
    grip.setPointerCapture(event.pointerId);
    const start = event.clientX, width = columns.widths[column.id] ?? column.width;
    let last = width;
    grip.onpointermove = (move) => { last = width + move.clientX - start; columns.setWidth(column.id, last, false); };
    grip.onpointerup = () => { grip.onpointermove = grip.onpointerup = null; columns.setWidth(column.id, last, true); };
  };
  const next = (column: Column<R>): Sort | undefined => (sort?.by !== column.id ? { by: column.id, down: column.right === true } : sort.down === (column.right === true) ? { by: column.id, down: !sort.down } : undefined);
  return (
    <div class="thead" role="rowgroup">
      <div class="tr" role="row" aria-rowindex={1}>
        {columns.shown.map((column) => (
          <div key={column.id} role="columnheader" class={column.right === true ? "th right" : "th"} title={column.describe}
            aria-sort={sort?.by === column.id ? (sort.down ? "descending" : "ascending") : undefined}>
            {column.sortable === true && onSort !== undefined
              ? <button type="button" class="sort" onClick={() => onSort(next(column))}>{column.title}{sort?.by === column.id && (sort.down ? " ↓" : " ↑")}</button>
              : column.title}
            <span class="grip" onPointerDown={drag(column)} />
          </div>
        ))}
      </div>
    </div>
  );
}

export function ColumnChoice<R>({ columns, state }: { columns: readonly Column<R>[]; state: Columns<R> }) {
  if (columns.length < 2) return null;
  return (
    <Menu label="Columns" title="Choose columns">
      {() => columns.map((column) => {
        const on = state.visible[column.id] ?? column.hidden !== true;
        return (
          <label key={column.id} title={column.describe}>
            <input type="checkbox" checked={on} disabled={on && state.shown.length === 1} onChange={() => state.toggle(column.id, !on)} />{column.title}
          </label>
        );
      })}
    </Menu>
  );
}
