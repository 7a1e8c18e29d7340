// The modules of a step in the order of their calls: forward above backward above parameters.

import { h } from "../lib/jsx.ts";
import { computed } from "../lib/signals.ts";
import { Canvas } from "../lib/virtual.tsx";
import { adds_color, num, paints, quiet_color, text_scale } from "../lib/paint.ts";
import { type ModulePath, nest, step_place, step_text } from "../lib/matrix.ts";
import { hide_tip, show_tip } from "../lib/tip.tsx";
import type { State } from "../state.ts";
import { kPhaseWords, type Place, type Timeline, Verdict } from "../types.ts";
import { AddsLegend, CellTip, open_cell } from "./cells.tsx";

interface StripCell {
  x0: number;
  x1: number;
  level: number;
  module: number;
  isLeaf: boolean;
}

/** Leaves side by side, and above each the modules that it lies in; nobody is deeper than `levels`. */
export function strip_layout(
  modules: readonly ModulePath[],
  most: number,
): { cells: StripCell[]; leaves: number; levels: number } {
  const nested = nest(modules);
  const levels = Math.min(most, nested.reduce((deepest, each) => Math.max(deepest, each.level), 0));
  const cells: StripCell[] = [];
  const open: StripCell[] = [];
  let leaves = 0;
  nested.forEach(({ level, hasMore }, module) => {
    while (open.length > 0 && open[open.length - 1]!.level >= level) open.pop()!.x1 = leaves;
    const cell = { x0: leaves, x1: leaves + 1, level, module, isLeaf: !hasMore };
    if (hasMore) open.push(cell);
    else leaves++;
    if (!hasMore || level < levels) cells.push(cell);
  });
  for (const cell of open) cell.x1 = leaves;
  return { cells, leaves, levels };
}

const kBand = 5;
const kLeaf = 22;

export function Strip(props: { state: State; place: Place | null }): Node {
  const { state, place } = props;
  const step = computed(() => {
    const timeline = state.timeline();
    if (!timeline) return -1;
    // Where nothing is wrong the last step tells the most.
    const wanted = state.route().step ?? place?.step ?? timeline.steps[timeline.steps.length - 1] ?? 0;
    const at = step_place(timeline, wanted);
    return at >= 0 ? at : 0;
  });
  const plan = computed(() => {
    const timeline = state.timeline();
    if (!timeline || timeline.modules.length === 0) return null;
    const byPhase = [0, 1, 2].map(() => new Int32Array(timeline.modules.length).fill(-1));
    const { cells } = timeline;
    for (let i = 0; i < cells.module.length; i++) {
      if (cells.step[i] === step()) byPhase[cells.phase[i]!]![cells.module[i]!] = i;
    }
    const phases = [0, 1, 2].filter((phase) => byPhase[phase]!.some((i) => i >= 0));
    return { ...strip_layout(timeline.modules, 6), byPhase, phases, timeline };
  });
  const rowHeight = (levels: number) => levels * (kBand + 1) + kLeaf;
  // Values that are in no module have no phases, and need no room for their names.
  const hasModules = () => state.session.peek()?.has_modules !== false;
  const label = () => hasModules() ? 76 : 0;
  let canvas: HTMLCanvasElement | null = null;
  const find = (event: PointerEvent | MouseEvent) => {
    const [x, y] = [event.offsetX / text_scale(), event.offsetY / text_scale()];
    const now = plan.peek();
    if (!now || !canvas) return null;
    const height = rowHeight(now.levels);
    const row = Math.floor(y / (height + 6));
    const phase = now.phases[row];
    if (phase === undefined || x < label()) return null;
    const leaf = (x - label()) / (canvas.clientWidth / text_scale() - label()) * now.leaves;
    const inside = y - row * (height + 6);
    const level = inside >= now.levels * (kBand + 1) ? Infinity : Math.floor(inside / (kBand + 1));
    let found: StripCell | null = null;
    for (const cell of now.cells) {
      if (leaf < cell.x0 || leaf >= cell.x1) continue;
      if (level === Infinity ? cell.isLeaf : cell.level === level && !cell.isLeaf) found = cell;
    }
    if (!found) return null;
    return {
      module: now.timeline.modules[found.module]!,
      cell: now.byPhase[phase]![found.module]!,
      phase,
      timeline: now.timeline,
    };
  };
  return (
    <section class="section strip-section">
      <h2>
        {() =>
          state.session()?.has_modules === false
            ? "Values in the order of their recording"
            : "Modules in the order of their calls"}
        <span class="muted">
          {() => {
            const now = plan();
            return now
              ? `step ${step_text(now.timeline, step())}, coloured by ${
                state.hasTwo() ? "what each one adds" : "the size of what each one gives, NaN and Inf in magenta"
              }`
              : "";
          }}
        </span>
        {() => state.hasTwo() ? <AddsLegend /> : null}
      </h2>
      <div
        class="strip"
        style={{
          height: () => {
            const now = plan();
            return `${(now ? now.phases.length * (rowHeight(now.levels) + 6) + 16 : 84) / 13}rem`;
          },
        }}
      >
        {() => state.timeline() === null ? <div class="bone strip-bone"></div> : null}
        <Canvas
          label="Modules in the order of their calls"
          follow={() => [plan(), state.theme()]}
          ref={(element) => canvas = element}
          draw={(g, width) => {
            const now = plan.peek();
            if (!now) return;
            draw_strip(g, width, now, paints(state.theme.peek()), label(), rowHeight(now.levels), place);
          }}
        />
      </div>
    </section>
  );

  function draw_strip(
    g: CanvasRenderingContext2D,
    width: number,
    now: NonNullable<ReturnType<typeof plan.peek>>,
    p: ReturnType<typeof paints>,
    label: number,
    height: number,
    flagged: Place | null,
  ): void {
    const unit = (width - label) / Math.max(1, now.leaves);
    const gap = unit > 4 ? 1 : 0;
    now.phases.forEach((phase, row) => {
      const top = row * (height + 6);
      g.fillStyle = p.muted;
      g.font = `11px ${p.font}`;
      g.textBaseline = "middle";
      if (hasModules()) g.fillText(kPhaseWords[phase]!, 0, top + height - kLeaf / 2);
      for (const cell of now.cells) {
        const i = now.byPhase[phase]![cell.module]!;
        const y = cell.isLeaf ? top + now.levels * (kBand + 1) : top + cell.level * (kBand + 1);
        // A leaf that lies less deep fills the bands above it, too.
        const y0 = cell.isLeaf ? Math.min(y, top + Math.min(cell.level, now.levels) * (kBand + 1)) : y;
        const tall = cell.isLeaf ? y + kLeaf - y0 : kBand;
        const x = label + cell.x0 * unit;
        const wide = Math.max(0.5, (cell.x1 - cell.x0) * unit - gap);
        g.fillStyle = i < 0 ? p.back : cell_color(now.timeline, i, p);
        if (i < 0) {
          g.strokeStyle = p.line;
          g.strokeRect(x + 0.5, y0 + 0.5, Math.max(0, wide - 1), tall - 1);
        } else g.fillRect(x, y0, wide, tall);
        const isFirst = flagged && cell.module === module_of(now.timeline, flagged) && i >= 0 &&
          now.timeline.cells.verdict[i] === Verdict.starts;
        if (isFirst) {
          g.strokeStyle = p.ink;
          g.lineWidth = 1.5;
          g.strokeRect(x - 0.5, y0 - 0.5, wide + 1, tall + 1);
          g.lineWidth = 1;
        }
        if (i >= 0 && now.timeline.cells.bad[i]! > 0) {
          g.fillStyle = p.bad;
          g.fillRect(x, y0, wide, Math.min(tall, 3));
        }
      }
    });
    // Names of the outermost modules that have room, below.
    g.fillStyle = p.muted;
    g.font = `10.5px ${p.mono}`;
    g.textBaseline = "top";
    let free = label;
    const outermost = now.cells.filter((cell) => cell.level === 1 && !cell.isLeaf).length;
    const named = now.levels > 1 && outermost < 2 ? 2 : 1;
    for (const cell of now.cells) {
      if (cell.level !== named && !(cell.isLeaf && cell.level < named)) continue;
      const module = now.timeline.modules[cell.module]!;
      const text = module.path.split(".").slice(-2).join(".") || module.root;
      const x = label + cell.x0 * unit;
      const room = (cell.x1 - cell.x0) * unit - 4;
      if (x < free || g.measureText(text).width > room) continue;
      g.fillText(text, x, now.phases.length * (height + 6));
      free = x + g.measureText(text).width + 6;
    }
    if (!canvas) return;
    canvas.onpointermove = (event) => {
      const hit = find(event);
      canvas!.classList.toggle("pointing", hit !== null && hit.cell >= 0);
      if (!hit) return hide_tip();
      show_tip(
        event.clientX,
        event.clientY,
        <CellTip
          timeline={hit.timeline}
          cell={hit.cell}
          module={hit.timeline.modules.indexOf(hit.module)}
          phase={hit.phase}
        />,
      );
    };
    canvas.onpointerleave = () => hide_tip();
    canvas.onclick = (event) => {
      const hit = find(event);
      if (hit && hit.cell >= 0) open_cell(state, hit.timeline, hit.cell);
    };
  }
}

function module_of(timeline: Timeline, place: Place): number {
  return timeline.modules.findIndex((module) =>
    module.path === place.module && (place.root === "" || module.root === place.root)
  );
}

function cell_color(timeline: Timeline, i: number, p: ReturnType<typeof paints>): string {
  const { cells } = timeline;
  const verdict = cells.verdict[i]!;
  if (verdict === Verdict.none) return cells.bad[i]! > 0 ? p.bad : quiet_color(p.theme, num(cells.size[i]), 1e-4, 1e4);
  return adds_color(p, verdict, num(cells.adds[i]));
}
