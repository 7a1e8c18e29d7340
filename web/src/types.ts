// The answers of the server, as docs/viewer.md has them.

/** A number, or the text of one: of what JSON lacks (nan, inf, -inf), and of integers that may be large. */
export type Num = number | string;

export function to_number(value: Num | null | undefined): number {
  if (typeof value === "number") return value;
  if (value === null || value === undefined || value === "") return NaN;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value);
}

export type SideName = "a" | "b";
export type Io = string;

/** Of an answer that takes a while: `working` means ask again. */
export type Working = { state: "working"; done?: number };

export interface RunEntry {
  name: string;
  state: string;
  state_text: string;
  started: number;
  steps: number;
  events: number;
  size_bytes: number;
  command: string;
}
export interface Runs {
  runs: RunEntry[];
}

export interface Writer {
  folder: string;
  rank: number | null;
  state: string;
  events: number;
  exception: string | null;
}
export interface Side {
  path: string;
  label: string;
  kind: "run" | "file";
  state: string;
  state_text: string;
  events: number;
  steps: number[];
  ranks: number[];
  problems: string[];
  writers: Writer[];
  command: string;
}
export interface Session {
  version: string;
  kind: "runs" | "files" | "list";
  title: string;
  sides: Side[];
  revision: number;
  /** False while the recordings are still being read: what follows, and the steps, may be more later. */
  is_ready?: boolean;
  has_modules: boolean;
  has_changes: boolean;
  has_calls: boolean;
}

export type AnswerVerdict = "equal" | "noise" | "differs" | "unknown" | "nothing" | "healthy" | "unhealthy";

export interface PlaceRef {
  name: string;
  step: number;
  call: number;
  rank: number;
  event_a: number | null;
  event_b: number | null;
}
/** What two runs keep of the code of a module. */
export interface PlaceCode {
  class_a: string | null;
  class_b: string | null;
  site_a: string | null;
  site_b: string | null;
  source: "unknown" | "same" | "differs" | "another";
  why_unknown: string | null;
  lines: string[];
  removed: number;
  added: number;
  left_out: number;
  elsewhere: string[];
  attributes: { name: string; a: string | null; b: string | null }[];
}
export interface Place extends PlaceRef {
  title: string;
  module: string;
  class: string;
  root: string;
  tensor: string;
  phase: string;
  io: Io;
  rows: [string, string][];
  site: string | null;
  last_agreeing: PlaceRef | null;
  commands: string[];
  rel_l2: Num | null;
  tensors: number;
  code?: PlaceCode;
}
export interface AnswerCounts {
  compared: number;
  bit_equal: number;
  same_values: number;
  noise: number;
  unknown: number;
  consequences: number;
  idle: number;
  origins: number;
}
export interface Answer {
  state: "ready";
  of: "diff" | "check" | "files";
  verdict: AnswerVerdict;
  headline: string;
  coverage: string;
  counts: AnswerCounts;
  places: Place[];
  origin_count: number;
  notes: string[];
  settings: string[];
  renamed: [string, string][];
  unmatched: { side: SideName; module: string; class: string; name: string | null; events: number }[];
  python: string;
  command: string;
}

/** Codes of `verdict` in the timeline, names and events; -1 without a second side. */
export const Verdict = {
  none: -1,
  equal: 0,
  same_values: 1,
  noise: 2,
  unknown: 3,
  follows: 4,
  starts: 5,
  alone: 6,
} as const;
export const kVerdictWords = ["equal", "same values", "noise", "unknown", "follows", "starts", "one side only"];
export function verdict_word(code: number): string {
  return kVerdictWords[code] ?? "";
}

export const Phase = { forward: 0, backward: 1, parameters: 2 } as const;
export const kPhaseWords = ["forward", "backward", "parameters"];

export interface TimelineModule {
  root: string;
  path: string;
  class: string;
  depth: number;
  renamed: string | null;
  side: "both" | SideName;
}
export interface Timeline {
  state: "ready";
  /** False as long as the two sides are not compared. */
  judged?: boolean;
  steps: number[];
  /** How many steps each of `steps` stands for. */
  steps_together?: number;
  modules: TimelineModule[];
  cells: {
    module: number[];
    step: number[];
    phase: number[];
    verdict: number[];
    error: (Num | null)[];
    adds: (Num | null)[];
    size: (Num | null)[];
    bad: number[];
    side?: (SideName | number)[];
    event: (number | null)[];
  };
  left_out: number;
}

export interface ModuleNode {
  id: number;
  parent: number;
  name: string;
  root: string;
  path: string;
  class: string;
  calls: number;
  duration_s: number | null;
  own_s: number | null;
  inputs: string[];
  outputs: string[];
  nonfinite: "none" | "input" | "gradient" | "output";
  diff: "unknown" | "equal" | "bits" | "later" | "differs" | "alone";
  error: Num | null;
  adds: Num | null;
  renamed: string | null;
  fold: string | null;
  side: "both" | SideName;
}
export interface Modules {
  state: "ready";
  judged?: boolean;
  nodes: ModuleNode[];
}

/** Columns: the same place in each belongs to one name. */
export interface Names {
  state: "ready";
  judged?: boolean;
  name: string[];
  module: string[];
  io: Io[];
  phase: (number | string)[];
  kind: ("tensor" | "number" | "text" | "change")[];
  dtype: string[];
  shape: (string | number[])[];
  events: number[];
  bad: number[];
  verdict: number[];
  error: (Num | null)[];
  first: (number | null)[];
  last: (number | null)[];
  first_b: (number | null)[];
}

export interface Stats {
  count: number;
  /** Of integers these two are texts. */
  min: Num;
  max: Num;
  mean: Num;
  std: Num;
  l2: Num;
  abs_max: Num;
  nan: number;
  pos_inf: number;
  neg_inf: number;
  zero: number;
  subnormal: number;
}
export interface TensorInfo {
  dtype: string;
  shape: number[];
  stats: Stats;
  has_bytes: boolean;
  fingerprint: string | null;
  device: string | null;
  shard: unknown;
}
export interface EventInfo {
  id: number;
  step: number;
  call: number;
  rank: number;
  kind: string;
  io: Io;
  phase: string;
  site: string | null;
  module: string;
  class: string;
  time: number;
  value?: unknown;
  tensor?: TensorInfo;
  partner: number | null;
  verdict: number;
  error: Num | null;
}
export interface Events {
  total: number;
  events: EventInfo[];
}
export interface EventDetail extends EventInfo {
  name: string;
  previous: number | null;
  next: number | null;
  calls: { id: number; call: number; rank: number }[];
  ranks: { id: number; call: number; rank: number }[];
  inputs: (number | { id: number; name: string })[];
  same_module: { id: number; name: string }[];
  python: string;
  command: string;
}

export type Point = [step: number, value: Num];
export interface Series {
  series: { a: Point[]; b?: Point[] }[];
}

export interface TileHeader {
  rows: [number, number];
  cols: [number, number];
  of_rows: number;
  of_cols: number;
  height: number;
  width: number;
  exact: boolean;
  planes: string[];
  axes: [number, number];
  shape: number[];
  slice: string;
  dtype: string;
  scale: {
    min: Num;
    max: Num;
    abs: Num;
    p999: Num;
    nan: number;
    pos_inf: number;
    neg_inf: number;
    zero: number;
  };
}
export interface Elements {
  rows: [number, number];
  cols: [number, number];
  text: string[][];
}
export interface ElementValue {
  text: string;
  bits: string;
  dtype: string;
}
export interface ElementAnswer {
  index: number[];
  a: ElementValue;
  b: ElementValue | null;
  difference: string | null;
  relative: Num | null;
  ulp: number | null;
}
export interface Found {
  index: number[] | null;
  count: number;
  /** Of an exported page: not of all elements, but of those in the slices it holds, or of cells of several elements. */
  within?: "slices" | "cells";
}
export interface Tolerance {
  mismatches: number;
  count: number;
  max_abs: Num;
  max_rel: Num;
  relative_l2: Num;
  max_ulps: Num | null;
  cosine: Num;
  mean_abs: Num;
}
export interface Profile {
  size: number;
  bin: number;
  min: Num[];
  max: Num[];
  mean: Num[];
  l2: Num[];
  bad: number[];
  differing: number[] | null;
}
export interface Histogram {
  edges: number[];
  counts: number[];
  nan: number;
  pos_inf: number;
  neg_inf: number;
  zero: number;
  subnormal: number;
}
export interface HistogramStep {
  step: number;
  event: number;
  counts: number[];
  nan: number;
  pos_inf: number;
  neg_inf: number;
  zero: number;
  subnormal: number;
  b?: Omit<HistogramStep, "b" | "step" | "event"> | null;
}
export interface Histograms {
  edges: number[];
  steps: HistogramStep[];
  left_out: number;
}

export interface Variable {
  scope: string;
  name: string;
  file: string;
  changes: number;
  lines: number[];
}
export interface Variables {
  variables: Variable[];
}
export interface Change {
  id: number;
  name: string;
  line: number;
  file: string;
  scope: string;
  call: number | string;
  time: number;
  old: unknown;
  value?: unknown;
  text?: string;
  tensor?: TensorInfo;
  step: number | null;
}
export interface Changes {
  total: number;
  changes: Change[];
}
export interface SourceText {
  file: string;
  first: number;
  lines: string[];
}

export interface CallEntry {
  depth: number;
  name: string;
  class: string;
  start: number;
  duration: number | null;
  event: number | null;
  exception: string | null;
  bad: number | boolean;
}
export interface Calls {
  calls: CallEntry[];
  left_out: number;
}

export interface Live {
  revision: number;
  sides: { state: string; state_text: string; events: number; steps: number; last_step: number | null }[];
  bad: { side: SideName; name: string; step: number; event: number }[];
}
