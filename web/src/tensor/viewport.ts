// Which part of the picture is seen. Rows and columns are counted in elements and may be fractions.

export interface Viewport {
  row: number;
  col: number;
  // Elements that fit the pane.
  rows: number;
  cols: number;
}

export interface Extent {
  rows: number;
  cols: number;
}

export interface PaneSize {
  height: number;
  width: number;
}

// The largest cells, in CSS pixels: room for a number with nine digits.
export const kLargestCell = { height: 30, width: 92 };

// The picture in the whole pane. Cells are neither much longer than wide nor larger than the largest.
const kLongestCell = 6;

export function fit_all(extent: Extent, pane: PaneSize): Viewport {
  const rows = Math.max(1, extent.rows), cols = Math.max(1, extent.cols);
  let height = Math.min(pane.height / rows, kLargestCell.height);
  let width = Math.min(pane.width / cols, kLargestCell.width);
  // A lone row or column may be as long and narrow as it is.
  if ((height >= 1 || width >= 1) && rows > 1 && cols > 1) {
    height = Math.min(height, Math.max(1, width * kLongestCell));
    width = Math.min(width, Math.max(1, height * kLongestCell));
  }
  return centred({ row: 0, col: 0, rows: pane.height / height, cols: pane.width / width }, extent);
}

// A picture smaller than the pane stands in its middle; otherwise no edge of the picture leaves the pane's edge.
function centred(view: Viewport, extent: Extent): Viewport {
  const along = (start: number, seen: number, size: number): number =>
    seen >= size ? (size - seen) / 2 : Math.min(size - seen, Math.max(0, start));
  return {
    ...view,
    row: along(view.row, view.rows, Math.max(1, extent.rows)),
    col: along(view.col, view.cols, Math.max(1, extent.cols)),
  };
}

export function clamp_view(view: Viewport, extent: Extent, pane: PaneSize): Viewport {
  const whole = fit_all(extent, pane);
  const rows = Math.min(whole.rows, Math.max(view.rows, pane.height / kLargestCell.height));
  const cols = Math.min(whole.cols, Math.max(view.cols, pane.width / kLargestCell.width));
  const row = view.row + (view.rows - rows) / 2, col = view.col + (view.cols - cols) / 2;
  return centred({ row, col, rows, cols }, extent);
}

// Zooms by `factor` (> 1: closer) and keeps the element under (y, x), fractions of the pane, where it is.
export function zoom_at(
  view: Viewport,
  extent: Extent,
  pane: PaneSize,
  factor: number,
  y: number,
  x: number,
): Viewport {
  const whole = fit_all(extent, pane);
  const rows = Math.min(whole.rows, Math.max(view.rows / factor, pane.height / kLargestCell.height));
  const cols = Math.min(whole.cols, Math.max(view.cols / factor, pane.width / kLargestCell.width));
  return centred(
    { row: view.row + y * (view.rows - rows), col: view.col + x * (view.cols - cols), rows, cols },
    extent,
  );
}

export function pan_by(view: Viewport, extent: Extent, rows: number, cols: number): Viewport {
  return centred({ ...view, row: view.row + rows, col: view.col + cols }, extent);
}

export function is_whole(view: Viewport, extent: Extent, pane: PaneSize): boolean {
  const whole = fit_all(extent, pane);
  return view.rows >= whole.rows * 0.999 && view.cols >= whole.cols * 0.999;
}

// Brings an element into view; zooms in as far as `cell` (CSS pixels of a row's height) if that is given.
export function reveal(view: Viewport, extent: Extent, row: number, col: number): Viewport {
  const isSeen = row >= view.row && row + 1 <= view.row + view.rows && col >= view.col &&
    col + 1 <= view.col + view.cols;
  if (isSeen) return view;
  return centred({ ...view, row: row + 0.5 - view.rows / 2, col: col + 0.5 - view.cols / 2 }, extent);
}

// The elements that are seen at least in part.
export function seen_range(start: number, seen: number, size: number): [number, number] {
  return [Math.max(0, Math.min(size, Math.floor(start))), Math.max(0, Math.min(size, Math.ceil(start + seen)))];
}

// What to ask for when the overview is too coarse: the viewport with a margin, rounded outward to a grid that grows
// with it, so that small movements ask for the same tile.
export function detail_range(start: number, seen: number, size: number): [number, number] {
  const grid = 2 ** Math.max(0, Math.floor(Math.log2(Math.max(1, seen) / 4)));
  const first = Math.floor(Math.max(0, start) / grid) * grid;
  const last = Math.ceil(Math.min(size, start + seen) / grid) * grid;
  return [Math.min(first, size), Math.min(size, Math.max(last, first + 1))];
}

// Whether the overview, `cells` for `size` elements, is too coarse for `seen` elements on `pixels` device pixels.
export function needs_detail(size: number, cells: number, seen: number, pixels: number): boolean {
  if (cells >= size) return false;
  const seenCells = Math.min(seen, size) * cells / size;
  return seenCells < Math.min(pixels, Math.min(seen, size)) * 0.8;
}

export function format_view(view: Viewport): string {
  const short = (value: number): string => String(Number(value.toFixed(value < 100 ? 2 : 1)));
  return `${short(view.row)}:${short(view.row + view.rows)},${short(view.col)}:${short(view.col + view.cols)}`;
}

export function parse_view(text: string): Viewport | null {
  const match = /^(-?[\d.]+):(-?[\d.]+),(-?[\d.]+):(-?[\d.]+)$/.exec(text);
  if (!match) return null;
  const [row, lastRow, col, lastCol] = match.slice(1).map(Number) as [number, number, number, number];
  const view = { row, col, rows: lastRow - row, cols: lastCol - col };
  return view.rows > 0 && view.cols > 0 ? view : null;
}
