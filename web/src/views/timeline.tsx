// Steps against modules: where something starts, how far it spreads, and how large it becomes.

import { h } from "../lib/jsx.ts";
import { computed, effect, onEnd, signal, untrack } from "../lib/signals.ts";
import { adds_color, error_color, num, type Paints, paints, size_color, text_scale } from "../lib/paint.ts";
import { build_matrix, nest, step_place, step_text } from "../lib/matrix.ts";
import { hide_tip, show_tip } from "../lib/tip.tsx";
import { ink_of } from "../lib/colors.ts";
import { count_text, number_text } from "../lib/text.ts";
import { module_key, type State } from "../state.ts";
import { type Timeline, Verdict, verdict_word } from "../types.ts";
import { Choice, Empty, Failure, LegendItem, Skeleton } from "../parts.tsx";
import { AddsLegend, CellTip, open_cell } from "./cells.tsx";

type ColorBy = "adds" | "error" | "bad" | "size";
type PhaseChoice = "all" | "0" | "1" | "2";

const kHead = 26;
const kRow = 18;
const kTextWidth = 52;

export function TimelineView(state: State): Node {
  const by = computed<ColorBy>(() => {
    const chosen = state.route().params["by"];
    if (chosen === "adds" || chosen === "error" || chosen === "bad" || chosen === "size") return chosen;
    return state.hasTwo() ? "adds" : "size";
  });
  const phase = computed<PhaseChoice>(() => (state.route().params["phase"] ?? "all") as PhaseChoice);
  const zoom = computed(() => Math.max(1, Number(state.route().params["zoom"] ?? 1) || 1));
  const size = signal({ width: 0, height: 0 }, (a, b) => a.width === b.width && a.height === b.height);
  const scrolled = signal(0);
  const hover = signal<{ row: number; column: number } | null>(
    null,
    (a, b) => a?.row === b?.row && a?.column === b?.column,
  );
  const cursor = signal<{ row: number; column: number } | null>(null);

  /** Modules that are not inside a folded one, in their order. */
  const rows = computed(() => {
    const timeline = state.timeline();
    const folded = state.collapsed();
    const shown: number[] = [];
    const place = new Int32Array(timeline?.modules.length ?? 0).fill(-1);
    const nested = nest(timeline?.modules ?? []);
    let under = Infinity;
    timeline?.modules.forEach((module, i) => {
      const { level } = nested[i]!;
      if (level > under) return;
      under = folded.has(module_key(module.root, module.path)) ? level : Infinity;
      place[i] = shown.length;
      shown.push(i);
    });
    return { shown, place, nested };
  });
  const gutter = computed(() => Math.round(Math.min(300, Math.max(150, size().width * 0.22))));
  const matrix = computed(() => {
    const timeline = state.timeline();
    if (!timeline || size().width === 0) return null;
    const room = Math.max(50, (size().width - gutter() - 12) * zoom());
    return build_matrix(
      timeline,
      rows().place,
      rows().shown.length,
      phase() === "all" ? null : Number(phase()),
      Math.floor(room / 2),
    );
  });
  const columnWidth = computed(() => {
    const now = matrix();
    if (!now) return 10;
    // Few steps get wide columns, but not so wide that they are no longer seen as columns.
    const widest = Math.max(44, Math.min(160, size().width / 8));
    return Math.min(widest * zoom(), Math.max(2, (size().width - gutter() - 12) * zoom() / now.columns));
  });
  const sizes = computed(() => {
    let [low, high] = [Infinity, 0];
    for (const value of state.timeline()?.cells.size ?? []) {
      const size = num(value);
      if (size > 0 && size < Infinity) {
        low = Math.min(low, size);
        high = Math.max(high, size);
      }
    }
    return low < high ? { low: Math.max(low, high * 1e-12), high } : { low: 1e-3, high: 1 };
  });
  /** The first place that starts a difference, else the first NaN. */
  const first = computed(() => {
    const timeline = state.timeline();
    if (!timeline) return -1;
    const place = state.answer()?.places[0];
    const at = place ? step_place(timeline, place.step) : -1;
    const { cells } = timeline;
    let best = -1;
    for (let i = 0; i < cells.module.length; i++) {
      const isFound = state.hasTwo() ? cells.verdict[i] === Verdict.starts : cells.bad[i]! > 0;
      if (!isFound) continue;
      const module = timeline.modules[cells.module[i]!]!;
      if (place && module.path === place.module && cells.step[i] === at) {
        return i;
      }
      if (best < 0 || cells.step[i]! < cells.step[best]!) best = i;
    }
    return best;
  });

  const canvas = <canvas tabindex="0" role="img" aria-label="Steps against modules"></canvas> as HTMLCanvasElement;
  // What follows the pointer lies on a canvas of its own, so that the cells need not be drawn again.
  const over = <canvas class="matrix-over" aria-hidden="true"></canvas> as HTMLCanvasElement;
  const space = <div class="matrix-space"></div> as HTMLElement;
  const scroller = (
    <div class="matrix" onScroll={() => scrolled.update((n) => n + 1)}>
      <div class="matrix-window">{canvas}{over}</div>
      {space}
    </div>
  ) as HTMLElement;
  const observer = new ResizeObserver(() =>
    size.set({ width: scroller.clientWidth / text_scale(), height: scroller.clientHeight / text_scale() })
  );
  observer.observe(scroller);
  onEnd(() => observer.disconnect());

  effect(() => {
    const now = matrix();
    size();
    space.style.setProperty("height", `${text_scale() * (kHead + rows().shown.length * kRow + 8)}px`);
    space.style.setProperty(
      "width",
      `${text_scale() * (now && zoom() > 1 ? gutter() + now.columns * columnWidth() + 12 : 1)}px`,
    );
  });
  effect(() => {
    size();
    matrix();
    scrolled();
    by();
    first();
    state.theme();
    state.route();
    const frame = requestAnimationFrame(() => draw());
    return () => cancelAnimationFrame(frame);
  });
  effect(() => {
    size();
    matrix();
    hover();
    cursor();
    scrolled();
    state.theme();
    const frame = requestAnimationFrame(() => draw_over());
    return () => cancelAnimationFrame(frame);
  });
  // A module that was chosen is brought into view; else, once, the first bad place.
  let isPlaced = false;
  effect(() => {
    const path = state.route().params["module"];
    const timeline = state.timeline();
    if (!timeline || size().height === 0) return;
    const module = path
      ? timeline.modules.findIndex((each) => each.path === path)
      : untrack(() => timeline.cells.module[first()] ?? -1);
    if (!path && isPlaced) return;
    isPlaced = true;
    const row = untrack(rows).place[module] ?? -1;
    if (row >= 0) untrack(() => show_row(row));
  });

  const pixels = () => (devicePixelRatio || 1) * text_scale();

  function show_row(row: number): void {
    const top = row * kRow;
    const height = scroller.clientHeight / text_scale() - kHead;
    const [, dy] = scroll();
    if (top < dy || top + kRow > dy + height) scroller.scrollTop = text_scale() * (top - height / 2);
  }

  function color(timeline: Timeline, i: number, p: Paints): string {
    const { cells } = timeline;
    switch (by.peek()) {
      case "adds":
        return adds_color(p, cells.verdict[i]!, num(cells.adds[i]));
      case "error":
        return error_color(p, num(cells.error[i]));
      case "bad":
        return cells.bad[i]! > 0 ? p.bad : p.equal;
      case "size":
        // Where nothing is finite there is no size.
        if (cells.bad[i]! > 0 && !(num(cells.size[i]) > 0)) return p.bad;
        return size_color(num(cells.size[i]), sizes.peek().low, sizes.peek().high);
    }
  }

  function scroll(): [x: number, y: number] {
    return [scroller.scrollLeft / text_scale(), scroller.scrollTop / text_scale()];
  }

  /** The context of a canvas of the window's size, cleared, in CSS pixels times `text_scale`, as all lengths here are. */
  function begin(of: HTMLCanvasElement): CanvasRenderingContext2D | null {
    const { width, height } = size.peek();
    const ratio = pixels();
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (of.width !== w || of.height !== h) {
      of.width = w;
      of.height = h;
      of.style.setProperty("width", `${width * text_scale()}px`);
      of.style.setProperty("height", `${height * text_scale()}px`);
    }
    const g = of.getContext("2d");
    g?.setTransform(ratio, 0, 0, ratio, 0, 0);
    g?.clearRect(0, 0, width, height);
    return g;
  }

  function draw_over(): void {
    const g = begin(over);
    const { width, height } = size.peek();
    if (!g || !matrix.peek()) return;
    const p = paints(state.theme.peek());
    const [left, unit] = [gutter.peek(), columnWidth.peek()];
    const [dx, dy] = scroll();
    g.beginPath();
    g.rect(0, kHead, width, height - kHead);
    g.save();
    g.clip();
    for (const at of [hover.peek(), cursor.peek()]) {
      if (!at) continue;
      const y = kHead + at.row * kRow - dy;
      const x = left + at.column * unit - dx;
      g.fillStyle = p.accent;
      g.globalAlpha = 0.14;
      g.fillRect(0, y, left - 4, kRow);
      g.globalAlpha = 1;
      g.strokeStyle = p.accent;
      g.lineWidth = 2;
      if (x >= left - 1) g.strokeRect(x - 1, y, unit + 1, kRow);
    }
    g.restore();
  }

  function draw(): void {
    const timeline = state.timeline.peek();
    const now = matrix.peek();
    const { width, height } = size.peek();
    const g = begin(canvas);
    if (!g || !timeline || !now) return;
    const p = paints(state.theme.peek());
    g.fillStyle = p.panel;
    g.fillRect(0, 0, width, height);
    const left = gutter.peek();
    const unit = columnWidth.peek();
    const [dx, dy] = scroll();
    const { shown, place, nested } = rows.peek();
    const firstRow = Math.floor(dy / kRow);
    const lastRow = Math.min(shown.length, Math.ceil((dy + height - kHead) / kRow));
    const firstColumn = Math.floor(dx / unit);
    const lastColumn = Math.min(now.columns, Math.ceil((dx + width - left) / unit));
    const gap = unit >= 5 ? 1 : 0;
    // Edges between pixels would be seen as stripes.
    const snap = (x: number) => Math.round(x * pixels()) / pixels();
    const chosen = state.route.peek();
    const chosenStep = chosen.step === null ? -1 : Math.floor(step_place(timeline, chosen.step) / now.bin);
    g.save();
    g.beginPath();
    g.rect(left, kHead, width - left, height - kHead);
    g.clip();
    g.font = `10.5px ${p.font}`;
    g.textAlign = "center";
    g.textBaseline = "middle";
    for (let row = firstRow; row < lastRow; row++) {
      const y = kHead + row * kRow - dy;
      for (let column = firstColumn; column < lastColumn; column++) {
        const i = now.at[row * now.columns + column]!;
        if (i < 0) continue;
        const x = snap(left + column * unit - dx);
        const wide = snap(left + (column + 1) * unit - dx) - x - gap;
        g.fillStyle = color(timeline, i, p);
        g.fillRect(x, y + 1, wide, kRow - 2);
        if (timeline.cells.bad[i]! > 0 && by.peek() !== "bad") {
          g.fillStyle = p.bad;
          g.fillRect(x, y + kRow - 4, wide, 3);
        }
        const text = unit >= kTextWidth ? cell_text(timeline, i, by.peek()) : "";
        if (text !== "") {
          g.fillStyle = ink_of(color(timeline, i, p));
          g.globalAlpha = 0.85;
          g.fillText(text, x + (unit - gap) / 2, y + kRow / 2 + 0.5);
          g.globalAlpha = 1;
        }
      }
    }
    g.textAlign = "left";
    // Each place that starts a difference has a frame, narrow ones beside each other have one in common; the first has a flag.
    g.strokeStyle = p.ink;
    g.lineWidth = 1.5;
    const most = unit < 12 ? lastColumn : 1;
    for (let row = firstRow; row < lastRow; row++) {
      for (let column = firstColumn; column < lastColumn; column++) {
        let count = 0;
        while (count < most && column + count < lastColumn) {
          const i = now.at[row * now.columns + column + count]!;
          if (i < 0 || timeline.cells.verdict[i] !== Verdict.starts) break;
          count++;
        }
        if (count === 0) continue;
        const wide = Math.max(3, count * unit - gap);
        g.strokeRect(left + column * unit - dx - 0.25, kHead + row * kRow - dy + 0.75, wide, kRow - 1.5);
        column += count - 1;
      }
    }
    if (chosenStep >= 0) {
      g.fillStyle = p.accent;
      g.globalAlpha = 0.1;
      g.fillRect(left + chosenStep * unit - dx, kHead, unit, height);
      g.globalAlpha = 1;
    }
    const flagged = first.peek();
    if (flagged >= 0) {
      const row = place[timeline.cells.module[flagged]!]!;
      const column = Math.floor(timeline.cells.step[flagged]! / now.bin);
      if (row >= 0) {
        const x = left + column * unit - dx + (unit - gap) / 2;
        const y = Math.max(kHead + 7, kHead + row * kRow - dy);
        g.fillStyle = state.hasTwo.peek() ? p.starts : p.ink;
        g.strokeStyle = p.panel;
        g.lineWidth = 1.5;
        g.beginPath();
        g.moveTo(x, y + 2);
        g.lineTo(x - 5, y - 7);
        g.lineTo(x + 5, y - 7);
        g.closePath();
        g.stroke();
        g.fill();
      }
    }
    g.restore();
    // Names of the modules.
    g.save();
    g.beginPath();
    g.rect(0, kHead, left - 8, height - kHead);
    g.clip();
    g.textBaseline = "middle";
    for (let row = firstRow; row < lastRow; row++) {
      const module = timeline.modules[shown[row]!]!;
      const y = kHead + row * kRow - dy + kRow / 2;
      const isOn = chosen.params["module"] === module.path && module.path !== "";
      if (isOn) {
        g.fillStyle = p.accent;
        g.globalAlpha = 0.12;
        g.fillRect(0, y - kRow / 2, left, kRow);
        g.globalAlpha = 1;
      }
      const { level, parent, hasMore } = nested[shown[row]!]!;
      const x = 12 + level * 10;
      if (hasMore) {
        g.fillStyle = p.faint;
        g.font = `11px ${p.font}`;
        g.fillText(state.collapsed.peek().has(module_key(module.root, module.path)) ? "▸" : "▾", x - 10, y);
      }
      g.font = `12px ${p.mono}`;
      g.fillStyle = module.side === "both" ? p.ink : p.alone;
      const inside = timeline.modules[parent]?.path ?? "";
      const name = ((inside === "" ? module.path : module.path.slice(inside.length + 1)) || module.root) +
        (module.side === "a" ? " −" : module.side === "b" ? " +" : "");
      g.fillText(name, x + 4, y);
      const used = g.measureText(name).width;
      g.font = `11px ${p.font}`;
      g.fillStyle = p.faint;
      g.fillText(module.renamed ? `⇄ ${module.renamed}` : module.class, x + 12 + used, y);
    }
    g.restore();
    // Steps above.
    g.fillStyle = p.panel;
    g.fillRect(0, 0, width, kHead);
    g.strokeStyle = p.line;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(0, kHead - 0.5);
    g.lineTo(width, kHead - 0.5);
    g.stroke();
    g.fillStyle = p.muted;
    g.font = `11px ${p.font}`;
    const together = (timeline.steps_together ?? 1) * now.bin;
    g.fillText(together > 1 ? `step, ${together} to a column` : "step", 12, kHead / 2);
    g.textAlign = "center";
    const room = g.measureText(String(timeline.steps[timeline.steps.length - 1] ?? "")).width + 16;
    const every = nice_step(Math.ceil(room / unit));
    for (let column = Math.floor(firstColumn / every) * every; column < lastColumn; column += every) {
      const x = left + column * unit - dx + unit / 2;
      if (x < left) continue;
      g.fillStyle = column === chosenStep ? p.accent : p.muted;
      g.fillText(String(timeline.steps[column * now.bin] ?? ""), x, kHead / 2);
    }
    g.textAlign = "left";
  }

  function hit(event: MouseEvent): { row: number; column: number; cell: number } | null {
    const now = matrix.peek();
    if (!now) return null;
    const box = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / text_scale(), (event.clientY - box.top) / text_scale()];
    const [dx, dy] = scroll();
    const row = y < kHead ? -1 : Math.floor((y - kHead + dy) / kRow);
    const column = x < gutter.peek() ? -1 : Math.floor((x - gutter.peek() + dx) / columnWidth.peek());
    if (row >= rows.peek().shown.length || column >= now.columns) return null;
    return { row, column, cell: row >= 0 && column >= 0 ? now.at[row * now.columns + column]! : -1 };
  }

  canvas.addEventListener("pointermove", (event) => {
    const at = hit(event);
    hover.set(at && at.row >= 0 && at.column >= 0 ? { row: at.row, column: at.column } : null);
    canvas.classList.toggle("pointing", at !== null && (at.cell >= 0 || at.column < 0));
    const timeline = state.timeline.peek();
    if (!at || at.row < 0 || at.column < 0 || !timeline) return hide_tip();
    const chosen = phase.peek();
    show_tip(
      event.clientX,
      event.clientY,
      <CellTip
        timeline={timeline}
        cell={at.cell}
        module={rows.peek().shown[at.row]!}
        phase={chosen === "all" ? 0 : Number(chosen)}
      />,
    );
  });
  canvas.addEventListener("pointerleave", () => {
    hover.set(null);
    hide_tip();
  });
  canvas.addEventListener("click", (event) => {
    const at = hit(event);
    const timeline = state.timeline.peek();
    if (!at || !timeline) return;
    if (at.cell >= 0) return open_cell(state, timeline, at.cell);
    const module = at.row >= 0 ? timeline.modules[rows.peek().shown[at.row]!]! : null;
    if (module && at.column < 0) state.toggle([module_key(module.root, module.path)]);
    else if (at.row < 0 && at.column >= 0) {
      state.go({ step: timeline.steps[at.column * matrix.peek()!.bin] ?? null }, "replace");
    }
  });
  scroller.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    set_zoom(zoom.peek() * (event.deltaY < 0 ? 1.25 : 0.8));
  }, { passive: false });
  function set_zoom(to: number): void {
    const next = Math.min(200, Math.max(1, to));
    state.go({ params: { zoom: next <= 1.01 ? null : next.toFixed(2) } }, "replace");
  }

  const move = (rowBy: number, columnBy: number) => {
    const now = matrix.peek();
    if (!now) return;
    const at = cursor.peek() ?? start_cursor();
    const next = {
      row: Math.max(0, Math.min(rows.peek().shown.length - 1, at.row + rowBy)),
      column: Math.max(0, Math.min(now.columns - 1, at.column + columnBy)),
    };
    cursor.set(next);
    show_row(next.row);
    tell(next);
  };
  /** What is under the cursor, in the status line. */
  const tell = (at: { row: number; column: number }) => {
    const [timeline, now] = [state.timeline.peek(), matrix.peek()];
    if (!timeline || !now) return;
    const module = timeline.modules[rows.peek().shown[at.row]!]!;
    const cell = now.at[at.row * now.columns + at.column]!;
    const { cells } = timeline;
    const error = cell < 0 ? NaN : num(cells.error[cell]);
    state.status.set({
      hint: [
        module.path || module.root,
        `step ${step_text(timeline, at.column * now.bin, now.bin)}`,
        cell < 0 ? "nothing recorded" : verdict_word(cells.verdict[cell]!),
        error > 0 ? `error ${number_text(error)}` : "",
        cell >= 0 && cells.bad[cell]! > 0 ? `${cells.bad[cell]} NaN or Inf` : "",
      ].filter(Boolean).join(" · "),
    });
  };
  const start_cursor = () => {
    const timeline = state.timeline.peek();
    const at = first.peek();
    if (!timeline || at < 0) return { row: 0, column: 0 };
    return {
      row: Math.max(0, rows.peek().place[timeline.cells.module[at]!]!),
      column: Math.floor(timeline.cells.step[at]! / (matrix.peek()?.bin ?? 1)),
    };
  };
  state.keys.view({
    "ArrowUp": ["the module above", () => move(-1, 0)],
    "ArrowDown": ["the module below", () => move(1, 0)],
    "ArrowLeft": ["the step before", () => move(0, -1)],
    "ArrowRight": ["the step after", () => move(0, 1)],
    "Enter": ["open the tensor", () => {
      const [at, now, timeline] = [cursor.peek(), matrix.peek(), state.timeline.peek()];
      if (!at || !now || !timeline) return;
      const cell = now.at[at.row * now.columns + at.column]!;
      if (cell >= 0) open_cell(state, timeline, cell);
    }],
    "f": ["the first bad place", () => {
      cursor.set(start_cursor());
      show_row(cursor.peek()!.row);
    }],
    "+": ["zoom in", () => set_zoom(zoom.peek() * 1.5)],
    "-": ["zoom out", () => set_zoom(zoom.peek() / 1.5)],
    "0": ["all steps", () => set_zoom(1)],
  });
  state.actions([{ title: "The first bad place of the timeline", key: "F", run: () => cursor.set(start_cursor()) }]);
  state.status.set({
    hint:
      "Click opens the tensor; a click on a module folds it; Ctrl and the wheel zoom; f goes to the first bad place",
  });

  return (
    <div class="column">
      <div class="toolbar">
        <Choice<PhaseChoice>
          label="Phase"
          options={[["all", "All phases"], ["0", "Forward"], ["1", "Backward"], ["2", "Parameters"]]}
          value={phase}
          onChoose={(value) => state.go({ params: { phase: value === "all" ? null : value } }, "replace")}
        />
        {() => (
          <Choice<ColorBy>
            label="Colour by"
            options={state.hasTwo()
              ? [["adds", "What it adds"], ["error", "Error"], ["bad", "NaN"], ["size", "Value size"]]
              : [["size", "Value size"], ["bad", "NaN"]]}
            value={by}
            onChoose={(value) => state.go({ params: { by: value } }, "replace")}
          />
        )}
        <span class="grow"></span>
        {() => <Legend by={by()} low={sizes().low} high={sizes().high} />}
      </div>
      {() => {
        const error = state.timeline.error();
        const timeline = state.timeline();
        if (error !== null && timeline === null) return <Failure title="There is no timeline" text={error} />;
        if (timeline === null) return <Skeleton rows={14} progress={state.timeline.progress} />;
        if (timeline.modules.length === 0) {
          return <Empty title="No modules were recorded">The table has every tensor by its name.</Empty>;
        }
        return null;
      }}
      {() =>
        state.timeline() !== null && (state.timeline()?.left_out ?? 0) > 0
          ? (
            <p class="muted pad">
              {state.timeline()!.left_out.toLocaleString("en-US")} cells are left out: there are too many to show.
            </p>
          )
          : null}
      {scroller}
    </div>
  );
}

/** What stands in a cell that is wide enough. */
function cell_text(timeline: Timeline, i: number, by: ColorBy): string {
  const { cells } = timeline;
  const adds = num(cells.adds[i]), error = num(cells.error[i]), size = num(cells.size[i]);
  switch (by) {
    case "adds":
      return cells.verdict[i]! >= Verdict.follows && adds >= 0.005 ? `${Math.round(adds * 100)} %` : "";
    case "error":
      return error > 0 ? number_text(error, 2) : "";
    case "bad":
      return cells.bad[i]! > 0 ? count_text(cells.bad[i]!) : "";
    case "size":
      return Number.isFinite(size) ? number_text(size, 2) : "";
  }
}

function nice_step(least: number): number {
  for (let ten = 1;; ten *= 10) for (const each of [1, 2, 5]) if (each * ten >= least) return each * ten;
}

function Legend(props: { by: ColorBy; low: number; high: number }): Node {
  switch (props.by) {
    case "adds":
      return <AddsLegend />;
    case "error":
      return (
        <span class="legend">
          <LegendItem swatch="equal" text="0" />
          <span class="legend-item">
            1e-8<span class="swatch ramp-log"></span>1, relative
          </span>
        </span>
      );
    case "bad":
      return (
        <span class="legend">
          <LegendItem swatch="equal" text="finite" />
          <LegendItem swatch="nonfinite" text="NaN or Inf" />
        </span>
      );
    case "size":
      return (
        <span class="legend">
          <span class="legend-item">
            {props.low.toExponential(0)}
            <span class="swatch ramp-size"></span>
            {props.high.toExponential(0)}, largest |value|
          </span>
          <LegendItem swatch="nonfinite" text="NaN or Inf" />
        </span>
      );
  }
}
