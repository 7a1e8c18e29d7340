// How a pane is painted: its axes, tiles, digits, marks, cross and colour bar.

import { css_at, ink_on, kNanColor, kNegInfColor, kPosInfColor, type Rgb, to_css } from "../lib/colors.ts";
import { text_scale } from "../lib/paint.ts";
import { fit_number } from "./format.ts";
import { type Of, type PaneState, type Texts } from "./model.ts";
import { paint_marks, palette_of, reduce_tile, reduce_words, reduction, to_canvas } from "./paint.ts";
import { type Scale, ticks_of, to_unit } from "./scale.ts";
import { type Picture, picture_axes } from "./slicing.ts";
import { cell_of, cell_value, type CellMode, kNan, kNegInf, kPosInf, type Tile } from "./tile.ts";
import { type Viewport } from "./viewport.ts";

// Room for the numbers of rows and columns.
const kAxisRoom = { left: 38, top: 17 };
export const gutter = {
  get left(): number {
    return Math.round(kAxisRoom.left * text_scale());
  },
  get top(): number {
    return Math.round(kAxisRoom.top * text_scale());
  },
};
export function small_font(scale = 1): string {
  return `${10 * scale}px system-ui, sans-serif`;
}

export const kTextCell = { height: 15, width: 36 };
// Marks of the tolerance: a green that no map and no sign has.
const kMarkInk = "rgb(0, 240, 60)";
const kMono = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";

interface Inks {
  page: string;
  surface: string;
  text: string;
  muted: string;
  line: string;
  accent: string;
  sure: number;
  perhaps: number;
}

export function inks_of(element: Element): Inks {
  const style = getComputedStyle(element);
  const read = (name: string, otherwise: string): string => style.getPropertyValue(name).trim() || otherwise;
  return {
    page: read("--tv-page", "#ffffff"),
    surface: read("--tv-surface", "#f4f5f6"),
    text: read("--tv-text", "#1b1f24"),
    muted: read("--tv-muted", "#68717c"),
    line: read("--tv-line", "#d5dae0"),
    accent: read("--tv-accent", "#2463c9"),
    sure: 0xff3cf000,
    perhaps: 0x803cf000,
  };
}

// Sets a canvas to the pixels of the screen and gives its context in CSS pixels, or in units of `scale` of them.
export function fit_canvas(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  scale = 1,
): CanvasRenderingContext2D {
  const dpr = (globalThis.devicePixelRatio || 1) * scale;
  const [w, hh] = [Math.max(1, Math.round(width * dpr)), Math.max(1, Math.round(height * dpr))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== hh) canvas.height = hh;
  const context = canvas.getContext("2d")!;
  context.setTransform(w / Math.max(1, width), 0, 0, hh / Math.max(1, height), 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Cells beyond the tolerance: as words of pixels, as a picture for each reduction, and those that surely are, as long as they are few.
interface Marks {
  words: Uint32Array;
  images: Map<string, HTMLCanvasElement>;
  few: number[] | null;
}

const kFew = 400;

export function make_marks(a: Tile, diff: Tile, rtol: number, atol: number, inks: Inks): Marks {
  const words = new Uint32Array(diff.width * diff.height);
  const [sure] = paint_marks(a, diff, rtol, atol, inks.sure, inks.perhaps, words);
  const few: number[] = [];
  if (sure <= kFew) words.forEach((word, at) => word === inks.sure && few.push(at));
  return { words, images: new Map(), few: sure <= kFew ? few : null };
}

// Pictures of tiles, painted once.
export class Painted {
  readonly #kept = new Map<string, HTMLCanvasElement>();
  readonly #numbers = new WeakMap<Tile, number>();
  readonly #reduced = new WeakMap<Tile, Map<string, Tile>>();
  readonly #marks = new Map<string, Marks>();
  #next = 0;

  number(tile: Tile): number {
    let number = this.#numbers.get(tile);
    if (number === undefined) this.#numbers.set(tile, number = this.#next++);
    return number;
  }

  get(key: string, make: () => HTMLCanvasElement): HTMLCanvasElement {
    let found = this.#kept.get(key);
    if (found) this.#kept.delete(key);
    else found = make();
    this.#kept.set(key, found);
    for (const old of this.#kept.keys()) {
      if (this.#kept.size <= 24) break;
      this.#kept.delete(old);
    }
    return found;
  }

  marks(key: string, make: () => Marks): Marks {
    let found = this.#marks.get(key);
    if (found) return found;
    // A slider that is dragged asks for many, and none of them twice.
    if (this.#marks.size > 8) this.#marks.clear();
    this.#marks.set(key, found = make());
    return found;
  }

  reduced(tile: Tile, down: number, across: number): Tile {
    if (down <= 1 && across <= 1) return tile;
    let all = this.#reduced.get(tile);
    if (!all) this.#reduced.set(tile, all = new Map());
    const key = `${down},${across}`;
    let found = all.get(key);
    if (!found) all.set(key, found = reduce_tile(tile, down, across));
    return found;
  }
}

export interface Plot {
  height: number;
  width: number;
  view: Viewport;
}

export const to_x = (plot: Plot, col: number): number =>
  gutter.left + (col - plot.view.col) * plot.width / plot.view.cols;
export const to_y = (plot: Plot, row: number): number =>
  gutter.top + (row - plot.view.row) * plot.height / plot.view.rows;

export function draw_image(
  context: CanvasRenderingContext2D,
  plot: Plot,
  tile: Tile,
  image: HTMLCanvasElement,
  down: number,
  across: number,
): void {
  if (tile.width === 0 || tile.height === 0) return;
  // One pixel of the image is `down` x `across` cells, and a cell some elements.
  const perRow = (tile.rows[1] - tile.rows[0]) / tile.height * down;
  const perCol = (tile.cols[1] - tile.cols[0]) / tile.width * across;
  const along = (start: number, seen: number, first: number, per: number, count: number): [number, number] => [
    Math.max(0, Math.min(count, Math.floor((start - first) / per))),
    Math.max(0, Math.min(count, Math.ceil((start + seen - first) / per))),
  ];
  const [y0, y1] = along(plot.view.row, plot.view.rows, tile.rows[0], perRow, image.height);
  const [x0, x1] = along(plot.view.col, plot.view.cols, tile.cols[0], perCol, image.width);
  if (y1 <= y0 || x1 <= x0) return;
  const left = to_x(plot, tile.cols[0] + x0 * perCol),
    right = to_x(plot, Math.min(tile.cols[1], tile.cols[0] + x1 * perCol));
  const top = to_y(plot, tile.rows[0] + y0 * perRow),
    bottom = to_y(plot, Math.min(tile.rows[1], tile.rows[0] + y1 * perRow));
  // The last pixel may stand for fewer cells than the others.
  const sourceWidth = Math.min(x1, (tile.cols[1] - tile.cols[0]) / perCol) - x0;
  const sourceHeight = Math.min(y1, (tile.rows[1] - tile.rows[0]) / perRow) - y0;
  context.drawImage(image, x0, y0, sourceWidth, sourceHeight, left, top, right - left, bottom - top);
}

// How many of the cells on the screen share a pixel, down and across.
export function reductions(tile: Tile, plot: Plot): [down: number, across: number] {
  const dpr = globalThis.devicePixelRatio || 1;
  return [
    reduction(plot.view.rows * tile.height / Math.max(1, tile.rows[1] - tile.rows[0]), plot.height * dpr),
    reduction(plot.view.cols * tile.width / Math.max(1, tile.cols[1] - tile.cols[0]), plot.width * dpr),
  ];
}

function tick_step(perElement: number, room: number): number {
  const rough = Math.max(1, room / perElement);
  const power = 10 ** Math.floor(Math.log10(rough));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= rough - 1e-9) return factor * power;
  return 10 * power;
}

// The number of a row or column as the tensor counts it.
function label_of(picture: Picture, axis: number, place: number): string {
  const part = axis >= 0 && !picture.isFolded ? picture.parts[axis] : undefined;
  return String(part?.kind === "range" ? part.start + part.step * place : place);
}

export function draw_axes(
  context: CanvasRenderingContext2D,
  plot: Plot,
  picture: Picture,
  rows: number,
  cols: number,
  inks: Inks,
): void {
  context.font = small_font(text_scale());
  context.fillStyle = inks.muted;
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  const [rowAxis, colAxis] = picture_axes(picture);
  const cellWidth = plot.width / plot.view.cols, cellHeight = plot.height / plot.view.rows;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const colStep = tick_step(cellWidth, 44);
  for (let col = Math.max(0, Math.floor(plot.view.col / colStep) * colStep); col < cols; col += colStep) {
    const x = to_x(plot, col + (cellWidth > 6 ? 0.5 : 0));
    if (x > gutter.left + plot.width - 4) break;
    if (x < gutter.left) continue;
    const text = label_of(picture, colAxis, col);
    const half = context.measureText(text).width / 2;
    const middle = Math.min(gutter.left + plot.width - half, Math.max(gutter.left + half, x));
    context.fillText(text, middle, gutter.top / 2 - 1);
    context.beginPath();
    context.moveTo(x, gutter.top - 4);
    context.lineTo(x, gutter.top - 1);
    context.stroke();
  }
  context.textAlign = "right";
  const rowStep = tick_step(cellHeight, 26);
  for (let row = Math.max(0, Math.floor(plot.view.row / rowStep) * rowStep); row < rows; row += rowStep) {
    const y = to_y(plot, row + (cellHeight > 6 ? 0.5 : 0));
    if (y > gutter.top + plot.height - 2) break;
    if (y < gutter.top) continue;
    context.fillText(label_of(picture, rowAxis, row), gutter.left - 6, Math.max(gutter.top + 5, y));
    context.beginPath();
    context.moveTo(gutter.left - 4, y);
    context.lineTo(gutter.left - 1, y);
    context.stroke();
  }
}

export interface Drawn {
  of: Of;
  state: PaneState;
  scale: Scale;
  mode: CellMode;
  texts: Texts | null;
  theme: "light" | "dark";
}

function cell_color(tile: Tile, at: number, mode: CellMode, scale: Scale, theme: "light" | "dark"): Rgb {
  const flags = tile.flags[at]!;
  if (flags & kNan) return kNanColor;
  if (flags & kPosInf) return kPosInfColor;
  if (flags & kNegInf) return kNegInfColor;
  const { bytes } = palette_of(scale.isSequential, theme);
  const place = 3 * Math.round(to_unit(scale, cell_value(tile, at, mode)) * 255);
  return [bytes[place]!, bytes[place + 1]!, bytes[place + 2]!];
}

// The digits of each cell: those of the server where they are there and fit, else as many as fit of what the tile has.
export function draw_texts(
  context: CanvasRenderingContext2D,
  plot: Plot,
  drawn: Drawn,
  rows: number,
  cols: number,
): void {
  const { state, texts } = drawn;
  const cellWidth = plot.width / plot.view.cols, cellHeight = plot.height / plot.view.rows;
  context.font = `${11 * text_scale()}px ${kMono}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const room = Math.floor((cellWidth - 6) / context.measureText("0").width);
  const tiles = [state.detail, state.overview].filter((tile) => tile !== null);
  const firstRow = Math.max(0, Math.floor(plot.view.row)),
    lastRow = Math.min(rows, Math.ceil(plot.view.row + plot.view.rows));
  const firstCol = Math.max(0, Math.floor(plot.view.col)),
    lastCol = Math.min(cols, Math.ceil(plot.view.col + plot.view.cols));
  for (let row = firstRow; row < lastRow; ++row) {
    for (let col = firstCol; col < lastCol; ++col) {
      const tile = tiles.find((one) =>
        one.exact && cell_of(one.rows, one.height, row) >= 0 && cell_of(one.cols, one.width, col) >= 0
      );
      if (!tile) continue;
      const at = (row - tile.rows[0]) * tile.width + (col - tile.cols[0]);
      const flags = tile.flags[at]!;
      const value = flags & kNan ? NaN : flags & kPosInf ? Infinity : flags & kNegInf ? -Infinity : tile.min[at]!;
      const isThere = texts !== null && row >= texts.rows[0] && row < texts.rows[1] && col >= texts.cols[0] &&
        col < texts.cols[1];
      const exact = isThere ? texts.text[row - texts.rows[0]]?.[col - texts.cols[0]] : undefined;
      const text = exact !== undefined && exact.length <= room ? exact : fit_number(value, room);
      context.fillStyle = ink_on(cell_color(tile, at, drawn.mode, drawn.scale, drawn.theme));
      context.fillText(text, to_x(plot, col) + cellWidth / 2, to_y(plot, row) + cellHeight / 2 + 0.5);
    }
  }
}

export function draw_grid(context: CanvasRenderingContext2D, plot: Plot, rows: number, cols: number, inks: Inks): void {
  context.strokeStyle = inks.page;
  context.globalAlpha = 0.2;
  context.lineWidth = 1;
  context.beginPath();
  for (let row = Math.max(0, Math.ceil(plot.view.row)); row <= Math.min(rows, plot.view.row + plot.view.rows); ++row) {
    const y = Math.round(to_y(plot, row)) + 0.5;
    context.moveTo(Math.max(gutter.left, to_x(plot, 0)), y);
    context.lineTo(to_x(plot, cols), y);
  }
  for (let col = Math.max(0, Math.ceil(plot.view.col)); col <= Math.min(cols, plot.view.col + plot.view.cols); ++col) {
    const x = Math.round(to_x(plot, col)) + 0.5;
    context.moveTo(x, Math.max(gutter.top, to_y(plot, 0)));
    context.lineTo(x, to_y(plot, rows));
  }
  context.stroke();
  context.globalAlpha = 1;
}

// NaN and infinities in cells too small to be seen get a dot, as long as they are few.
const signsOf = new WeakMap<Tile, number[]>();

export function draw_signs(context: CanvasRenderingContext2D, plot: Plot, tile: Tile): void {
  const cellWidth = plot.width / plot.view.cols * (tile.cols[1] - tile.cols[0]) / Math.max(1, tile.width);
  const cellHeight = plot.height / plot.view.rows * (tile.rows[1] - tile.rows[0]) / Math.max(1, tile.height);
  if (Math.min(cellWidth, cellHeight) >= 4) return;
  let signs = signsOf.get(tile);
  if (!signs) {
    signs = [];
    for (let at = 0; at < tile.flags.length && signs.length <= kFew; ++at) {
      if (tile.flags[at]! & (kNan | kPosInf | kNegInf)) signs.push(at);
    }
    signsOf.set(tile, signs);
  }
  if (signs.length > kFew) return;
  const side = { x: Math.max(4, cellWidth), y: Math.max(4, cellHeight) };
  for (const at of signs) {
    const flags = tile.flags[at]!;
    const col = tile.cols[0] + (at % tile.width + 0.5) * (tile.cols[1] - tile.cols[0]) / tile.width;
    const row = tile.rows[0] + (Math.floor(at / tile.width) + 0.5) * (tile.rows[1] - tile.rows[0]) / tile.height;
    context.fillStyle = to_css(flags & kNan ? kNanColor : flags & kPosInf ? kPosInfColor : kNegInfColor);
    context.fillRect(to_x(plot, col) - side.x / 2, to_y(plot, row) - side.y / 2, side.x, side.y);
  }
}

// Small cells are covered with the mark's colour, large ones are framed by it.
export function draw_marks(
  context: CanvasRenderingContext2D,
  plot: Plot,
  tile: Tile,
  marks: Marks,
  down: number,
  across: number,
): void {
  const perCol = (tile.cols[1] - tile.cols[0]) / tile.width, perRow = (tile.rows[1] - tile.rows[0]) / tile.height;
  const cellWidth = plot.width / plot.view.cols * perCol, cellHeight = plot.height / plot.view.rows * perRow;
  const corner = (at: number): [x: number, y: number] => [
    to_x(plot, tile.cols[0] + (at % tile.width) * perCol),
    to_y(plot, tile.rows[0] + Math.floor(at / tile.width) * perRow),
  ];
  if (cellWidth < 7 || cellHeight < 7) {
    const key = `${down},${across}`;
    let image = marks.images.get(key);
    if (!image) {
      const words = reduce_words(marks.words, tile.width, tile.height, down, across);
      image = to_canvas(words, Math.ceil(tile.width / across), Math.ceil(tile.height / down));
      marks.images.set(key, image);
    }
    draw_image(context, plot, tile, image, down, across);
    if (marks.few === null || Math.min(cellWidth, cellHeight) >= 4) return;
    context.fillStyle = kMarkInk;
    for (const at of marks.few) {
      const [x, y] = corner(at);
      context.fillRect(x + cellWidth / 2 - 2, y + cellHeight / 2 - 2, 4, 4);
    }
    return;
  }
  context.lineWidth = 2;
  context.strokeStyle = kMarkInk;
  for (let at = 0; at < marks.words.length; ++at) {
    const mark = marks.words[at]!;
    if (mark === 0) continue;
    const [left, top] = corner(at);
    if (left + cellWidth < gutter.left || left > gutter.left + plot.width) continue;
    if (top + cellHeight < gutter.top || top > gutter.top + plot.height) continue;
    context.globalAlpha = (mark >>> 24) / 255;
    context.strokeRect(left + 1.5, top + 1.5, cellWidth - 3, cellHeight - 3);
  }
  context.globalAlpha = 1;
}

export function draw_cross(
  context: CanvasRenderingContext2D,
  plot: Plot,
  row: number,
  col: number,
  inks: Inks,
  isPinned: boolean,
): void {
  const left = to_x(plot, col), top = to_y(plot, row);
  const width = plot.width / plot.view.cols, height = plot.height / plot.view.rows;
  const x = left + width / 2, y = top + height / 2;
  const half = { x: Math.max(width / 2, isPinned ? 4 : 2), y: Math.max(height / 2, isPinned ? 4 : 2) };
  context.strokeStyle = isPinned ? inks.accent : inks.text;
  context.globalAlpha = isPinned ? 0.9 : 0.45;
  context.lineWidth = 1;
  context.beginPath();
  if (!isPinned || width < 9) {
    context.moveTo(gutter.left, Math.round(y) + 0.5);
    context.lineTo(x - half.x - 1, Math.round(y) + 0.5);
    context.moveTo(x + half.x + 1, Math.round(y) + 0.5);
    context.lineTo(gutter.left + plot.width, Math.round(y) + 0.5);
    context.moveTo(Math.round(x) + 0.5, gutter.top);
    context.lineTo(Math.round(x) + 0.5, y - half.y - 1);
    context.moveTo(Math.round(x) + 0.5, y + half.y + 1);
    context.lineTo(Math.round(x) + 0.5, gutter.top + plot.height);
  }
  context.stroke();
  context.globalAlpha = 1;
  if (isPinned) {
    context.lineWidth = 3;
    context.strokeStyle = inks.page;
    context.strokeRect(x - half.x - 1, y - half.y - 1, 2 * half.x + 2, 2 * half.y + 2);
    context.lineWidth = 1.5;
    context.strokeStyle = inks.accent;
  }
  context.strokeRect(x - half.x - 0.5, y - half.y - 0.5, 2 * half.x + 1, 2 * half.y + 1);
}

export function draw_bar(
  canvas: HTMLCanvasElement,
  width: number,
  scale: Scale,
  state: PaneState,
  theme: "light" | "dark",
  inks: Inks,
): void {
  const height = 26;
  if (width <= 0) return;
  const context = fit_canvas(canvas, width, height, text_scale());
  const found = state.overview?.scale ?? null;
  if (found === null) return;
  const left = kAxisRoom.left + 8, right = width - 10;
  const { bytes } = palette_of(scale.isSequential, theme);
  for (let x = left; x < right; ++x) {
    context.fillStyle = css_at(bytes, (x - left) / (right - left - 1));
    context.fillRect(x, 2, 1.5, 8);
  }
  // Arrows at the ends say that values lie beyond.
  const arrow = (x: number, by: number, color: string): void => {
    context.fillStyle = color;
    context.beginPath();
    context.moveTo(x, 2);
    context.lineTo(x + by, 6);
    context.lineTo(x, 10);
    context.fill();
  };
  if (found.max > scale.limit) arrow(right + 0.5, 6, css_at(bytes, 1));
  if (found.min < -scale.limit && !scale.isSequential) arrow(left - 0.5, -6, css_at(bytes, 0));
  context.strokeStyle = inks.line;
  context.strokeRect(left - 0.5, 1.5, right - left + 1, 9);
  context.fillStyle = inks.muted;
  context.strokeStyle = inks.muted;
  context.font = small_font();
  context.textAlign = "center";
  context.textBaseline = "top";
  let lastEnd = -Infinity;
  for (const tick of ticks_of(scale, Math.max(3, Math.min(9, (right - left) / 48)))) {
    const x = left + tick.unit * (right - left);
    const half = context.measureText(tick.text).width / 2;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, 10);
    context.lineTo(Math.round(x) + 0.5, 13);
    context.stroke();
    if (x - half < lastEnd + 4) continue;
    context.fillText(tick.text, Math.min(width - half, x), 15);
    lastEnd = x + half;
  }
}
