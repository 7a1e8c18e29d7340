// Colour maps that people with any colour vision can read, interpolated in OKLab between a few control points.

export type Rgb = readonly [number, number, number];

function to_linear(c: number): number {
  const v = c / 255;
  return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
}

function from_linear(v: number): number {
  const c = v <= 0.0031308 ? v * 12.92 : 1.055 * v ** (1 / 2.4) - 0.055;
  return Math.round(Math.min(1, Math.max(0, c)) * 255);
}

/** Björn Ottosson's OKLab, in which equal distances look about equal. */
export function to_oklab([r, g, b]: Rgb): Rgb {
  const [x, y, z] = [to_linear(r), to_linear(g), to_linear(b)];
  const l = Math.cbrt(0.4122214708 * x + 0.5363325363 * y + 0.0514459929 * z);
  const m = Math.cbrt(0.2119034982 * x + 0.6806995451 * y + 0.1073969566 * z);
  const s = Math.cbrt(0.0883024619 * x + 0.2817188376 * y + 0.6299787005 * z);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

export function from_oklab([L, A, B]: Rgb): Rgb {
  const l = (L + 0.3963377774 * A + 0.2158037573 * B) ** 3;
  const m = (L - 0.1055613458 * A - 0.0638541728 * B) ** 3;
  const s = (L - 0.0894841775 * A - 1.291485548 * B) ** 3;
  return [
    from_linear(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    from_linear(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    from_linear(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

export function parse_hex(hex: string): Rgb {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16 & 255, n >> 8 & 255, n & 255];
}

export function to_css([r, g, b]: Rgb): string {
  return `rgb(${r}, ${g}, ${b})`;
}

/** 256 colours, three bytes each, through control points at equal distances. */
export function ramp(points: readonly string[]): Uint8Array {
  const labs = points.map((hex) => to_oklab(parse_hex(hex)));
  const table = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const x = i / 255 * (labs.length - 1);
    const k = Math.min(labs.length - 2, Math.floor(x));
    const [p, q] = [labs[k]!, labs[k + 1]!];
    const f = x - k;
    table.set(from_oklab([p[0] + (q[0] - p[0]) * f, p[1] + (q[1] - p[1]) * f, p[2] + (q[2] - p[2]) * f]), i * 3);
  }
  return table;
}

/** From dark violet over green to yellow; lightness rises all the way. */
export const kSequential = ramp(["#3b0f5c", "#44397f", "#34618d", "#228a8d", "#34b079", "#8dcf48", "#f4e61e"]);

/** Blue below, red above, almost white between. */
export const kDiverging = ramp([
  "#0b3168",
  "#2568ad",
  "#64a3cf",
  "#b5d5e8",
  "#f5f5f4",
  "#f6cdb5",
  "#e0866a",
  "#b82f3b",
  "#6a0722",
]);

/** The same with a dark middle, for a dark page. */
export const kDivergingDark = ramp([
  "#a9d9ff",
  "#57a8ea",
  "#2b6cab",
  "#1d3d5c",
  "#191b20",
  "#5a2a2b",
  "#a5413b",
  "#e8775b",
  "#ffc4a4",
]);

/** How bad something is: from the page's own grey over amber to a strong red. Light and dark pages have their own. */
export const kHeat = ramp(["#dfe5ea", "#efd99b", "#eda94f", "#dd6a35", "#b3262b"]);
export const kHeatDark = ramp(["#2b323a", "#5b4c26", "#a5702a", "#dd7435", "#ff5a4f"]);

/** Amounts that are neither good nor bad, in one hue. */
export const kQuiet = ramp(["#e2ebf0", "#a4c2d3", "#5f90b0", "#2c5d80"]);
export const kQuietDark = ramp(["#1d2830", "#2b4a5c", "#437a98", "#86bfdf"]);

/** Signs of their own, in none of the maps. */
export const kNanColor: Rgb = [255, 0, 200];
export const kPosInfColor: Rgb = [255, 140, 0];
export const kNegInfColor: Rgb = [0, 220, 255];

/** The colour of `t` in 0..1 (clamped; NaN gives the first). */
export function color_at(table: Uint8Array, t: number): Rgb {
  const i = t > 0 ? Math.min(255, Math.round(t * 255)) : 0;
  return [table[i * 3]!, table[i * 3 + 1]!, table[i * 3 + 2]!];
}

const texts = new WeakMap<Uint8Array, string[]>();

/** The same as a text for a canvas; made once for each of the 256. */
export function css_at(table: Uint8Array, t: number): string {
  let list = texts.get(table);
  if (!list) {
    list = Array.from({ length: 256 }, (_, i) => to_css([table[i * 3]!, table[i * 3 + 1]!, table[i * 3 + 2]!]));
    texts.set(table, list);
  }
  return list[t > 0 ? Math.min(255, Math.round(t * 255)) : 0]!;
}

/** Black or white, whichever can be read on a colour. */
export function ink_on(rgb: Rgb): "#000" | "#fff" {
  return to_oklab(rgb)[0] > 0.62 ? "#000" : "#fff";
}

/** The same on a colour as styles have it: #rgb, #rrggbb or rgb(r, g, b). */
export function ink_of(css: string): "#000" | "#fff" {
  const short = /^#([0-9a-f])([0-9a-f])([0-9a-f])$/i.exec(css);
  const hex = short ? short.slice(1).map((digit) => digit + digit) : /^#(..)(..)(..)/.exec(css)?.slice(1);
  const parts = hex ? hex.map((pair) => parseInt(pair, 16)) : (css.match(/[\d.]+/g) ?? []).map(Number);
  return ink_on([parts[0] ?? 0, parts[1] ?? 0, parts[2] ?? 0]);
}

/** A place in 0..1 on a logarithmic scale from `low` to `high`. */
export function log_place(value: number, low: number, high: number): number {
  if (!(value > 0)) return 0;
  if (value === Infinity) return 1;
  return Math.min(1, Math.max(0, Math.log(value / low) / Math.log(high / low)));
}
