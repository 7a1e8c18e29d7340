// The text of `--slice`, and which element of a tensor stands at which row and column of the picture.

export type Part =
  | { kind: "index"; index: number }
  | { kind: "range"; start: number; step: number; count: number };

export class SliceError extends Error {}

function read_index(text: string): number {
  if (!/^[+-]?\d+$/.test(text)) throw new SliceError(`'${text}' is no number`);
  return Number(text);
}

function read_range(text: string, size: number): Part {
  const parts = text.split(":").map((part) => part.trim());
  if (parts.length > 3) throw new SliceError(`'${text}' has too many colons`);
  const step = parts.length === 3 && parts[2]! !== "" ? read_index(parts[2]!) : 1;
  if (step === 0) throw new SliceError("the step is 0");
  const low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const bound = (part: string, absent: number): number => {
    if (part === "") return absent;
    const index = read_index(part);
    return Math.min(high, Math.max(low, index < 0 ? index + size : index));
  };
  const start = bound(parts[0]!, step > 0 ? low : high);
  const stop = bound(parts[1]!, step > 0 ? high : low);
  const span = step > 0 ? stop - start : start - stop;
  return { kind: "range", start, step, count: span <= 0 ? 0 : Math.floor((span - 1) / Math.abs(step)) + 1 };
}

function whole_axis(size: number): Part {
  return { kind: "range", start: 0, step: 1, count: size };
}

// NumPy's basic indexing: one part for each axis of `shape`.
export function parse_slice(text: string, shape: readonly number[]): Part[] {
  const words = text.trim() === "" ? [] : text.split(",").map((word) => word.trim());
  const dots = words.filter((word) => word === "...").length;
  if (dots > 1) throw new SliceError("'...' may stand once only");
  if (words.length - dots > shape.length) {
    throw new SliceError(`${words.length - dots} parts for a tensor of ${shape.length} axes`);
  }
  const parts: Part[] = [];
  const keep = (end: number): void => {
    while (parts.length < end) parts.push(whole_axis(shape[parts.length]!));
  };
  words.forEach((word, place) => {
    if (word === "...") {
      keep(shape.length - (words.length - place - 1));
      return;
    }
    const axis = parts.length, size = shape[axis]!;
    if (word.includes(":")) {
      parts.push(read_range(word, size));
      return;
    }
    const given = read_index(word);
    const index = given < 0 ? given + size : given;
    if (index < 0 || index >= size) throw new SliceError(`${given} is outside axis ${axis} of size ${size}`);
    parts.push({ kind: "index", index });
  });
  keep(shape.length);
  return parts;
}

export function format_part(part: Part, size: number): string {
  if (part.kind === "index") return String(part.index);
  const { start, step, count } = part;
  if (step === 1) {
    if (start === 0 && count === size) return ":";
    return `${start === 0 ? "" : start}:${start + count === size && count > 0 ? "" : start + count}`;
  }
  if (step > 0) {
    return `${start === 0 ? "" : start}:${start + count * step >= size ? "" : start + count * step}:${step}`;
  }
  const stop = start + count * step;
  return `${start === size - 1 ? "" : start}:${stop < 0 ? "" : stop}:${step}`;
}

export function format_slice(parts: readonly Part[], shape: readonly number[]): string {
  return parts.map((part, axis) => format_part(part, shape[axis]!)).join(",");
}

// The last two axes, 0 in the others.
export function default_slice(shape: readonly number[]): Part[] {
  return shape.map((size, axis) => axis + 2 < shape.length ? { kind: "index", index: 0 } : whole_axis(size));
}

export function open_axes(parts: readonly Part[]): number[] {
  return parts.flatMap((part, axis) => part.kind === "range" ? [axis] : []);
}

// What is drawn: a slice with at most two open axes, or all axes but the last folded into rows.
export interface Picture {
  shape: readonly number[];
  parts: readonly Part[];
  isTransposed: boolean;
  isFolded: boolean;
}

// The axes of rows and of columns; -1: none. A single open axis lies in a row.
export function picture_axes(picture: Picture): [number, number] {
  const rank = picture.shape.length;
  if (picture.isFolded) return rank === 0 ? [-1, -1] : rank === 1 ? [-1, 0] : [-2, rank - 1];
  const open = open_axes(picture.parts);
  const axes: [number, number] = open.length === 0
    ? [-1, -1]
    : open.length === 1
    ? [-1, open[0]!]
    : [open[0]!, open[1]!];
  return picture.isTransposed ? [axes[1], axes[0]] : axes;
}

export function picture_size(picture: Picture): [number, number] {
  if (picture.isFolded) {
    const last = picture.shape.at(-1) ?? 1;
    const size: [number, number] = [picture.shape.slice(0, -1).reduce((all, one) => all * one, 1), last];
    return picture.isTransposed ? [size[1], size[0]] : size;
  }
  const size = (axis: number): number => {
    if (axis < 0) return 1;
    const part = picture.parts[axis]!;
    return part.kind === "range" ? part.count : 1;
  };
  const [rows, cols] = picture_axes(picture);
  return [size(rows), size(cols)];
}

// The full index of the element at a row and column of the picture.
export function index_at(picture: Picture, row: number, col: number): number[] {
  if (picture.isFolded) {
    let [outer, inner] = picture.isTransposed ? [col, row] : [row, col];
    const index = new Array<number>(picture.shape.length);
    for (let axis = picture.shape.length - 1; axis >= 0; --axis) {
      if (axis === picture.shape.length - 1) {
        index[axis] = inner;
        inner = 0;
        continue;
      }
      index[axis] = outer % picture.shape[axis]!;
      outer = Math.floor(outer / picture.shape[axis]!);
    }
    return index;
  }
  const [rows, cols] = picture_axes(picture);
  return picture.parts.map((part, axis) => {
    if (part.kind === "index") return part.index;
    const place = axis === rows ? row : axis === cols ? col : 0;
    return part.start + part.step * place;
  });
}

// Where an element stands in the picture, or null where the slice leaves it out.
export function place_of(picture: Picture, index: readonly number[]): [number, number] | null {
  if (index.length !== picture.shape.length) return null;
  if (index.some((at, axis) => at < 0 || at >= picture.shape[axis]!)) return null;
  if (picture.isFolded) {
    let row = 0;
    for (let axis = 0; axis + 1 < index.length; ++axis) row = row * picture.shape[axis]! + index[axis]!;
    const place: [number, number] = [row, index.at(-1) ?? 0];
    return picture.isTransposed ? [place[1], place[0]] : place;
  }
  const [rows, cols] = picture_axes(picture);
  const place: [number, number] = [0, 0];
  for (let axis = 0; axis < index.length; ++axis) {
    const part = picture.parts[axis]!;
    if (part.kind === "index") {
      if (part.index !== index[axis]!) return null;
      continue;
    }
    const offset = (index[axis]! - part.start) / part.step;
    if (!Number.isInteger(offset) || offset < 0 || offset >= part.count) return null;
    if (axis === rows) place[0] = offset;
    if (axis === cols) place[1] = offset;
  }
  return place;
}

// The same picture moved so that the element is in it: fixed axes take its index, ranges that leave it out become whole.
export function show_index(parts: readonly Part[], shape: readonly number[], index: readonly number[]): Part[] {
  return parts.map((part, axis) => {
    if (part.kind === "index") return { kind: "index", index: index[axis]! };
    const offset = (index[axis]! - part.start) / part.step;
    return Number.isInteger(offset) && offset >= 0 && offset < part.count ? part : whole_axis(shape[axis]!);
  });
}

export type Role = "rows" | "cols" | "index";

export function role_of(picture: Picture, axis: number): Role {
  const [rows, cols] = picture_axes(picture);
  return axis === rows ? "rows" : axis === cols ? "cols" : "index";
}

// Gives an axis another role. Whoever had it gets the old one of this axis, so that the picture keeps its two axes.
export function set_role(picture: Picture, axis: number, role: Role): { parts: Part[]; isTransposed: boolean } {
  const shape = picture.shape;
  let [rows, cols] = picture_axes({ ...picture, isFolded: false });
  const old = role_of({ ...picture, isFolded: false }, axis);
  if (old === role) return { parts: [...picture.parts], isTransposed: picture.isTransposed };
  const other = role === "rows" ? rows : role === "cols" ? cols : -1;
  if (old === "rows") rows = other;
  if (old === "cols") cols = other;
  if (role === "rows") rows = axis;
  if (role === "cols") cols = axis;
  const parts = shape.map((size, at): Part => {
    const part = picture.parts[at]!;
    if (at === rows || at === cols) return part.kind === "range" ? part : whole_axis(size);
    if (part.kind === "index") return part;
    return { kind: "index", index: Math.max(0, Math.min(size - 1, part.start)) };
  });
  // A single open axis is a row of columns, unless transposed.
  const isTransposed = rows >= 0 && cols >= 0 ? rows > cols : rows >= 0;
  return { parts, isTransposed };
}
