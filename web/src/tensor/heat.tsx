// The panes: heat maps with one viewport, one cursor and one pinned element.

import { h } from "../lib/jsx.ts";
import { text_scale } from "../lib/paint.ts";
import { computed, effect, onEnd, type Read, signal } from "../lib/signals.ts";
import {
  draw_axes,
  draw_bar,
  draw_cross,
  draw_grid,
  draw_image,
  draw_marks,
  draw_signs,
  draw_texts,
  type Drawn,
  fit_canvas,
  gutter,
  inks_of,
  kTextCell,
  make_marks,
  Painted,
  type Plot,
  reductions,
  to_x,
  to_y,
} from "./draw.ts";
import { format_count, format_number } from "./format.ts";
import { type Of, type PaneState, type TensorModel } from "./model.ts";
import { paint_tile, palette_of, to_canvas } from "./paint.ts";
import { attach_pointer } from "./pointer.ts";
import { type Scale } from "./scale.ts";
import { place_of } from "./slicing.ts";
import { type CellMode, same_cells } from "./tile.ts";
import { fit_all } from "./viewport.ts";

export function Panes(props: { model: TensorModel }): Node {
  const { model } = props;
  const painted = new Painted();
  const size = signal({ width: 0, height: 0 }, (a, b) => a.width === b.width && a.height === b.height);
  const columns = computed(() => arrange(model.panes().length, size(), model.extent(), gutter));

  const grid = (
    <div
      class="tv-panes"
      style={{
        "grid-template-columns": () => `repeat(${columns()}, minmax(0, 1fr))`,
        "grid-template-rows": () => `repeat(${Math.ceil(model.panes().length / columns())}, minmax(0, 1fr))`,
      }}
    >
      {() => {
        if (model.isBlinking()) return <Pane model={model} of={model.blinkSide} painted={painted} isFirst />;
        return model.panes().map((of, place) => (
          <Pane model={model} of={signal(of)} painted={painted} isFirst={place === 0} />
        ));
      }}
    </div>
  ) as HTMLElement;
  model.warm = (tile) => {
    requestIdleCallback(() => {
      const view = model.view.peek(), pane = model.pane.peek();
      painted.reduced(tile, ...reductions(tile, { ...pane, view }));
    });
  };
  onEnd(() => {
    model.warm = null;
  });
  const watch = new ResizeObserver(() => size.set({ width: grid.clientWidth, height: grid.clientHeight }));
  watch.observe(grid);
  onEnd(() => watch.disconnect());
  return grid;
}

// How many panes stand beside each other: what gives the picture the most room and cells nearest to squares.
export function arrange(
  count: number,
  size: { width: number; height: number },
  extent: { rows: number; cols: number },
  room: { left: number; top: number },
): number {
  let best = Math.max(1, count), bestScore = -1;
  if (size.width <= 0 || size.height <= 0) return best;
  for (let across = count; across >= 1; --across) {
    const down = Math.ceil(count / across);
    if (across * (down - 1) >= count) continue;
    const pane = {
      width: Math.max(1, size.width / across - room.left - 14),
      height: Math.max(1, size.height / down - room.top - 72),
    };
    const view = fit_all(extent, pane);
    const cell = { width: pane.width / view.cols, height: pane.height / view.rows };
    const covered = Math.min(pane.width, extent.cols * cell.width) * Math.min(pane.height, extent.rows * cell.height);
    const square = Math.min(cell.width / cell.height, cell.height / cell.width);
    // A little more for panes side by side, so that small gains do not stack them, and less for places that stay empty.
    const score = covered * Math.sqrt(square) * (1 + 0.12 * across) * count / (across * down);
    if (score > bestScore) {
      bestScore = score;
      best = across;
    }
  }
  return best;
}

function Pane(props: { model: TensorModel; of: Read<Of>; painted: Painted; isFirst: boolean }): Node {
  const { model, painted } = props;
  const of = props.of;
  const picture = <canvas class="tv-canvas"></canvas> as HTMLCanvasElement;
  const overlay = (
    <canvas class="tv-canvas tv-overlay" tabindex="-1" aria-label="heat map">
    </canvas>
  ) as HTMLCanvasElement;
  const bar = <canvas class="tv-bar" role="img" aria-label="colour bar"></canvas> as HTMLCanvasElement;
  const plotBox = <div class="tv-plot">{picture}{overlay}</div> as HTMLElement;

  const state = computed(() => model.tiles[of()]());
  const scale = computed(
    () => model.scale_of(of()),
    (a, b) => a.mode === b.mode && a.limit === b.limit && a.isSequential === b.isSequential,
  );
  const barWidth = signal(0);
  const box = signal({ width: 0, height: 0 }, (a, b) => a.width === b.width && a.height === b.height);

  const watch = new ResizeObserver(() => {
    box.set({ width: plotBox.clientWidth, height: plotBox.clientHeight });
    barWidth.set(bar.clientWidth / text_scale());
    if (props.isFirst) {
      model.pane.set({
        width: Math.max(1, plotBox.clientWidth - gutter.left - 1),
        height: Math.max(1, plotBox.clientHeight - gutter.top - 1),
      });
    }
  });
  watch.observe(plotBox);
  watch.observe(bar);

  const plot_now = (): Plot => {
    const { width, height } = box();
    return {
      width: Math.max(1, width - gutter.left - 1),
      height: Math.max(1, height - gutter.top - 1),
      view: model.view(),
    };
  };

  // The picture is drawn once for each frame in which something has changed.
  const draw = (): void => {
    const { width, height } = box.peek();
    if (width <= 0) return;
    const drawn: Drawn = {
      of: of.peek(),
      state: state.peek(),
      scale: scale.peek(),
      mode: model.cellMode.peek(),
      texts: model.texts[of.peek()].peek(),
      theme: model.app.theme.peek(),
    };
    const inks = inks_of(plotBox);
    const context = fit_canvas(picture, width, height);
    const plot: Plot = { width: width - gutter.left - 1, height: height - gutter.top - 1, view: model.view.peek() };
    const { rows, cols } = model.extent.peek();
    draw_axes(context, plot, model.picture.peek(), rows, cols, inks);
    context.save();
    context.beginPath();
    context.rect(gutter.left, gutter.top, plot.width, plot.height);
    context.clip();
    context.fillStyle = inks.surface;
    context.fillRect(gutter.left, gutter.top, plot.width, plot.height);
    context.imageSmoothingEnabled = false;
    const limits = model.limits.peek();
    for (const tile of [drawn.state.overview, drawn.state.detail]) {
      if (tile === null || tile.ofRows !== rows || tile.ofCols !== cols) continue;
      const [down, across] = reductions(tile, plot);
      const { mode, limit, isSequential } = drawn.scale;
      const key = [painted.number(tile), down, across, drawn.mode, mode, limit, isSequential, drawn.theme].join();
      const image = painted.get(key, () => {
        const small = painted.reduced(tile, down, across);
        const words = new Uint32Array(small.width * small.height);
        paint_tile(small, drawn.mode, drawn.scale, palette_of(isSequential, drawn.theme), words);
        return to_canvas(words, small.width, small.height);
      });
      draw_image(context, plot, tile, image, down, across);
      if (tile === (drawn.state.detail ?? drawn.state.overview)) draw_signs(context, plot, tile);
      if (limits === null || drawn.of === "a" || drawn.of === "b") continue;
      const which = tile === drawn.state.detail ? "detail" : "overview";
      const a = model.tiles.a.peek()[which], diff = model.tiles.diff.peek()[which];
      if (a === null || diff === null || !same_cells(a, diff) || !same_cells(a, tile)) continue;
      const key2 = [painted.number(a), painted.number(diff), limits.rtol, limits.atol].join();
      const found = painted.marks(key2, () => make_marks(a, diff, limits.rtol, limits.atol, inks));
      draw_marks(context, plot, diff, found, down, across);
    }
    const cellWidth = plot.width / plot.view.cols, cellHeight = plot.height / plot.view.rows;
    if (cellWidth >= 9 && cellHeight >= 9) draw_grid(context, plot, rows, cols, inks);
    if (cellWidth >= kTextCell.width && cellHeight >= kTextCell.height) draw_texts(context, plot, drawn, rows, cols);
    context.restore();
    context.strokeStyle = inks.line;
    context.strokeRect(
      Math.max(gutter.left, to_x(plot, 0)) - 0.5,
      Math.max(gutter.top, to_y(plot, 0)) - 0.5,
      Math.min(plot.width + gutter.left, to_x(plot, cols)) - Math.max(gutter.left, to_x(plot, 0)) + 1,
      Math.min(plot.height + gutter.top, to_y(plot, rows)) - Math.max(gutter.top, to_y(plot, 0)) + 1,
    );
  };
  let frame = 0;
  effect(() => {
    box();
    state();
    scale();
    of();
    model.cellMode();
    model.view();
    model.texts[of()]();
    model.app.theme();
    if (model.limits() !== null) {
      model.tiles.a();
      model.tiles.diff();
    }
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  });

  let overlayFrame = 0;
  effect(() => {
    const plot = plot_now();
    const hover = model.hover(), at = model.at(), shown = model.picture();
    const { width, height } = box();
    model.app.theme();
    cancelAnimationFrame(overlayFrame);
    overlayFrame = requestAnimationFrame(() => {
      const context = fit_canvas(overlay, width, height);
      const inks = inks_of(plotBox);
      context.beginPath();
      context.rect(gutter.left, gutter.top, plot.width, plot.height);
      context.clip();
      if (hover !== null) draw_cross(context, plot, hover.row, hover.col, inks, false);
      const place = at === null ? null : place_of(shown, at);
      if (place !== null) draw_cross(context, plot, place[0], place[1], inks, true);
    });
  });

  effect(() => draw_bar(bar, barWidth(), scale(), state(), model.app.theme(), inks_of(plotBox)));
  onEnd(() => {
    watch.disconnect();
    cancelAnimationFrame(frame);
    cancelAnimationFrame(overlayFrame);
  });
  attach_pointer(model, overlay);

  if (props.isFirst) {
    effect(() => {
      const pane = model.pane(), view = model.view();
      model.areTextsShown.set(
        pane.width / view.cols >= kTextCell.width && pane.height / view.rows >= kTextCell.height,
      );
    });
  }

  return (
    <section class="tv-pane" data-of={of} aria-label={() => model.title_of(of()).text}>
      <header class="tv-pane-head">
        <strong class={() => `tv-of tv-of-${model.title_of(of()).of}`}>{() => model.title_of(of()).text}</strong>
        <span class="tv-pane-label">{() => pane_label(model, of())}</span>
        <span class="tv-grow"></span>
        {() => <Signs state={state()} />}
      </header>
      {plotBox}
      {bar}
      <div class="tv-pane-foot">
        <span class="tv-range">{() => clipped_text(of(), scale(), state())}</span>
        {() =>
          of() !== "a" && of() !== "b" && state().overview?.scale?.abs === 0 && model.has_other_slices()
            ? (
              <button
                type="button"
                class="link"
                title="Go to the worst element (w)"
                onClick={() => model.jump("worst")}
              >
                where is it?
              </button>
            )
            : null}
        <span class="tv-grow"></span>
        <span class="tv-note">{() => state().note ?? ""}</span>
        {() => {
          const tile = state().detail ?? state().overview;
          if (tile === null || tile.exact) return null;
          const per = (range: [number, number], cells: number): string =>
            format_number((range[1] - range[0]) / Math.max(1, cells), 2);
          return (
            <span
              class="tv-chip tv-reduced"
              title={`Each cell stands for a block of elements and shows its ${cell_words(model.cellMode())}.`}
            >
              {per(tile.rows, tile.height)} × {per(tile.cols, tile.width)} reduced
            </span>
          );
        }}
      </div>
      {() => state().problem !== null ? <p class="tv-pane-problem">{state().problem}</p> : null}
      {() => state().isLoading ? <span class="tv-loading" aria-hidden="true"></span> : null}
    </section>
  );
}

function pane_label(model: TensorModel, of: Of): string {
  const sides = model.app.session()?.sides ?? [];
  if (of === "a") return (model.side() === "b" ? sides[1]?.label : sides[0]?.label) ?? "";
  if (of === "b") return sides[1]?.label ?? "";
  return of === "rel" ? "|B − A| / |A|" : of === "ulp" ? "distance in floating-point steps" : "";
}

export function cell_words(mode: CellMode): string {
  return mode === "peak"
    ? "value farthest from zero"
    : mode === "mean"
    ? "mean"
    : mode === "min"
    ? "minimum"
    : "maximum";
}

function Signs(props: { state: PaneState }): Node {
  const scale = props.state.overview?.scale;
  const sign = (count: number, text: string, name: string): Node | null =>
    count > 0 ? <span class={`tv-chip tv-sign-${name}`}>{text} {format_count(count)}</span> : null;
  return (
    <span class="tv-signs">
      {scale
        ? [sign(scale.nan, "NaN", "nan"), sign(scale.pos_inf, "+Inf", "pos"), sign(scale.neg_inf, "−Inf", "neg")]
        : null}
    </span>
  );
}

function clipped_text(of: Of, scale: Scale, state: PaneState): string {
  const found = state.overview?.scale;
  if (!found) return "";
  if (found.abs > scale.limit) {
    const sign = scale.isSequential ? "" : "±";
    return `clipped at ${sign}${format_number(scale.limit, 3)} of ${format_number(found.abs, 4)}`;
  }
  if (found.abs === 0) {
    const isFinite = found.nan + found.pos_inf + found.neg_inf === 0;
    const where = isFinite ? "" : " but for what is not finite";
    return of === "a" || of === "b" ? `all zero${where}` : `no difference in this slice${where}`;
  }
  return `${format_number(found.min, 4)} to ${format_number(found.max, 4)}`;
}
