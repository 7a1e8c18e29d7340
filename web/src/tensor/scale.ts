// From values to places on a colour map, and the ticks of a colour bar.

import type { TileScale } from "./tile.ts";
import { format_number } from "./format.ts";

export type ScaleMode = "linear" | "symlog";

// `limit` is the value at the end of the map; what is farther out is clipped to it. Sequential scales begin at 0.
export interface Scale {
  mode: ScaleMode;
  isSequential: boolean;
  limit: number;
  linear: number;
}

// How many orders of magnitude a symlog scale shows below its limit.
const kOrders = 4;

export function make_scale(limit: number, mode: ScaleMode, isSequential: boolean): Scale {
  const safe = Number.isFinite(limit) && limit > 0 ? limit : 1;
  return { mode, isSequential, limit: safe, linear: safe * 10 ** -kOrders };
}

// Symmetric at the 99.9 % quantile of |x|; where that is 0 (nearly all is zero) at the largest |x|.
export function limit_of(scales: readonly (TileScale | null)[]): number {
  let limit = 0;
  for (const scale of scales) {
    if (!scale) continue;
    const one = Number.isFinite(scale.p999) && scale.p999 > 0 ? scale.p999 : scale.abs;
    if (Number.isFinite(one) && one > limit) limit = one;
  }
  return limit;
}

// The place on the map: 0 to 1; of a diverging scale 0 is at 0.5.
export function to_unit(scale: Scale, value: number): number {
  const size = Math.min(Math.abs(value), scale.limit);
  const part = scale.mode === "linear"
    ? size / scale.limit
    : Math.log1p(size / scale.linear) / Math.log1p(scale.limit / scale.linear);
  if (scale.isSequential) return value < 0 ? 0 : part;
  return value < 0 ? 0.5 - part / 2 : 0.5 + part / 2;
}

export function from_unit(scale: Scale, unit: number): number {
  const signed = scale.isSequential ? unit : 2 * unit - 1;
  const part = Math.abs(signed);
  const size = scale.mode === "linear"
    ? part * scale.limit
    : scale.linear * Math.expm1(part * Math.log1p(scale.limit / scale.linear));
  return signed < 0 ? -size : size;
}

// 1, 2 or 5 times a power of ten.
export function nice_step(span: number, count: number): number {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const ratio = rough / power;
  return (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10) * power;
}

export interface Tick {
  unit: number;
  value: number;
  text: string;
}

export function ticks_of(scale: Scale, count: number): Tick[] {
  const values: number[] = [];
  if (scale.mode === "linear") {
    const step = nice_step(scale.isSequential ? scale.limit : 2 * scale.limit, count);
    for (let k = 1; k * step <= scale.limit * (1 + 1e-9); ++k) values.push(k * step);
  } else {
    const every = count >= 9 ? 1 : 2;
    const top = Math.floor(Math.log10(scale.limit) + 1e-9);
    for (let power = top, k = 0; 10 ** power > scale.linear && k <= kOrders; --power, ++k) {
      if (k % every === 0) values.push(10 ** power);
    }
    values.reverse();
  }
  const all = scale.isSequential ? [0, ...values] : [...values.map((value) => -value).reverse(), 0, ...values];
  return all.map((value) => ({
    unit: to_unit(scale, value),
    value,
    text: format_number(Number(value.toPrecision(6)), 3),
  }));
}
