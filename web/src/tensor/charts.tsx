// Small charts on canvas: lines along an axis, histograms, histograms over steps.

import { h } from "../lib/jsx.ts";
import { effect, onEnd, type Read, signal } from "../lib/signals.ts";
import type { Histogram, Histograms } from "../types.ts";
import { format_count, format_number } from "./format.ts";
import { text_scale } from "../lib/paint.ts";
import { fit_canvas, small_font } from "./draw.ts";
import { nice_step } from "./scale.ts";

export interface ChartInks {
  a: string;
  b: string;
  diff: string;
  text: string;
  muted: string;
  line: string;
  accent: string;
  page: string;
  bad: string;
}

function chart_inks(element: Element): ChartInks {
  const style = getComputedStyle(element);
  const read = (name: string): string => style.getPropertyValue(name).trim() || "#888888";
  return {
    a: read("--tv-a"),
    b: read("--tv-b"),
    diff: read("--tv-diff"),
    text: read("--tv-text"),
    muted: read("--tv-muted"),
    line: read("--tv-line"),
    accent: read("--tv-accent"),
    page: read("--tv-page"),
    bad: read("--tv-bad"),
  };
}

export interface Pointer {
  x: number;
  y: number;
}

interface ChartProps {
  height: number;
  label: string;
  theme: Read<unknown>;
  draw: (
    context: CanvasRenderingContext2D,
    width: number,
    height: number,
    inks: ChartInks,
    pointer: Pointer | null,
  ) => void;
  // Texts under the pointer; empty: none.
  tip?: (pointer: Pointer, width: number, height: number) => string;
  click?: (pointer: Pointer, width: number, height: number) => void;
}

// A canvas that is drawn again when what `draw` reads, its width, the theme or the pointer changes.
export function Chart(props: ChartProps): Node {
  const width = signal(0);
  const pointer = signal<Pointer | null>(null);
  const place = (event: MouseEvent): Pointer => {
    const box = canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left) / text_scale(), y: (event.clientY - box.top) / text_scale() };
  };
  const canvas = (
    <canvas
      class={props.click ? "tv-chart tv-clickable" : "tv-chart"}
      role="img"
      aria-label={props.label}
      style={{ height: `${props.height / 13}rem` }}
      onPointerMove={(event) => pointer.set(place(event))}
      onPointerLeave={() => pointer.set(null)}
      onClick={(event) => props.click?.(place(event), width.peek(), props.height)}
    >
    </canvas>
  ) as HTMLCanvasElement;
  const tip = <output class="tv-tip"></output> as HTMLElement;
  const watch = new ResizeObserver(() => width.set(canvas.clientWidth / text_scale()));
  watch.observe(canvas);
  onEnd(() => watch.disconnect());
  effect(() => {
    props.theme();
    const wide = width(), point = pointer();
    if (wide <= 0) return;
    props.draw(fit_canvas(canvas, wide, props.height, text_scale()), wide, props.height, chart_inks(canvas), point);
    const text = point === null ? "" : props.tip?.(point, wide, props.height) ?? "";
    tip.textContent = text;
    tip.hidden = text === "";
    if (point !== null && text !== "") {
      const isRight = point.x > wide / 2;
      tip.style.setProperty("left", isRight ? "auto" : `${text_scale() * (point.x + 12)}px`);
      tip.style.setProperty("right", isRight ? `${text_scale() * (wide - point.x + 12)}px` : "auto");
    }
  });
  tip.hidden = true;
  return <div class="tv-chart-box">{canvas}{tip}</div>;
}

// ---- lines along an axis or over steps

export interface Line {
  values: readonly number[];
  ink: "a" | "b" | "diff";
  name: string;
  isFilled?: boolean;
}

export interface LineChart {
  // The place of each value, ascending.
  at: readonly number[];
  lines: readonly Line[];
  isLog?: boolean;
  // The place that is shown now, and the range that is seen.
  now?: number | null;
  seen?: readonly [number, number] | null;
  unit: string;
}

const kSparse = 48;
const kLineBox = { left: 40, right: 6, top: 5, bottom: 14 };

function place_x(chart: LineChart, at: number, width: number): number {
  const first = chart.at[0] ?? 0, last = chart.at.at(-1) ?? 1;
  const room = width - kLineBox.left - kLineBox.right;
  // Bars have half their room beyond the first and the last.
  const margin = chart.at.length <= kSparse ? Math.min(20, room / Math.max(1, chart.at.length) / 2) : 0;
  return kLineBox.left + margin + (last > first ? (at - first) / (last - first) : 0.5) * (room - 2 * margin);
}

export function nearest(chart: LineChart, x: number, width: number): number {
  let best = -1, distance = Infinity;
  chart.at.forEach((at, k) => {
    const away = Math.abs(place_x(chart, at, width) - x);
    if (away < distance) [best, distance] = [k, away];
  });
  return best;
}

export function draw_lines(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  inks: ChartInks,
  pointer: Pointer | null,
  chart: LineChart,
): void {
  const finite = chart.lines.flatMap((line) => line.values.filter(Number.isFinite));
  const positive = finite.filter((value) => value > 0);
  const isLog = (chart.isLog ?? false) && positive.length > 0;
  let low = isLog ? Math.min(...spread(positive)) : Math.min(0, ...spread(finite));
  let high = isLog ? Math.max(...spread(positive)) : Math.max(0, ...spread(finite));
  if (isLog) low = Math.max(low, high * 1e-12);
  if (!(high > low)) [low, high] = isLog ? [low / 2, high * 2] : [low - (low === 0 ? 0 : 1), high + 1];
  const top = kLineBox.top, bottom = height - kLineBox.bottom;
  const to_y = (value: number): number => {
    const part = isLog ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
    return bottom - Math.max(0, Math.min(1, part)) * (bottom - top);
  };
  context.font = small_font();
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.strokeStyle = inks.line;
  context.fillStyle = inks.muted;
  context.lineWidth = 1;
  const marks = isLog ? [low, high] : [low, ...(low < 0 && high > 0 ? [0] : []), high];
  for (const value of marks) {
    const y = Math.round(to_y(value)) + 0.5;
    context.beginPath();
    context.moveTo(kLineBox.left, y);
    context.lineTo(width - kLineBox.right, y);
    context.stroke();
    context.fillText(format_number(value, 3), kLineBox.left - 5, Math.min(bottom - 3, Math.max(top + 3, y)));
  }
  if (chart.seen) {
    context.fillStyle = inks.accent;
    context.globalAlpha = 0.12;
    const left = place_x(chart, chart.seen[0], width), right = place_x(chart, chart.seen[1] - 1, width);
    context.fillRect(
      Math.max(kLineBox.left, left - 1),
      top,
      Math.max(2, Math.min(width - kLineBox.right, right) - left + 2),
      bottom - top,
    );
    context.globalAlpha = 1;
  }
  const isSparse = chart.at.length <= kSparse;
  const slot = (width - kLineBox.left - kLineBox.right) / Math.max(1, chart.at.length);
  for (const line of chart.lines) {
    context.strokeStyle = context.fillStyle = inks[line.ink];
    context.lineWidth = 1.4;
    if (line.isFilled && isSparse) {
      const base = to_y(isLog ? low : 0);
      context.globalAlpha = 0.85;
      line.values.forEach((value, k) => {
        if (!Number.isFinite(value)) return;
        const x = place_x(chart, chart.at[k]!, width), y = to_y(value);
        const wide = Math.max(1.5, Math.min(14, slot * 0.7));
        if (value !== 0) {
          context.fillRect(
            x - wide / 2,
            Math.min(y, base) - (y === base ? 1 : 0),
            wide,
            Math.max(1, Math.abs(base - y)),
          );
        }
      });
      context.globalAlpha = 1;
      continue;
    }
    context.beginPath();
    let isDown = false;
    line.values.forEach((value, k) => {
      const isThere = Number.isFinite(value) && (!isLog || value > 0);
      if (!isThere) {
        isDown = false;
        return;
      }
      const x = place_x(chart, chart.at[k]!, width), y = to_y(value);
      if (isDown) context.lineTo(x, y);
      else context.moveTo(x, y);
      isDown = true;
    });
    context.stroke();
    if (isSparse) {
      line.values.forEach((value, k) => {
        if (!Number.isFinite(value) || (isLog && value <= 0)) return;
        context.beginPath();
        context.arc(place_x(chart, chart.at[k]!, width), to_y(value), 2, 0, 7);
        context.fill();
      });
    }
    // What is not finite stands at the upper edge.
    context.fillStyle = inks.bad;
    line.values.forEach((value, k) => {
      if (!Number.isFinite(value)) context.fillRect(place_x(chart, chart.at[k]!, width) - 1.5, top - 3, 3, 3);
    });
  }
  const rule = (at: number, color: string, alpha: number): void => {
    const x = Math.round(place_x(chart, at, width)) + 0.5;
    context.strokeStyle = color;
    context.globalAlpha = alpha;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, top - 3);
    context.lineTo(x, bottom);
    context.stroke();
    context.globalAlpha = 1;
  };
  if (chart.now !== null && chart.now !== undefined) rule(chart.now, inks.accent, 1);
  if (pointer !== null) {
    const near = nearest(chart, pointer.x, width);
    if (near >= 0) rule(chart.at[near]!, inks.text, 0.5);
  }
  context.fillStyle = inks.muted;
  context.textBaseline = "bottom";
  const first = chart.at[0] ?? 0, last = chart.at.at(-1) ?? 0;
  const step = last > first ? Math.max(1, nice_step(last - first, Math.max(2, width / 70))) : 1;
  for (let at = Math.ceil(first / step) * step; at <= last; at += step) {
    const x = place_x(chart, at, width);
    context.textAlign = x > width - 16 ? "right" : "center";
    context.fillText(String(at), x > width - 16 ? width - 2 : x, height);
  }
}

// Math.min of long lists runs out of arguments: their ends are enough.
function spread(values: readonly number[]): number[] {
  if (values.length === 0) return [0];
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

export function line_tip(chart: LineChart, pointer: Pointer, width: number): string {
  const near = nearest(chart, pointer.x, width);
  if (near < 0) return "";
  const values = chart.lines.map((line) => `${line.name} ${format_number(line.values[near] ?? NaN, 5)}`);
  return `${chart.unit} ${chart.at[near]}: ${values.join(", ")}`;
}

// ---- histograms

export interface Spread {
  edges: readonly number[];
  counts: readonly number[];
  nan: number;
  pos_inf: number;
  neg_inf: number;
  zero: number;
  subnormal: number;
}

const kSpecials: readonly [keyof Omit<Spread, "edges" | "counts">, string][] = [
  ["zero", "0"],
  ["subnormal", "sub"],
  ["neg_inf", "−Inf"],
  ["pos_inf", "+Inf"],
  ["nan", "NaN"],
];

// A place for every value on both sides of zero: linear within the smallest edge, logarithmic beyond.
export function symlog_axis(edges: readonly number[]): (value: number) => number {
  const sizes = edges.map(Math.abs).filter((size) => size > 0 && Number.isFinite(size));
  if (sizes.length === 0) return (value) => (value > 0 ? 1 : value < 0 ? 0 : 0.5);
  const most = Math.max(...sizes);
  const least = Math.max(Math.min(...sizes), most * 1e-12);
  const bend = (value: number): number => Math.sign(value) * Math.log1p(Math.abs(value) / least);
  const low = bend(Math.min(...edges)), high = bend(Math.max(...edges));
  return high > low ? (value) => (bend(value) - low) / (high - low) : () => 0.5;
}

// Two histograms over the same bins: edges stay where both have them, or where the other has nothing.
export function common_bins(a: Spread, b: Spread): [Spread, Spread] {
  const [inA, inB] = [new Set(a.edges), new Set(b.edges)];
  const outside = (value: number, edges: readonly number[]): boolean => value < edges[0]! || value > edges.at(-1)!;
  const edges = [
    ...a.edges.filter((edge) => inB.has(edge) || outside(edge, b.edges)),
    ...b.edges.filter((edge) => !inA.has(edge) && outside(edge, a.edges)),
  ].sort((x, y) => x - y);
  const rebin = (one: Spread): Spread => {
    const counts = new Array<number>(Math.max(0, edges.length - 1)).fill(0);
    let bin = 0;
    one.counts.forEach((count, k) => {
      const middle = (one.edges[k]! + one.edges[k + 1]!) / 2;
      while (bin + 1 < counts.length && middle >= edges[bin + 1]!) ++bin;
      if (counts.length > 0) counts[bin] = counts[bin]! + count;
    });
    return { ...one, edges, counts };
  };
  // Too few bins would tell nothing: then each keeps its own.
  return 2 * (edges.length - 1) >= Math.min(a.counts.length, b.counts.length) ? [rebin(a), rebin(b)] : [a, b];
}

const kHistogram = { left: 34, right: 4, top: 6, bottom: 15, special: 26 };

interface HistogramShape {
  width: number;
  plotRight: number;
  axis: (value: number) => number;
  specials: readonly [keyof Omit<Spread, "edges" | "counts">, string][];
  most: number;
}

function shape_histogram(all: readonly Spread[], width: number): HistogramShape {
  const specials = kSpecials.filter(([name]) => name === "nan" || name === "zero" || all.some((one) => one[name] > 0));
  const plotRight = width - kHistogram.right - specials.length * kHistogram.special - 8;
  const most = Math.max(1, ...all.flatMap((one) => [...one.counts, ...specials.map(([name]) => one[name])]));
  return { width, plotRight, axis: symlog_axis(all.flatMap((one) => [...one.edges])), specials, most };
}

const log_height = (
  count: number,
  most: number,
): number => (count > 0 ? (Math.log10(count) + 0.35) / (Math.log10(most) + 0.35) : 0);

export function draw_histogram(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  inks: ChartInks,
  a: Spread,
  b: Spread | null,
): void {
  const all = b === null ? [a] : [a, b];
  const { plotRight, axis, specials, most } = shape_histogram(all, width);
  const bottom = height - kHistogram.bottom, room = bottom - kHistogram.top;
  const to_x = (value: number): number => kHistogram.left + axis(value) * (plotRight - kHistogram.left);
  context.font = small_font();
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let power = 0; 10 ** power <= most; ++power) {
    const y = Math.round(bottom - log_height(10 ** power, most) * room) + 0.5;
    context.strokeStyle = inks.line;
    context.globalAlpha = 0.6;
    context.beginPath();
    context.moveTo(kHistogram.left, y);
    context.lineTo(width - kHistogram.right, y);
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = inks.muted;
    if (most < 1e5 || power % 2 === 0) {
      context.fillText(power < 4 ? String(10 ** power) : `1e${power}`, kHistogram.left - 4, y);
    }
  }
  const outline = (one: Spread): void => {
    context.beginPath();
    context.moveTo(to_x(one.edges[0] ?? 0), bottom);
    one.counts.forEach((count, k) => {
      const y = bottom - log_height(count, most) * room;
      context.lineTo(to_x(one.edges[k]!), y);
      context.lineTo(to_x(one.edges[k + 1]!), y);
    });
    context.lineTo(to_x(one.edges.at(-1) ?? 0), bottom);
  };
  context.fillStyle = inks.a;
  context.globalAlpha = b === null ? 0.75 : 0.4;
  outline(a);
  context.fill();
  context.globalAlpha = 1;
  if (b !== null) {
    context.strokeStyle = inks.b;
    context.lineWidth = 1.4;
    outline(b);
    context.stroke();
  }
  specials.forEach(([name, text], k) => {
    const x = plotRight + 8 + k * kHistogram.special;
    const isBad = name === "nan" || name === "pos_inf" || name === "neg_inf";
    all.forEach((one, side) => {
      const tall = log_height(one[name], most) * room;
      const wide = (kHistogram.special - 8) / all.length;
      context.fillStyle = isBad ? inks.bad : side === 0 ? inks.a : inks.b;
      context.globalAlpha = side === 0 ? 0.8 : 1;
      context.fillRect(x + 2 + side * wide, bottom - tall, wide - 1, tall);
      context.globalAlpha = 1;
    });
    context.fillStyle = isBad && all.some((one) => one[name] > 0) ? inks.bad : inks.muted;
    context.textAlign = "center";
    context.textBaseline = "bottom";
    context.fillText(text, x + kHistogram.special / 2 - 2, height);
  });
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(kHistogram.left, bottom + 0.5);
  context.lineTo(plotRight, bottom + 0.5);
  context.moveTo(plotRight + 8, bottom + 0.5);
  context.lineTo(width - kHistogram.right, bottom + 0.5);
  context.stroke();
  // Ticks: the ends, zero, and powers of ten where there is room.
  const edges = all.flatMap((one) => [...one.edges]);
  if (edges.length === 0) return;
  const low = Math.min(...edges), high = Math.max(...edges);
  const wanted: number[] = [];
  if (low <= 0 && high >= 0) wanted.push(0);
  const top = Math.floor(Math.log10(Math.max(Math.abs(low), Math.abs(high))));
  for (let power = top; power > top - 12; --power) {
    for (const value of [10 ** power, -(10 ** power)]) if (value >= low && value <= high) wanted.push(value);
  }
  const taken: [number, number][] = [];
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillStyle = inks.muted;
  for (const value of wanted) {
    const text = format_number(Number(value.toPrecision(3)), 2);
    const half = context.measureText(text).width / 2 + 3, x = to_x(value);
    if (x - half < kHistogram.left - 8 || x + half > plotRight + 6) continue;
    if (taken.some(([left, right]) => x - half < right && x + half > left)) continue;
    taken.push([x - half, x + half]);
    context.fillText(text, x, height);
    context.fillRect(x, bottom, 1, 3);
  }
}

export function histogram_tip(pointer: Pointer, width: number, a: Spread, b: Spread | null): string {
  const all = b === null ? [a] : [a, b];
  const { plotRight, axis, specials } = shape_histogram(all, width);
  const words = (counts: (number | undefined)[]): string =>
    counts.map((count, side) => `${side === 0 ? "A" : "B"} ${format_count(count ?? 0)}`).join(", ");
  if (pointer.x > plotRight + 4) {
    const special = specials[Math.floor((pointer.x - plotRight - 8) / kHistogram.special)];
    if (!special) return "";
    const names: Record<string, string> = {
      zero: "zero",
      subnormal: "subnormal",
      nan: "NaN",
      pos_inf: "+Inf",
      neg_inf: "−Inf",
    };
    return `${names[special[0]]}: ${words(all.map((one) => one[special[0]]))}`;
  }
  const unit = (pointer.x - kHistogram.left) / (plotRight - kHistogram.left);
  const bin_of = (one: Spread): number =>
    one.counts.findIndex((_, k) => axis(one.edges[k]!) <= unit && unit < axis(one.edges[k + 1]!));
  const bins = all.map(bin_of);
  const from = all.findIndex((_, side) => bins[side]! >= 0);
  if (from < 0) return "";
  const edges = all[from]!.edges, bin = bins[from]!;
  return `${format_number(edges[bin]!, 3)} to ${format_number(edges[bin + 1]!, 3)}: ${
    words(all.map((one, side) => one.counts[bins[side]!]))
  }`;
}

// ---- histograms over steps: ridges, the oldest at the top

export const kRidge = { left: 34, right: 4, top: 18, bottom: 15 };

export function ridge_rows(count: number): number {
  return Math.max(1, Math.min(count, 64));
}

export function draw_ridges(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  inks: ChartInks,
  data: Histograms,
  now: number,
  pointer: Pointer | null,
): void {
  const count = data.steps.length;
  if (count === 0) return;
  const axis = symlog_axis(data.edges);
  const right = width - kRidge.right - 16;
  const bottom = height - kRidge.bottom;
  const gap = (bottom - kRidge.top) / count;
  const tall = Math.max(9, Math.min(30, gap * 2.4));
  const to_x = (value: number): number => kRidge.left + axis(value) * (right - kRidge.left);
  let most = 1;
  for (const step of data.steps) {
    for (const one of [...step.counts, ...(step.b?.counts ?? [])]) if (one > most) most = one;
  }
  context.font = small_font();
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(12 / gap));
  const hovered = pointer === null ? -1 : ridge_at(pointer, height, count);
  data.steps.forEach((step, k) => {
    const base = kRidge.top + (k + 1) * gap;
    const isNow = step.step === now;
    const outline = (counts: readonly number[]): void => {
      context.beginPath();
      context.moveTo(to_x(data.edges[0]!), base);
      counts.forEach((one, bin) => {
        const x = (to_x(data.edges[bin]!) + to_x(data.edges[bin + 1]!)) / 2;
        context.lineTo(x, base - log_height(one, most) * tall);
      });
      context.lineTo(to_x(data.edges.at(-1)!), base);
    };
    outline(step.counts);
    context.fillStyle = inks.page;
    context.globalAlpha = 0.75;
    context.fill();
    context.fillStyle = inks.a;
    context.globalAlpha = isNow || k === hovered ? 0.75 : 0.3;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = inks.a;
    context.lineWidth = isNow ? 1.4 : 0.8;
    context.stroke();
    if (step.b) {
      outline(step.b.counts);
      context.strokeStyle = inks.b;
      context.lineWidth = isNow ? 1.6 : 1;
      context.stroke();
    }
    const bad = step.nan + step.pos_inf + step.neg_inf + (step.b ? step.b.nan + step.b.pos_inf + step.b.neg_inf : 0);
    if (bad > 0) {
      context.fillStyle = inks.bad;
      context.fillRect(right + 6, base - Math.min(8, gap) + 1, 8, Math.max(2, Math.min(7, gap - 1)));
    }
    if (k % every === 0 || isNow) {
      context.fillStyle = isNow ? inks.accent : inks.muted;
      context.fillText(String(step.step), kRidge.left - 5, base - 3);
    }
    if (isNow) {
      context.strokeStyle = inks.accent;
      context.beginPath();
      context.moveTo(kRidge.left - 3, base + 0.5);
      context.lineTo(right, base + 0.5);
      context.stroke();
    }
  });
  context.fillStyle = inks.muted;
  context.textBaseline = "bottom";
  const low = data.edges[0]!, high = data.edges.at(-1)!;
  for (const [value, align] of [[low, "left"], [high, "right"]] as const) {
    context.textAlign = align;
    context.fillText(format_number(value, 2), to_x(value), height);
  }
  if (low < 0 && high > 0) {
    context.textAlign = "center";
    context.fillText("0", to_x(0), height);
  }
}

export function ridge_at(pointer: Pointer, height: number, count: number): number {
  const gap = (height - kRidge.bottom - kRidge.top) / count;
  return Math.max(0, Math.min(count - 1, Math.floor((pointer.y - kRidge.top) / gap)));
}

export function ridge_tip(pointer: Pointer, height: number, data: Histograms): string {
  const step = data.steps[ridge_at(pointer, height, data.steps.length)];
  if (!step) return "";
  const words = (one: Omit<Histogram, "edges">): string => {
    const bad = one.nan + one.pos_inf + one.neg_inf;
    return `${format_count(one.zero)} zero${bad > 0 ? `, ${format_count(bad)} NaN or Inf` : ""}`;
  };
  return `step ${step.step}: A ${words(step)}${step.b ? `; B ${words(step.b)}` : ""}`;
}
