// The cells of a timeline as a matrix of rows (modules) and columns (stretches of steps), of which each place holds the worst cell.

import { num } from "./paint.ts";
import { type SideName, type Timeline, Verdict } from "../types.ts";

export interface Matrix {
  columns: number;
  /** Steps in a column. */
  bin: number;
  /** Per row and column a cell, or -1. */
  at: Int32Array;
}

export interface ModulePath {
  root: string;
  path: string;
}

function is_inside(inner: ModulePath, outer: ModulePath): boolean {
  return inner.root === outer.root && inner.path !== outer.path &&
    (outer.path === "" || inner.path.startsWith(outer.path + "."));
}

export interface Nested {
  /** In how many of the listed modules it lies. */
  level: number;
  /** The innermost of them, or -1. */
  parent: number;
  hasMore: boolean;
}

/** How modules lie in each other. A module comes before those in it. */
export function nest(modules: readonly ModulePath[]): Nested[] {
  const around: number[] = [];
  return modules.map((module, i) => {
    while (around.length > 0 && !is_inside(module, modules[around[around.length - 1]!]!)) around.pop();
    const level = around.length;
    const parent = around[level - 1] ?? -1;
    around.push(i);
    const next = modules[i + 1];
    return { level, parent, hasMore: next !== undefined && is_inside(next, module) };
  });
}

/** The place of a step in `steps`, each of which may stand for several; -1 where it is before all of them. */
export function step_place(timeline: Pick<Timeline, "steps" | "steps_together">, step: number): number {
  return (timeline.steps_together ?? 1) > 1
    ? timeline.steps.findLastIndex((each) => each <= step)
    : timeline.steps.indexOf(step);
}

/** What a column of `bin` places is called: its first step, and how many it stands for. */
export function step_text(timeline: Pick<Timeline, "steps" | "steps_together">, place: number, bin = 1): string {
  const together = (timeline.steps_together ?? 1) * bin;
  return `${timeline.steps[place] ?? ""}${together > 1 ? ` (${together} steps together)` : ""}`;
}

/** The side whose event a cell names. */
export function cell_side(timeline: Timeline, cell: number): SideName {
  const told = timeline.cells.side?.[cell];
  if (told !== undefined) return told === "b" || told === 1 ? "b" : "a";
  const module = timeline.modules[timeline.cells.module[cell]!]!;
  return timeline.cells.verdict[cell] === Verdict.alone && module.side === "b" ? "b" : "a";
}

/** Orders verdicts by how much they want to be seen: start, one side only, follow, unknown, noise, same, equal. */
const kWeight = [0, 1, 2, 3, 4, 6, 5];

export function is_worse(cells: Timeline["cells"], a: number, b: number): boolean {
  const [badA, badB] = [cells.bad[a]! > 0 ? 1 : 0, cells.bad[b]! > 0 ? 1 : 0];
  const [va, vb] = [kWeight[cells.verdict[a]!] ?? -1, kWeight[cells.verdict[b]!] ?? -1];
  if (va !== vb) return va > vb;
  if (badA !== badB) return badA > badB;
  const [ea, eb] = [num(cells.error[a]), num(cells.error[b])];
  if (ea !== eb && !(Number.isNaN(ea) && Number.isNaN(eb))) return ea > eb || Number.isNaN(eb);
  return num(cells.size[a]) > num(cells.size[b]);
}

/** `rows` says for each module its row, or -1 where it is not shown; `phase` is null for all of them. */
export function build_matrix(
  timeline: Timeline,
  rows: Int32Array,
  rowCount: number,
  phase: number | null,
  mostColumns: number,
): Matrix {
  const bin = Math.max(1, Math.ceil(timeline.steps.length / Math.max(1, mostColumns)));
  const columns = Math.ceil(timeline.steps.length / bin);
  const at = new Int32Array(rowCount * columns).fill(-1);
  const { cells } = timeline;
  for (let i = 0; i < cells.module.length; i++) {
    if (phase !== null && cells.phase[i] !== phase) continue;
    const row = rows[cells.module[i]!]!;
    if (row < 0) continue;
    const place = row * columns + Math.floor(cells.step[i]! / bin);
    const before = at[place]!;
    if (before < 0 || is_worse(cells, i, before)) at[place] = i;
  }
  return { columns, bin, at };
}
