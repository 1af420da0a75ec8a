// Which rows of a long list are on the screen.
export interface Window {
  first: number; // the first row that is drawn
  end: number; // after the last one
  top: number; // where the first one is, in pixels
  height: number; // of all rows
}

export function windowOf(rows: number, rowHeight: number, scrollTop: number, viewHeight: number, overscan = 8): Window {
  const height = rows * rowHeight;
  const at = Math.min(Math.max(0, scrollTop), Math.max(0, height - viewHeight));
  const first = Math.max(0, Math.floor(at / rowHeight) - overscan);
  const end = Math.min(rows, Math.ceil((at + viewHeight) / rowHeight) + overscan);
  return { first, end: Math.max(first, end), top: first * rowHeight, height };
}

// reveal is where to scroll so that a row can be seen below the header; the same place when it is.
export function reveal(row: number, rowHeight: number, scrollTop: number, viewHeight: number): number {
  const top = row * rowHeight;
  if (top < scrollTop) return top;
  if (top + rowHeight > scrollTop + viewHeight) return Math.max(0, top + rowHeight - viewHeight);
  return scrollTop;
}
