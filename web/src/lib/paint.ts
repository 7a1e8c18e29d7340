// Colours of the page for canvases, and what stands for verdicts and amounts in every view.

import { css_at, kHeat, kHeatDark, kQuiet, kQuietDark, kSequential, log_place } from "./colors.ts";
import { to_number, Verdict } from "../types.ts";
import type { Num } from "../types.ts";

export type Theme = "light" | "dark";

export interface Paints {
  theme: Theme;
  ink: string;
  muted: string;
  faint: string;
  line: string;
  panel: string;
  back: string;
  accent: string;
  equal: string;
  noise: string;
  unknown: string;
  carries: string;
  starts: string;
  alone: string;
  bad: string;
  font: string;
  mono: string;
}

const cache = new Map<Theme, Paints>();

/** The page's colours, read from its style once for each theme. */
export function paints(theme: Theme): Paints {
  const known = cache.get(theme);
  if (known) return known;
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const made: Paints = {
    theme,
    ink: of("ink"),
    muted: of("muted"),
    faint: of("faint"),
    line: of("line"),
    panel: of("panel"),
    back: of("back"),
    accent: of("accent"),
    equal: of("equal"),
    noise: of("noise"),
    unknown: of("unknown"),
    carries: of("carries"),
    starts: of("starts"),
    alone: of("alone"),
    bad: of("nan"),
    font: of("font"),
    mono: of("mono"),
  };
  if (made.ink !== "") cache.set(theme, made);
  return made;
}

// The page's own type grows on very large screens; canvases grow with it.
let seenWidth = -1, scale = 1;

/** How much larger type is than on a common screen. What draws in units of this many CSS pixels draws as if there were no other. */
export function text_scale(): number {
  if (seenWidth !== innerWidth) {
    seenWidth = innerWidth;
    scale = (parseFloat(getComputedStyle(document.documentElement).fontSize) || 13) / 13;
  }
  return scale;
}

export function heat(theme: Theme, t: number): string {
  return css_at(theme === "dark" ? kHeatDark : kHeat, t);
}

/** How much a module adds: quiet where nothing is off, then from pale to strong by its share of the error. */
export function adds_color(p: Paints, verdict: number, adds: number): string {
  switch (verdict) {
    case Verdict.equal:
      return p.equal;
    case Verdict.same_values:
    case Verdict.noise:
      return p.noise;
    case Verdict.unknown:
      return p.unknown;
    case Verdict.alone:
      return p.alone;
    case Verdict.follows:
    case Verdict.starts: {
      const share = Number.isNaN(adds) ? (verdict === Verdict.starts ? 1 : 0) : Math.min(1, Math.max(0, adds));
      return share < 0.02 ? p.carries : heat(p.theme, 0.3 + 0.7 * share);
    }
    default:
      return p.line;
  }
}

/** A relative error from 1e-8 to 1 on a logarithmic scale. */
export function error_color(p: Paints, error: number): string {
  if (Number.isNaN(error)) return p.unknown;
  if (error <= 0) return p.equal;
  return heat(p.theme, 0.08 + 0.92 * log_place(error, 1e-8, 1));
}

export function size_color(size: number, low: number, high: number): string {
  return css_at(kSequential, log_place(size, low, high));
}

/** The same in one quiet hue, beside which a NaN stands out. */
export function quiet_color(theme: Theme, size: number, low: number, high: number): string {
  return css_at(theme === "dark" ? kQuietDark : kQuiet, log_place(size, low, high));
}

export function num(value: Num | null | undefined): number {
  return value === null || value === undefined ? NaN : to_number(value);
}

/** The word and the class of a verdict of a whole answer. */
export function verdict_class(verdict: string): string {
  switch (verdict) {
    case "equal":
    case "healthy":
      return "good";
    case "noise":
      return "calm";
    case "differs":
    case "unhealthy":
      return "bad";
    default:
      return "open";
  }
}
