// Cells to pixels. Colours are 32-bit words as ImageData has them on little-endian machines.

import {
  kDiverging,
  kDivergingDark,
  kNanColor,
  kNegInfColor,
  kPosInfColor,
  kSequential,
  type Rgb,
} from "../lib/colors.ts";
import { type Scale, to_unit } from "./scale.ts";
import { beyond_tolerance, type CellMode, kNan, kPosInf, type Tile } from "./tile.ts";

export interface Palette {
  words: Uint32Array;
  bytes: Uint8Array;
  nan: number;
  posInf: number;
  negInf: number;
}

function word(rgb: Rgb): number {
  return ((255 << 24) | (rgb[2] << 16) | (rgb[1] << 8) | rgb[0]) >>> 0;
}

function make_palette(bytes: Uint8Array): Palette {
  const words = new Uint32Array(256);
  for (let i = 0; i < 256; ++i) words[i] = word([bytes[3 * i]!, bytes[3 * i + 1]!, bytes[3 * i + 2]!]);
  return { words, bytes, nan: word(kNanColor), posInf: word(kPosInfColor), negInf: word(kNegInfColor) };
}

const kPalettes = {
  sequential: make_palette(kSequential),
  light: make_palette(kDiverging),
  dark: make_palette(kDivergingDark),
};

export function palette_of(isSequential: boolean, theme: "light" | "dark"): Palette {
  return isSequential ? kPalettes.sequential : kPalettes[theme];
}

// Logarithms are taken once for each upper half of a float32 (its sign, exponent and seven bits): on a logarithmic scale the
// rest makes no colour.
const halves = new Float32Array(1);
const halfWords = new Uint32Array(halves.buffer);

function symlog_table(scale: Scale, palette: Palette): Uint32Array {
  const table = new Uint32Array(65536);
  for (let half = 0; half < 65536; ++half) {
    halfWords[0] = (half << 16) | 0x8000;
    const value = halves[0]!;
    table[half] = palette.words[value === value ? (to_unit(scale, value) * 255 + 0.5) | 0 : 0]!;
  }
  return table;
}

export function paint_tile(tile: Tile, mode: CellMode, scale: Scale, palette: Palette, out: Uint32Array): void {
  const { flags, min, max, mean, exact } = tile;
  const isPeak = mode === "peak" && !exact;
  const one = exact || mode === "min" ? min : mode === "max" ? max : mean;
  const table = scale.mode === "symlog" ? symlog_table(scale, palette) : null;
  const { words } = palette;
  const first = scale.isSequential ? 0.5 : 128, per = (scale.isSequential ? 255 : 127.5) / scale.limit;
  for (let at = 0; at < flags.length; ++at) {
    const flag = flags[at]!;
    if (flag & 7) {
      out[at] = flag & kNan ? palette.nan : flag & kPosInf ? palette.posInf : palette.negInf;
      continue;
    }
    let value = one[at]!;
    if (isPeak) {
      const low = min[at]!, high = max[at]!;
      value = -low > high ? low : high;
    }
    if (table !== null) {
      halves[0] = value;
      out[at] = table[halfWords[0]! >>> 16]!;
    } else {
      const place = first + value * per;
      out[at] = words[place >= 255 ? 255 : place > 0 ? place | 0 : 0]!;
    }
  }
}

// Cells that are surely, or perhaps, beyond the tolerance. Gives how many there are of each.
export function paint_marks(
  a: Tile,
  diff: Tile,
  rtol: number,
  atol: number,
  sure: number,
  perhaps: number,
  out: Uint32Array,
): [sure: number, perhaps: number] {
  const counts: [number, number] = [0, 0];
  for (let at = 0; at < diff.flags.length; ++at) {
    const found = beyond_tolerance(a, diff, at, rtol, atol);
    out[at] = found === 2 ? sure : found === 1 ? perhaps : 0;
    if (found === 2) ++counts[0];
    if (found === 1) ++counts[1];
  }
  return counts;
}

// A tile with `down` x `across` cells made one: for panes with fewer pixels than the tile has cells. Nothing that stands out is lost.
// Both are powers of two.
export function reduce_tile(tile: Tile, down: number, across: number): Tile {
  if (down <= 1 && across <= 1) return tile;
  const height = Math.ceil(tile.height / down), width = Math.ceil(tile.width / across);
  const min = new Float32Array(height * width).fill(Infinity), max = new Float32Array(height * width).fill(-Infinity);
  const mean = new Float32Array(height * width), flags = new Uint8Array(height * width);
  const counts = new Uint32Array(height * width);
  const { min: lows, max: highs, mean: means, flags: from, exact } = tile;
  const [shiftDown, shiftAcross] = [Math.round(Math.log2(down)), Math.round(Math.log2(across))];
  for (let y = 0, at = 0; y < tile.height; ++y) {
    const row = (y >> shiftDown) * width;
    for (let x = 0; x < tile.width; ++x, ++at) {
      const to = row + (x >> shiftAcross);
      const flag = from[at]!;
      flags[to]! |= flag;
      // Infinities and NaN of an exact tile are in its flags; the others' planes are of finite elements only.
      if (exact && flag & 7) continue;
      const low = lows[at]!, high = highs[at]!, middle = means[at]!;
      if (low < min[to]!) min[to] = low;
      if (high > max[to]!) max[to] = high;
      if (middle === middle) {
        mean[to]! += middle;
        counts[to]! += 1;
      }
    }
  }
  for (let at = 0; at < min.length; ++at) {
    mean[at]! /= counts[at]!;
    if (min[at] === Infinity) min[at] = max[at] = NaN;
  }
  return { ...tile, height, width, exact: false, min, max, mean, flags };
}

// The same for marks: of those that share a pixel the strongest is seen.
export function reduce_words(
  words: Uint32Array,
  width: number,
  height: number,
  down: number,
  across: number,
): Uint32Array {
  if (down <= 1 && across <= 1) return words;
  const out = new Uint32Array(Math.ceil(height / down) * Math.ceil(width / across));
  const wide = Math.ceil(width / across);
  for (let y = 0; y < height; ++y) {
    for (let x = 0; x < width; ++x) {
      const to = Math.floor(y / down) * wide + Math.floor(x / across), word = words[y * width + x]!;
      if (word >>> 24 > out[to]! >>> 24) out[to] = word;
    }
  }
  return out;
}

// How many cells to make one so that each has a pixel at least: a power of two.
export function reduction(cells: number, pixels: number): number {
  return cells <= pixels ? 1 : 2 ** Math.ceil(Math.log2(cells / Math.max(1, pixels)) - 1e-9);
}

export function new_canvas(width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  return canvas;
}

export function to_canvas(words: Uint32Array, width: number, height: number): HTMLCanvasElement {
  const canvas = new_canvas(width, height);
  if (width > 0 && height > 0) {
    const pixels = new Uint8ClampedArray(words.buffer as ArrayBuffer, words.byteOffset, words.byteLength);
    canvas.getContext("2d")!.putImageData(new ImageData(pixels, width, height), 0, 0);
  }
  return canvas;
}
