// What the strip and the timeline have in common: the legend, what is told of a cell, and where a click leads.

import { h } from "../lib/jsx.ts";
import { num } from "../lib/paint.ts";
import { cell_side, step_text } from "../lib/matrix.ts";
import { TipRows } from "../lib/tip.tsx";
import { count_text, number_text } from "../lib/text.ts";
import type { State } from "../state.ts";
import { kPhaseWords, type Timeline, Verdict, verdict_word } from "../types.ts";
import { LegendItem } from "../parts.tsx";

export function AddsLegend(): Node {
  return (
    <span class="legend inline">
      <LegendItem swatch="equal" text="bit-equal" />
      <LegendItem swatch="noise" text="noise" />
      <LegendItem swatch="carries" text="passes it on" />
      <LegendItem swatch="ramp-heat" text="adds its share, up to all" />
      <LegendItem swatch="alone" text="one side only" />
      <LegendItem swatch="unknown" text="unknown" />
    </span>
  );
}

export function CellTip(props: { timeline: Timeline; cell: number; module: number; phase: number }): Node {
  const { timeline, cell } = props;
  const module = timeline.modules[props.module]!;
  const { cells } = timeline;
  const title = <span class="mono">{module.path || module.root}</span>;
  if (cell < 0) return <TipRows title={title} rows={[["", `nothing recorded (${kPhaseWords[props.phase] ?? ""})`]]} />;
  const adds = num(cells.adds[cell]);
  return (
    <TipRows
      title={title}
      rows={[
        ["class", module.class],
        ["step", step_text(timeline, cells.step[cell]!)],
        ["phase", kPhaseWords[cells.phase[cell]!] ?? ""],
        ["verdict", verdict_word(cells.verdict[cell]!)],
        ["error", Number.isNaN(num(cells.error[cell])) ? "" : number_text(num(cells.error[cell]))],
        [
          "adds",
          Number.isNaN(adds) || cells.verdict[cell]! < Verdict.follows ? "" : `${Math.round(adds * 100)} % of it`,
        ],
        ["largest", Number.isNaN(num(cells.size[cell])) ? "" : number_text(num(cells.size[cell]))],
        ["NaN, Inf", cells.bad[cell]! > 0 ? <span class="bad-text">{count_text(cells.bad[cell]!)}</span> : ""],
        ["renamed", module.renamed ?? ""],
      ]}
    />
  );
}

export function open_cell(state: State, timeline: Timeline, cell: number): void {
  const { cells } = timeline;
  const event = cells.event[cell];
  if (event === null || event === undefined) return;
  state.go({
    view: "tensor",
    side: cell_side(timeline, cell),
    event,
    step: timeline.steps[cells.step[cell]!] ?? null,
    name: null,
    rank: null,
    call: null,
  });
}
