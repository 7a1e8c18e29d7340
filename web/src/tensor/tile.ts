// The answer of /api/tile: a picture of (part of) a slice, one value or one block of values in each cell.

import { type Num, to_number } from "../types.ts";

export interface TileScale {
  min: number;
  max: number;
  abs: number;
  p999: number;
  nan: number;
  pos_inf: number;
  neg_inf: number;
  zero: number;
}

export interface Tile {
  rows: [number, number];
  cols: [number, number];
  ofRows: number;
  ofCols: number;
  height: number;
  width: number;
  exact: boolean;
  axes: [number, number];
  shape: number[];
  slice: string;
  dtype: string;
  scale: TileScale | null;
  // Where the tile is exact these are one array.
  min: Float32Array;
  max: Float32Array;
  mean: Float32Array;
  flags: Uint8Array;
}

export type CellMode = "peak" | "min" | "max" | "mean";

export const kNan = 1;
export const kPosInf = 2;
export const kNegInf = 4;
export const kDiffers = 8;

function read_scale(value: unknown): TileScale | null {
  if (typeof value !== "object" || value === null) return null;
  const record = value as Record<string, unknown>;
  const count = (name: string): number => (typeof record[name] === "number" ? record[name] as number : 0);
  return {
    min: to_number(record.min as Num),
    max: to_number(record.max as Num),
    abs: to_number(record.abs as Num),
    p999: to_number(record.p999 as Num),
    nan: count("nan"),
    pos_inf: count("pos_inf"),
    neg_inf: count("neg_inf"),
    zero: count("zero"),
  };
}

export function decode_tile(buffer: ArrayBuffer): Tile {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0, false) !== 0x54535431) throw new Error("this is not a tile");
  const length = view.getUint32(4, true);
  if (8 + length > buffer.byteLength) throw new Error("the tile's header is cut off");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const height: number = header.height, width: number = header.width;
  const cells = height * width;
  const planes = new Map<string, Float32Array>();
  let flags = new Uint8Array(cells);
  let offset = 8 + length;
  for (const name of header.planes as string[]) {
    const size = name === "flags" ? cells : cells * 4;
    if (offset + size > buffer.byteLength) throw new Error(`the tile's plane ${name} is cut off`);
    if (name === "flags") {
      flags = new Uint8Array(buffer, offset, cells);
    } else {
      const isAligned = offset % 4 === 0;
      planes.set(
        name,
        isAligned ? new Float32Array(buffer, offset, cells) : new Float32Array(buffer.slice(offset, offset + size)),
      );
    }
    offset += size;
  }
  const one = planes.get("value");
  const plane = (name: string): Float32Array => {
    const found = one ?? planes.get(name);
    if (!found) throw new Error(`the tile has no plane ${name}`);
    return found;
  };
  return {
    rows: header.rows,
    cols: header.cols,
    ofRows: header.of_rows,
    ofCols: header.of_cols,
    height,
    width,
    exact: header.exact === true,
    axes: header.axes,
    shape: header.shape,
    slice: header.slice ?? "",
    dtype: header.dtype ?? "",
    scale: read_scale(header.scale),
    min: plane("min"),
    max: plane("max"),
    mean: plane("mean"),
    flags,
  };
}

// The elements [first, last) of an axis that cell `cell` of `cells` stands for.
export function cell_range(range: [number, number], cells: number, cell: number): [number, number] {
  const size = range[1] - range[0];
  return [range[0] + Math.floor(cell * size / cells), range[0] + Math.floor((cell + 1) * size / cells)];
}

// The cell that holds an element, or -1 where it is outside.
export function cell_of(range: [number, number], cells: number, element: number): number {
  if (element < range[0] || element >= range[1] || cells <= 0) return -1;
  const size = range[1] - range[0];
  let cell = Math.min(cells - 1, Math.floor((element - range[0]) * cells / size));
  while (cell > 0 && cell_range(range, cells, cell)[0] > element) --cell;
  while (cell + 1 < cells && cell_range(range, cells, cell)[1] <= element) ++cell;
  return cell;
}

// What a cell of several elements shows: by default the value farthest from zero, so that one outlier is seen.
export function cell_value(tile: Tile, at: number, mode: CellMode): number {
  if (tile.exact) return tile.min[at]!;
  if (mode === "mean") return tile.mean[at]!;
  const low = tile.min[at]!, high = tile.max[at]!;
  if (mode === "min") return low;
  if (mode === "max") return high;
  return -low > high ? low : high;
}

export interface CellFacts {
  rows: [number, number];
  cols: [number, number];
  min: number;
  max: number;
  mean: number;
  value: number;
  flags: number;
  exact: boolean;
}

export function facts_at(tile: Tile, row: number, col: number, mode: CellMode): CellFacts | null {
  const y = cell_of(tile.rows, tile.height, row), x = cell_of(tile.cols, tile.width, col);
  if (y < 0 || x < 0) return null;
  const at = y * tile.width + x;
  return {
    rows: cell_range(tile.rows, tile.height, y),
    cols: cell_range(tile.cols, tile.width, x),
    min: tile.min[at]!,
    max: tile.max[at]!,
    mean: tile.mean[at]!,
    value: cell_value(tile, at, mode),
    flags: tile.flags[at]!,
    exact: tile.exact,
  };
}

// Beyond a tolerance, judged from tiles of a and of b - a with the same cells: 0 no, 1 perhaps, 2 surely.
// NumPy's rule: |b - a| > atol + rtol * |a|.
export function beyond_tolerance(a: Tile, diff: Tile, at: number, rtol: number, atol: number): 0 | 1 | 2 {
  const flags = diff.flags[at]!;
  if ((flags & kDiffers) === 0) return 0;
  const isOdd = (flags & (kNan | kPosInf | kNegInf)) !== 0;
  if (diff.exact && isOdd) return 2;
  const largest = Math.max(Math.abs(diff.min[at]!), Math.abs(diff.max[at]!));
  const low = a.min[at]!, high = a.max[at]!;
  const most = Math.max(Math.abs(low), Math.abs(high));
  if (largest > atol + rtol * most) return 2;
  if (diff.exact) return 0;
  const least = low <= 0 && high >= 0 ? 0 : Math.min(Math.abs(low), Math.abs(high));
  return isOdd || largest > atol + rtol * least ? 1 : 0;
}

export function same_cells(a: Tile, b: Tile): boolean {
  return a.rows[0] === b.rows[0] && a.rows[1] === b.rows[1] && a.cols[0] === b.cols[0] && a.cols[1] === b.cols[1] &&
    a.height === b.height && a.width === b.width;
}
