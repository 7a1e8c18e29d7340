// The panes: heat maps with one viewport, one cursor and one pinned element.

import { css_at, ink_on, kNanColor, kNegInfColor, kPosInfColor, type Rgb, to_css } from "../lib/colors.ts";
import { h } from "../lib/jsx.ts";
import { computed, effect, onEnd, type Read, signal } from "../lib/signals.ts";
import { fit_number, format_count, format_number } from "./format.ts";
import { type Of, type PaneState, type TensorModel, type Texts } from "./model.ts";
import { paint_marks, paint_tile, palette_of, reduce_tile, reduce_words, reduction, to_canvas } from "./paint.ts";
import { type Scale, ticks_of, to_unit } from "./scale.ts";
import { index_at, type Picture, picture_axes, place_of } from "./slicing.ts";
import { cell_of, cell_value, type CellMode, kNan, kNegInf, kPosInf, same_cells, type Tile } from "./tile.ts";
import { fit_all, pan_by, type Viewport, zoom_at } from "./viewport.ts";

export const kGutter = { left: 38, top: 17 };
const kTextCell = { height: 15, width: 36 };
// Marks of the tolerance: a green that no map and no sign has.
const kMarkInk = "rgb(0, 240, 60)";
const kMono = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";

interface Inks {
  page: string;
  surface: string;
  text: string;
  muted: string;
  line: string;
  accent: string;
  sure: number;
  perhaps: number;
}

// Texts on canvases grow with the page's own.
function text_size(): number {
  return (parseFloat(getComputedStyle(document.body).fontSize) || 13) / 13;
}

export function small_font(): string {
  return `${Math.round(100 * text_size()) / 10}px system-ui, sans-serif`;
}

export function inks_of(element: Element): Inks {
  const style = getComputedStyle(element);
  const read = (name: string, otherwise: string): string => style.getPropertyValue(name).trim() || otherwise;
  return {
    page: read("--tv-page", "#ffffff"),
    surface: read("--tv-surface", "#f4f5f6"),
    text: read("--tv-text", "#1b1f24"),
    muted: read("--tv-muted", "#68717c"),
    line: read("--tv-line", "#d5dae0"),
    accent: read("--tv-accent", "#2463c9"),
    sure: 0xff3cf000,
    perhaps: 0x803cf000,
  };
}

// Sets a canvas to the pixels of the screen and gives its context in CSS pixels.
export function fit_canvas(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const dpr = globalThis.devicePixelRatio || 1;
  const [w, hh] = [Math.max(1, Math.round(width * dpr)), Math.max(1, Math.round(height * dpr))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== hh) canvas.height = hh;
  const context = canvas.getContext("2d")!;
  context.setTransform(w / Math.max(1, width), 0, 0, hh / Math.max(1, height), 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Cells beyond the tolerance: as words of pixels, as a picture for each reduction, and those that surely are, as long as they are few.
interface Marks {
  words: Uint32Array;
  images: Map<string, HTMLCanvasElement>;
  few: number[] | null;
}

const kFew = 400;

function make_marks(a: Tile, diff: Tile, rtol: number, atol: number, inks: Inks): Marks {
  const words = new Uint32Array(diff.width * diff.height);
  const [sure] = paint_marks(a, diff, rtol, atol, inks.sure, inks.perhaps, words);
  const few: number[] = [];
  if (sure <= kFew) words.forEach((word, at) => word === inks.sure && few.push(at));
  return { words, images: new Map(), few: sure <= kFew ? few : null };
}

// Pictures of tiles, painted once.
class Painted {
  readonly #kept = new Map<string, HTMLCanvasElement>();
  readonly #numbers = new WeakMap<Tile, number>();
  readonly #reduced = new WeakMap<Tile, Map<string, Tile>>();
  readonly #marks = new Map<string, Marks>();
  #next = 0;

  number(tile: Tile): number {
    let number = this.#numbers.get(tile);
    if (number === undefined) this.#numbers.set(tile, number = this.#next++);
    return number;
  }

  get(key: string, make: () => HTMLCanvasElement): HTMLCanvasElement {
    let found = this.#kept.get(key);
    if (found) this.#kept.delete(key);
    else found = make();
    this.#kept.set(key, found);
    for (const old of this.#kept.keys()) {
      if (this.#kept.size <= 24) break;
      this.#kept.delete(old);
    }
    return found;
  }

  marks(key: string, make: () => Marks): Marks {
    let found = this.#marks.get(key);
    if (found) return found;
    // A slider that is dragged asks for many, and none of them twice.
    if (this.#marks.size > 8) this.#marks.clear();
    this.#marks.set(key, found = make());
    return found;
  }

  reduced(tile: Tile, down: number, across: number): Tile {
    if (down <= 1 && across <= 1) return tile;
    let all = this.#reduced.get(tile);
    if (!all) this.#reduced.set(tile, all = new Map());
    const key = `${down},${across}`;
    let found = all.get(key);
    if (!found) all.set(key, found = reduce_tile(tile, down, across));
    return found;
  }
}

interface Plot {
  height: number;
  width: number;
  view: Viewport;
}

const to_x = (plot: Plot, col: number): number => kGutter.left + (col - plot.view.col) * plot.width / plot.view.cols;
const to_y = (plot: Plot, row: number): number => kGutter.top + (row - plot.view.row) * plot.height / plot.view.rows;

function draw_image(
  context: CanvasRenderingContext2D,
  plot: Plot,
  tile: Tile,
  image: HTMLCanvasElement,
  down: number,
  across: number,
): void {
  if (tile.width === 0 || tile.height === 0) return;
  // One pixel of the image is `down` x `across` cells, and a cell some elements.
  const perRow = (tile.rows[1] - tile.rows[0]) / tile.height * down;
  const perCol = (tile.cols[1] - tile.cols[0]) / tile.width * across;
  const along = (start: number, seen: number, first: number, per: number, count: number): [number, number] => [
    Math.max(0, Math.min(count, Math.floor((start - first) / per))),
    Math.max(0, Math.min(count, Math.ceil((start + seen - first) / per))),
  ];
  const [y0, y1] = along(plot.view.row, plot.view.rows, tile.rows[0], perRow, image.height);
  const [x0, x1] = along(plot.view.col, plot.view.cols, tile.cols[0], perCol, image.width);
  if (y1 <= y0 || x1 <= x0) return;
  const left = to_x(plot, tile.cols[0] + x0 * perCol),
    right = to_x(plot, Math.min(tile.cols[1], tile.cols[0] + x1 * perCol));
  const top = to_y(plot, tile.rows[0] + y0 * perRow),
    bottom = to_y(plot, Math.min(tile.rows[1], tile.rows[0] + y1 * perRow));
  // The last pixel may stand for fewer cells than the others.
  const sourceWidth = Math.min(x1, (tile.cols[1] - tile.cols[0]) / perCol) - x0;
  const sourceHeight = Math.min(y1, (tile.rows[1] - tile.rows[0]) / perRow) - y0;
  context.drawImage(image, x0, y0, sourceWidth, sourceHeight, left, top, right - left, bottom - top);
}

// How many of the cells on the screen share a pixel, down and across.
function reductions(tile: Tile, plot: Plot): [down: number, across: number] {
  const dpr = globalThis.devicePixelRatio || 1;
  return [
    reduction(plot.view.rows * tile.height / Math.max(1, tile.rows[1] - tile.rows[0]), plot.height * dpr),
    reduction(plot.view.cols * tile.width / Math.max(1, tile.cols[1] - tile.cols[0]), plot.width * dpr),
  ];
}

function tick_step(perElement: number, room: number): number {
  const rough = Math.max(1, room / perElement);
  const power = 10 ** Math.floor(Math.log10(rough));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= rough - 1e-9) return factor * power;
  return 10 * power;
}

// The number of a row or column as the tensor counts it.
function label_of(picture: Picture, axis: number, place: number): string {
  const part = axis >= 0 && !picture.isFolded ? picture.parts[axis] : undefined;
  return String(part?.kind === "range" ? part.start + part.step * place : place);
}

function draw_axes(
  context: CanvasRenderingContext2D,
  plot: Plot,
  picture: Picture,
  rows: number,
  cols: number,
  inks: Inks,
): void {
  context.font = small_font();
  context.fillStyle = inks.muted;
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  const [rowAxis, colAxis] = picture_axes(picture);
  const cellWidth = plot.width / plot.view.cols, cellHeight = plot.height / plot.view.rows;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const colStep = tick_step(cellWidth, 44);
  for (let col = Math.max(0, Math.ceil(plot.view.col / colStep) * colStep); col < cols; col += colStep) {
    const x = to_x(plot, col + (cellWidth > 6 ? 0.5 : 0));
    if (x > kGutter.left + plot.width - 4) break;
    if (x < kGutter.left) continue;
    const text = label_of(picture, colAxis, col);
    const half = context.measureText(text).width / 2;
    const middle = Math.min(kGutter.left + plot.width - half, Math.max(kGutter.left + half, x));
    context.fillText(text, middle, kGutter.top / 2 - 1);
    context.beginPath();
    context.moveTo(x, kGutter.top - 4);
    context.lineTo(x, kGutter.top - 1);
    context.stroke();
  }
  context.textAlign = "right";
  const rowStep = tick_step(cellHeight, 26);
  for (let row = Math.max(0, Math.ceil(plot.view.row / rowStep) * rowStep); row < rows; row += rowStep) {
    const y = to_y(plot, row + (cellHeight > 6 ? 0.5 : 0));
    if (y > kGutter.top + plot.height - 2) break;
    if (y < kGutter.top) continue;
    context.fillText(label_of(picture, rowAxis, row), kGutter.left - 6, Math.max(kGutter.top + 5, y));
    context.beginPath();
    context.moveTo(kGutter.left - 4, y);
    context.lineTo(kGutter.left - 1, y);
    context.stroke();
  }
}

interface Drawn {
  of: Of;
  state: PaneState;
  scale: Scale;
  mode: CellMode;
  texts: Texts | null;
  theme: "light" | "dark";
}

function cell_color(tile: Tile, at: number, mode: CellMode, scale: Scale, theme: "light" | "dark"): Rgb {
  const flags = tile.flags[at]!;
  if (flags & kNan) return kNanColor;
  if (flags & kPosInf) return kPosInfColor;
  if (flags & kNegInf) return kNegInfColor;
  const { bytes } = palette_of(scale.isSequential, theme);
  const place = 3 * Math.round(to_unit(scale, cell_value(tile, at, mode)) * 255);
  return [bytes[place]!, bytes[place + 1]!, bytes[place + 2]!];
}

// The digits of each cell: those of the server where they are there and fit, else as many as fit of what the tile has.
function draw_texts(context: CanvasRenderingContext2D, plot: Plot, drawn: Drawn, rows: number, cols: number): void {
  const { state, texts } = drawn;
  const cellWidth = plot.width / plot.view.cols, cellHeight = plot.height / plot.view.rows;
  context.font = `${11 * text_size()}px ${kMono}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const room = Math.floor((cellWidth - 6) / context.measureText("0").width);
  const tiles = [state.detail, state.overview].filter((tile) => tile !== null);
  const firstRow = Math.max(0, Math.floor(plot.view.row)),
    lastRow = Math.min(rows, Math.ceil(plot.view.row + plot.view.rows));
  const firstCol = Math.max(0, Math.floor(plot.view.col)),
    lastCol = Math.min(cols, Math.ceil(plot.view.col + plot.view.cols));
  for (let row = firstRow; row < lastRow; ++row) {
    for (let col = firstCol; col < lastCol; ++col) {
      const tile = tiles.find((one) =>
        one.exact && cell_of(one.rows, one.height, row) >= 0 && cell_of(one.cols, one.width, col) >= 0
      );
      if (!tile) continue;
      const at = (row - tile.rows[0]) * tile.width + (col - tile.cols[0]);
      const flags = tile.flags[at]!;
      const value = flags & kNan ? NaN : flags & kPosInf ? Infinity : flags & kNegInf ? -Infinity : tile.min[at]!;
      const isThere = texts !== null && row >= texts.rows[0] && row < texts.rows[1] && col >= texts.cols[0] &&
        col < texts.cols[1];
      const exact = isThere ? texts.text[row - texts.rows[0]]?.[col - texts.cols[0]] : undefined;
      const text = exact !== undefined && exact.length <= room ? exact : fit_number(value, room);
      context.fillStyle = ink_on(cell_color(tile, at, drawn.mode, drawn.scale, drawn.theme));
      context.fillText(text, to_x(plot, col) + cellWidth / 2, to_y(plot, row) + cellHeight / 2 + 0.5);
    }
  }
}

export function Panes(props: { model: TensorModel }): Node {
  const { model } = props;
  const painted = new Painted();
  const size = signal({ width: 0, height: 0 }, (a, b) => a.width === b.width && a.height === b.height);
  const columns = computed(() => arrange(model.panes().length, size(), model.extent()));

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
): number {
  let best = Math.max(1, count), bestScore = -1;
  if (size.width <= 0 || size.height <= 0) return best;
  for (let across = count; across >= 1; --across) {
    const down = Math.ceil(count / across);
    if (across * (down - 1) >= count) continue;
    const pane = {
      width: Math.max(1, size.width / across - kGutter.left - 14),
      height: Math.max(1, size.height / down - kGutter.top - 72),
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
    barWidth.set(bar.clientWidth);
    if (props.isFirst) {
      model.pane.set({
        width: Math.max(1, plotBox.clientWidth - kGutter.left - 1),
        height: Math.max(1, plotBox.clientHeight - kGutter.top - 1),
      });
    }
  });
  watch.observe(plotBox);
  watch.observe(bar);

  const plot_now = (): Plot => {
    const { width, height } = box();
    return {
      width: Math.max(1, width - kGutter.left - 1),
      height: Math.max(1, height - kGutter.top - 1),
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
    const plot: Plot = { width: width - kGutter.left - 1, height: height - kGutter.top - 1, view: model.view.peek() };
    const { rows, cols } = model.extent.peek();
    draw_axes(context, plot, model.picture.peek(), rows, cols, inks);
    context.save();
    context.beginPath();
    context.rect(kGutter.left, kGutter.top, plot.width, plot.height);
    context.clip();
    context.fillStyle = inks.surface;
    context.fillRect(kGutter.left, kGutter.top, plot.width, plot.height);
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
      Math.max(kGutter.left, to_x(plot, 0)) - 0.5,
      Math.max(kGutter.top, to_y(plot, 0)) - 0.5,
      Math.min(plot.width + kGutter.left, to_x(plot, cols)) - Math.max(kGutter.left, to_x(plot, 0)) + 1,
      Math.min(plot.height + kGutter.top, to_y(plot, rows)) - Math.max(kGutter.top, to_y(plot, 0)) + 1,
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
      context.rect(kGutter.left, kGutter.top, plot.width, plot.height);
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

function draw_grid(context: CanvasRenderingContext2D, plot: Plot, rows: number, cols: number, inks: Inks): void {
  context.strokeStyle = inks.page;
  context.globalAlpha = 0.2;
  context.lineWidth = 1;
  context.beginPath();
  for (let row = Math.max(0, Math.ceil(plot.view.row)); row <= Math.min(rows, plot.view.row + plot.view.rows); ++row) {
    const y = Math.round(to_y(plot, row)) + 0.5;
    context.moveTo(Math.max(kGutter.left, to_x(plot, 0)), y);
    context.lineTo(to_x(plot, cols), y);
  }
  for (let col = Math.max(0, Math.ceil(plot.view.col)); col <= Math.min(cols, plot.view.col + plot.view.cols); ++col) {
    const x = Math.round(to_x(plot, col)) + 0.5;
    context.moveTo(x, Math.max(kGutter.top, to_y(plot, 0)));
    context.lineTo(x, to_y(plot, rows));
  }
  context.stroke();
  context.globalAlpha = 1;
}

// NaN and infinities in cells too small to be seen get a dot, as long as they are few.
const signsOf = new WeakMap<Tile, number[]>();

function draw_signs(context: CanvasRenderingContext2D, plot: Plot, tile: Tile): void {
  const cellWidth = plot.width / plot.view.cols * (tile.cols[1] - tile.cols[0]) / Math.max(1, tile.width);
  const cellHeight = plot.height / plot.view.rows * (tile.rows[1] - tile.rows[0]) / Math.max(1, tile.height);
  if (Math.min(cellWidth, cellHeight) >= 4) return;
  let signs = signsOf.get(tile);
  if (!signs) {
    signs = [];
    for (let at = 0; at < tile.flags.length && signs.length <= kFew; ++at) {
      if (tile.flags[at]! & (kNan | kPosInf | kNegInf)) signs.push(at);
    }
    signsOf.set(tile, signs);
  }
  if (signs.length > kFew) return;
  const side = { x: Math.max(4, cellWidth), y: Math.max(4, cellHeight) };
  for (const at of signs) {
    const flags = tile.flags[at]!;
    const col = tile.cols[0] + (at % tile.width + 0.5) * (tile.cols[1] - tile.cols[0]) / tile.width;
    const row = tile.rows[0] + (Math.floor(at / tile.width) + 0.5) * (tile.rows[1] - tile.rows[0]) / tile.height;
    context.fillStyle = to_css(flags & kNan ? kNanColor : flags & kPosInf ? kPosInfColor : kNegInfColor);
    context.fillRect(to_x(plot, col) - side.x / 2, to_y(plot, row) - side.y / 2, side.x, side.y);
  }
}

// Small cells are covered with the mark's colour, large ones are framed by it.
function draw_marks(
  context: CanvasRenderingContext2D,
  plot: Plot,
  tile: Tile,
  marks: Marks,
  down: number,
  across: number,
): void {
  const perCol = (tile.cols[1] - tile.cols[0]) / tile.width, perRow = (tile.rows[1] - tile.rows[0]) / tile.height;
  const cellWidth = plot.width / plot.view.cols * perCol, cellHeight = plot.height / plot.view.rows * perRow;
  const corner = (at: number): [x: number, y: number] => [
    to_x(plot, tile.cols[0] + (at % tile.width) * perCol),
    to_y(plot, tile.rows[0] + Math.floor(at / tile.width) * perRow),
  ];
  if (cellWidth < 7 || cellHeight < 7) {
    const key = `${down},${across}`;
    let image = marks.images.get(key);
    if (!image) {
      const words = reduce_words(marks.words, tile.width, tile.height, down, across);
      image = to_canvas(words, Math.ceil(tile.width / across), Math.ceil(tile.height / down));
      marks.images.set(key, image);
    }
    draw_image(context, plot, tile, image, down, across);
    if (marks.few === null || Math.min(cellWidth, cellHeight) >= 4) return;
    context.fillStyle = kMarkInk;
    for (const at of marks.few) {
      const [x, y] = corner(at);
      context.fillRect(x + cellWidth / 2 - 2, y + cellHeight / 2 - 2, 4, 4);
    }
    return;
  }
  context.lineWidth = 2;
  context.strokeStyle = kMarkInk;
  for (let at = 0; at < marks.words.length; ++at) {
    const mark = marks.words[at]!;
    if (mark === 0) continue;
    const [left, top] = corner(at);
    if (left + cellWidth < kGutter.left || left > kGutter.left + plot.width) continue;
    if (top + cellHeight < kGutter.top || top > kGutter.top + plot.height) continue;
    context.globalAlpha = (mark >>> 24) / 255;
    context.strokeRect(left + 1.5, top + 1.5, cellWidth - 3, cellHeight - 3);
  }
  context.globalAlpha = 1;
}

function draw_cross(
  context: CanvasRenderingContext2D,
  plot: Plot,
  row: number,
  col: number,
  inks: Inks,
  isPinned: boolean,
): void {
  const left = to_x(plot, col), top = to_y(plot, row);
  const width = plot.width / plot.view.cols, height = plot.height / plot.view.rows;
  const x = left + width / 2, y = top + height / 2;
  const half = { x: Math.max(width / 2, isPinned ? 4 : 2), y: Math.max(height / 2, isPinned ? 4 : 2) };
  context.strokeStyle = isPinned ? inks.accent : inks.text;
  context.globalAlpha = isPinned ? 0.9 : 0.45;
  context.lineWidth = 1;
  context.beginPath();
  if (!isPinned || width < 9) {
    context.moveTo(kGutter.left, Math.round(y) + 0.5);
    context.lineTo(x - half.x - 1, Math.round(y) + 0.5);
    context.moveTo(x + half.x + 1, Math.round(y) + 0.5);
    context.lineTo(kGutter.left + plot.width, Math.round(y) + 0.5);
    context.moveTo(Math.round(x) + 0.5, kGutter.top);
    context.lineTo(Math.round(x) + 0.5, y - half.y - 1);
    context.moveTo(Math.round(x) + 0.5, y + half.y + 1);
    context.lineTo(Math.round(x) + 0.5, kGutter.top + plot.height);
  }
  context.stroke();
  context.globalAlpha = 1;
  if (isPinned) {
    context.lineWidth = 3;
    context.strokeStyle = inks.page;
    context.strokeRect(x - half.x - 1, y - half.y - 1, 2 * half.x + 2, 2 * half.y + 2);
    context.lineWidth = 1.5;
    context.strokeStyle = inks.accent;
  }
  context.strokeRect(x - half.x - 0.5, y - half.y - 0.5, 2 * half.x + 1, 2 * half.y + 1);
}

function draw_bar(
  canvas: HTMLCanvasElement,
  width: number,
  scale: Scale,
  state: PaneState,
  theme: "light" | "dark",
  inks: Inks,
): void {
  const height = 26;
  if (width <= 0) return;
  const context = fit_canvas(canvas, width, height);
  const found = state.overview?.scale ?? null;
  if (found === null) return;
  const left = kGutter.left + 8, right = width - 10;
  const { bytes } = palette_of(scale.isSequential, theme);
  for (let x = left; x < right; ++x) {
    context.fillStyle = css_at(bytes, (x - left) / (right - left - 1));
    context.fillRect(x, 2, 1.5, 8);
  }
  // Arrows at the ends say that values lie beyond.
  const arrow = (x: number, by: number, color: string): void => {
    context.fillStyle = color;
    context.beginPath();
    context.moveTo(x, 2);
    context.lineTo(x + by, 6);
    context.lineTo(x, 10);
    context.fill();
  };
  if (found.max > scale.limit) arrow(right + 0.5, 6, css_at(bytes, 1));
  if (found.min < -scale.limit && !scale.isSequential) arrow(left - 0.5, -6, css_at(bytes, 0));
  context.strokeStyle = inks.line;
  context.strokeRect(left - 0.5, 1.5, right - left + 1, 9);
  context.fillStyle = inks.muted;
  context.strokeStyle = inks.muted;
  context.font = small_font();
  context.textAlign = "center";
  context.textBaseline = "top";
  let lastEnd = -Infinity;
  for (const tick of ticks_of(scale, Math.max(3, Math.min(9, (right - left) / 48)))) {
    const x = left + tick.unit * (right - left);
    const half = context.measureText(tick.text).width / 2;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, 10);
    context.lineTo(Math.round(x) + 0.5, 13);
    context.stroke();
    if (x - half < lastEnd + 4) continue;
    context.fillText(tick.text, Math.min(width - half, x), 15);
    lastEnd = x + half;
  }
}

// Wheel and pinch zoom, a drag pans, a click pins, a double click comes closer.
function attach_pointer(model: TensorModel, canvas: HTMLCanvasElement): void {
  const place = (event: MouseEvent): { y: number; x: number } => {
    const box = canvas.getBoundingClientRect();
    const pane = model.pane.peek();
    return {
      y: (event.clientY - box.top - kGutter.top) / pane.height,
      x: (event.clientX - box.left - kGutter.left) / pane.width,
    };
  };
  const element_at = (event: MouseEvent): { row: number; col: number } | null => {
    const { y, x } = place(event);
    if (y < 0 || x < 0 || y > 1 || x > 1) return null;
    const view = model.view.peek(), extent = model.extent.peek();
    const row = Math.floor(view.row + y * view.rows), col = Math.floor(view.col + x * view.cols);
    return row >= 0 && col >= 0 && row < extent.rows && col < extent.cols ? { row, col } : null;
  };
  const zoom = (factor: number, y: number, x: number): void =>
    model.set_view(zoom_at(model.view.peek(), model.extent.peek(), model.pane.peek(), factor, y, x));

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 30 : event.deltaMode === 2 ? 400 : 1;
    const pane = model.pane.peek(), view = model.view.peek();
    if (event.shiftKey) {
      const by = (event.deltaX || event.deltaY) * unit;
      model.set_view(pan_by(view, model.extent.peek(), 0, by / pane.width * view.cols));
      return;
    }
    const { y, x } = place(event);
    const speed = event.ctrlKey ? 0.01 : 0.0018;
    zoom(Math.exp(-event.deltaY * unit * speed), Math.min(1, Math.max(0, y)), Math.min(1, Math.max(0, x)));
    model.hover.set(element_at(event));
  }, { passive: false });

  const fingers = new Map<number, PointerEvent>();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    fingers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 1) moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) {
      model.hover.set(element_at(event));
      return;
    }
    const others = [...fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
    const pane = model.pane.peek(), view = model.view.peek();
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    if (others.length === 1) {
      const other = others[0]!;
      const apart = (finger: PointerEvent): number =>
        Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      const middle = place(other);
      if (apart(before) > 0) zoom(apart(event) / apart(before), middle.y, middle.x);
    } else if (others.length === 0 && moved > 4) {
      model.hover.set(null);
      canvas.classList.add("tv-dragged");
      model.set_view(pan_by(
        view,
        model.extent.peek(),
        -(event.clientY - before.clientY) / pane.height * view.rows,
        -(event.clientX - before.clientX) / pane.width * view.cols,
      ));
    }
    fingers.set(event.pointerId, event);
  });
  const up = (event: PointerEvent): void => {
    const wasDown = fingers.delete(event.pointerId);
    canvas.classList.remove("tv-dragged");
    if (!wasDown || fingers.size > 0 || event.type === "pointercancel") return;
    if (moved > 4) return;
    const at = element_at(event);
    if (at === null) return;
    const index = index_at(model.picture.peek(), at.row, at.col);
    // A second click on the pinned element lets it go.
    model.pin(model.at.peek()?.join() === index.join() ? null : index);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => model.hover.set(null));
  canvas.addEventListener("dblclick", (event) => {
    event.preventDefault();
    const { y, x } = place(event);
    zoom(event.altKey || event.shiftKey ? 1 / 4 : 4, y, x);
    const at = element_at(event);
    if (at !== null) model.pin(index_at(model.picture.peek(), at.row, at.col));
  });
}

// As close as can be, with the pinned element (else the middle) in the middle.
export function zoom_in(model: TensorModel): void {
  zoom_middle(model, 1e9);
  const at = model.at.peek();
  const place = at === null ? null : place_of(model.picture.peek(), at);
  const view = model.view.peek();
  if (place === null) return;
  const [down, across] = [place[0] + 0.5 - view.row - view.rows / 2, place[1] + 0.5 - view.col - view.cols / 2];
  model.set_view(pan_by(view, model.extent.peek(), down, across));
}

export function zoom_middle(model: TensorModel, factor: number): void {
  const at = model.at.peek();
  const place = at === null ? null : place_of(model.picture.peek(), at);
  const view = model.view.peek();
  let [y, x] = [0.5, 0.5];
  if (place !== null) {
    const [py, px] = [(place[0] + 0.5 - view.row) / view.rows, (place[1] + 0.5 - view.col) / view.cols];
    if (py >= 0 && py <= 1 && px >= 0 && px <= 1) [y, x] = [py, px];
  }
  model.set_view(zoom_at(view, model.extent.peek(), model.pane.peek(), factor, y, x));
}
