// What the tensor view shows: the event, its partner, the slice, the panes and the viewport. All of it but the hover is in the address.

import type { App } from "../app.ts";
import { batch, computed, effect, onEnd, type Read, type Signal, signal, untrack } from "../lib/signals.ts";
import type { SideName } from "../route.ts";
import type { ElementAnswer, EventDetail, Events, Found, Tolerance } from "../types.ts";
import { Answers } from "./kept.ts";
import { limit_of, make_scale, type Scale, type ScaleMode } from "./scale.ts";
import {
  default_slice,
  format_slice,
  index_at,
  parse_slice,
  type Part,
  type Picture,
  picture_size,
  place_of,
  show_index,
} from "./slicing.ts";
import { type CellMode, type Tile } from "./tile.ts";
import { Tiles } from "./tiles.ts";
import { UrlState } from "./url_state.ts";
import {
  clamp_view,
  type Extent,
  fit_all,
  format_view,
  is_whole,
  type PaneSize,
  parse_view,
  reveal,
  type Viewport,
} from "./viewport.ts";

export type Of = "a" | "b" | "diff" | "rel" | "ulp";
export const kAllPanes: readonly Of[] = ["a", "b", "diff", "rel", "ulp"];
export const kPaneTitles: Record<Of, string> = { a: "A", b: "B", diff: "B − A", rel: "relative", ulp: "ULP" };
export const kOverview = 512;

export interface Hover {
  row: number;
  col: number;
}

export interface Limits {
  rtol: number;
  atol: number;
}

export interface PaneState {
  overview: Tile | null;
  detail: Tile | null;
  // Why there is no picture, or why it is no finer.
  problem: string | null;
  note: string | null;
  isLoading: boolean;
}

export interface Texts {
  key: string;
  rows: [number, number];
  cols: [number, number];
  text: string[][];
}

export const kNoPane: PaneState = { overview: null, detail: null, problem: null, note: null, isLoading: false };

export function is_abort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

// Tolerances that torch.testing takes for a type.
export function usual_tolerance(dtype: string): Limits {
  if (dtype === "float64" || dtype === "complex128") return { rtol: 1e-7, atol: 1e-7 };
  if (dtype === "float16") return { rtol: 1e-3, atol: 1e-5 };
  if (dtype === "bfloat16") return { rtol: 0.016, atol: 1e-5 };
  if (dtype.startsWith("float8")) return { rtol: 0.125, atol: 1e-3 };
  if (/^(u?int|bool)/.test(dtype)) return { rtol: 0, atol: 0 };
  return { rtol: 1.3e-6, atol: 1e-5 };
}

// What the view has shown last and how, also before it was opened anew.
let lastShown: { name: string; shape: string } | null = null;
let lastLook = "";

// The parameters that are about one tensor.
const kLook = ["slice", "zoom", "at", "t", "fold"];

function look_of(params: Readonly<Record<string, string>>): string {
  return JSON.stringify(kLook.map((name) => params[name] ?? null));
}

// 0.0000013 is hard to read.
export function limit_text(value: number): string {
  return value === 0 || value >= 1e-3 ? String(value) : value.toExponential();
}

export class TensorModel {
  readonly app: App;
  readonly url: UrlState;

  readonly detail: Signal<EventDetail | null> = signal<EventDetail | null>(null);
  readonly side: Signal<SideName> = signal<SideName>("a");
  readonly partner: Signal<EventDetail | null> = signal<EventDetail | null>(null);
  readonly problem: Signal<string | null> = signal<string | null>(null);

  readonly shape: Read<readonly number[]>;
  readonly hasBytes: Read<boolean>;
  readonly hasPartner: Read<boolean>;
  readonly isComparable: Read<boolean>;
  readonly picture: Read<Picture>;
  readonly sliceProblem: Signal<string | null> = signal<string | null>(null);
  readonly extent: Read<Extent>;

  readonly panes: Read<readonly Of[]>;
  readonly isBlinking: Read<boolean>;
  readonly blinkSide: Signal<"a" | "b"> = signal<"a" | "b">("a");
  readonly scaleMode: Read<ScaleMode | "auto">;
  readonly cellMode: Read<CellMode>;
  readonly isFullRange: Read<boolean>;
  readonly limits: Read<Limits | null>;
  readonly at: Read<readonly number[] | null>;

  readonly pane: Signal<PaneSize> = signal<PaneSize>(
    { height: 1, width: 1 },
    (a, b) => a.height === b.height && a.width === b.width,
  );
  readonly zoomed: Signal<Viewport | null> = signal<Viewport | null>(null);
  readonly view: Read<Viewport>;
  readonly hover: Signal<Hover | null> = signal<Hover | null>(
    null,
    (a, b) => a === b || (a !== null && b !== null && a.row === b.row && a.col === b.col),
  );

  // The element that is looked at: under the pointer, else the pinned one.
  readonly focus: Read<readonly number[] | null>;

  readonly tiles: Record<Of, Signal<PaneState>>;
  readonly texts: Record<Of, Signal<Texts | null>>;
  // Cells are so large that their digits have room.
  readonly areTextsShown: Signal<boolean> = signal(false);
  readonly element: Signal<ElementAnswer | null> = signal<ElementAnswer | null>(null);
  readonly tolerance: Signal<Tolerance | null> = signal<Tolerance | null>(null);
  readonly found: Signal<string> = signal("");
  // Told of tiles that may be drawn next.
  warm: ((tile: Tile) => void) | null = null;
  // Whether the statistics and charts beside the panes are shown.
  readonly isBeside: Signal<boolean> = signal(true);

  readonly #tileSource = new Tiles(this);
  readonly #eventAnswers = new Answers<EventDetail>(64);
  #lastStepped = 0;
  #direction: -1 | 0 | 1 = 0;
  // The view has ended: what it would fetch ahead is of no use, and may be of another recording.
  #isLeft = false;

  constructor(app: App) {
    this.app = app;
    this.url = new UrlState(app);
    const byPane = <T>(make: () => Signal<T>): Record<Of, Signal<T>> => ({
      a: make(),
      b: make(),
      diff: make(),
      rel: make(),
      ulp: make(),
    });
    this.tiles = byPane(() => signal<PaneState>(kNoPane));
    this.texts = byPane(() => signal<Texts | null>(null));

    this.shape = computed(() => this.detail()?.tensor?.shape ?? [], (a, b) => a.join() === b.join());
    this.hasBytes = computed(() => this.detail()?.tensor?.has_bytes ?? false);
    this.hasPartner = computed(() => this.partner() !== null);
    this.isComparable = computed(() => {
      const partner = this.partner();
      return partner !== null && (partner.tensor?.has_bytes ?? false) &&
        partner.tensor?.shape.join() === this.shape().join();
    });

    const [slice, transposed, folded] = [this.url.read("slice"), this.url.read("t"), this.url.read("fold")];
    this.picture = computed(() => {
      const shape = this.shape();
      const text = slice();
      let parts: Part[] = default_slice(shape);
      let problem: string | null = null;
      if (text !== null) {
        try {
          const read = parse_slice(text, shape);
          if (read.filter((part) => part.kind === "range").length > 2) throw new Error("more than two axes are left");
          parts = read;
        } catch (error) {
          problem = sentence(error);
        }
      }
      untrack(() => this.sliceProblem.set(problem));
      return { shape, parts, isTransposed: transposed() === "1", isFolded: folded() === "1" && shape.length > 0 };
    });
    this.extent = computed(() => {
      const [rows, cols] = picture_size(this.picture());
      return { rows, cols };
    }, (a, b) => a.rows === b.rows && a.cols === b.cols);

    const chosen = this.url.read("panes"), blink = this.url.read("blink");
    this.isBlinking = computed(() => blink() === "1" && this.isComparable());
    this.panes = computed(() => {
      if (!this.isComparable()) return ["a"];
      if (this.isBlinking()) return [this.blinkSide()];
      const text = chosen();
      const wanted = kAllPanes.filter((of) => text?.split(",").includes(of));
      return wanted.length > 0 ? wanted : ["a", "b", "diff"];
    }, (a, b) => a.join() === b.join());

    const mode = this.url.read("scale"), cell = this.url.read("cell"), range = this.url.read("range");
    this.scaleMode = computed(() => mode() === "linear" || mode() === "symlog" ? mode() as ScaleMode : "auto");
    this.cellMode = computed(() => ["min", "max", "mean"].includes(cell() ?? "") ? cell() as CellMode : "peak");
    this.isFullRange = computed(() => range() === "max");

    const rtol = this.url.read("rtol"), atol = this.url.read("atol");
    this.limits = computed(() => {
      if (rtol() === null && atol() === null) return null;
      const read = (text: string | null): number => {
        const value = Number(text ?? 0);
        return Number.isFinite(value) && value >= 0 ? value : 0;
      };
      return { rtol: read(rtol()), atol: read(atol()) };
    }, (a, b) => a === b || (a !== null && b !== null && a.rtol === b.rtol && a.atol === b.atol));

    const pinned = this.url.read("at");
    this.at = computed(() => {
      const text = pinned();
      if (text === null) return null;
      const index = text === "" ? [] : text.split(",").map(Number);
      const shape = this.shape();
      const fits = index.length === shape.length &&
        index.every((one, axis) => Number.isInteger(one) && one >= 0 && one < shape[axis]!);
      return fits ? index : null;
    }, (a, b) => a === b || (a !== null && b !== null && a.join() === b.join()));

    const zoom = this.url.read("zoom");
    effect(() => {
      const text = zoom();
      const now = this.zoomed.peek();
      if (text === null) this.zoomed.set(null);
      else if (now === null || format_view(now) !== text) this.zoomed.set(parse_view(text));
    });
    this.view = computed(() => {
      const zoomed = this.zoomed();
      const extent = this.extent(), pane = this.pane();
      return zoomed === null ? fit_all(extent, pane) : clamp_view(zoomed, extent, pane);
    });

    this.#follow_event();
    this.#tileSource.follow_tiles();
    this.#tileSource.follow_texts();
    this.focus = this.#follow_element();
    this.#follow_tolerance();
    this.#follow_blink();
  }

  // ---- the event

  #ask_event(side: SideName, event: number): Promise<EventDetail> {
    return this.#eventAnswers.get(
      `${side}${event}`,
      () => this.app.source.json<EventDetail>("/api/event", { side: side === "b" ? "b" : undefined, event }),
    );
  }

  #follow_event(): void {
    const app = this.app;
    const place = computed(() => {
      const { side, event, name, step, rank, call } = app.route();
      return { side, event, name, step, rank, call };
    }, (a, b) =>
      a.side === b.side && a.event === b.event &&
      (a.event !== null || (a.name === b.name && a.step === b.step && a.rank === b.rank && a.call === b.call)));
    effect(() => {
      const { event, params } = app.route();
      if (event !== null && event === this.detail()?.id) lastLook = look_of(params);
    });
    let lastRevision = app.revision.peek();
    effect(() => {
      const { side, event, name, step, rank, call } = place();
      const revision = app.revision();
      if (revision !== lastRevision) this.#eventAnswers.clear();
      lastRevision = revision;
      let isEnded = false;
      const load = async (): Promise<void> => {
        let id = event;
        if (id === null) {
          if (name === null) throw new Error("No tensor was chosen: the table has all of them, and Ctrl-K finds one.");
          const found = await app.source.json<Events>("/api/events", {
            side: side === "b" ? "b" : undefined,
            name,
            step,
            rank,
            call,
            count: 1,
          });
          id = found.events[0]?.id ?? null;
          if (id === null) throw new Error(`Nothing of the name ${name} was recorded there.`);
        }
        let detail = await this.#ask_event(side, id);
        let of: SideName = side;
        // A pair is looked at from the first side, whichever was asked for, unless its shapes differ.
        if (side === "b" && detail.partner !== null) {
          const first = await this.#ask_event("a", detail.partner);
          if (first.tensor?.shape.join() === detail.tensor?.shape.join()) [of, detail] = ["a", first];
        }
        const partner = of === "a" && detail.partner !== null ? await this.#ask_event("b", detail.partner) : null;
        if (isEnded) return;
        batch(() => {
          // A slice of another tensor says nothing about this one, unless they have the same shape, or a link has brought it.
          const shape = detail.tensor?.shape.join() ?? "";
          const isLeft = look_of(app.route.peek().params) === lastLook;
          if (isLeft && lastShown !== null && lastShown.name !== detail.name && lastShown.shape !== shape) {
            this.url.set(Object.fromEntries(kLook.map((name) => [name, null])));
          }
          lastShown = { name: detail.name, shape };
          this.problem.set(null);
          this.side.set(of);
          this.partner.set(partner);
          this.detail.set(detail);
        });
        this.url.flush();
        app.go({
          side: of,
          event: detail.id,
          name: detail.name,
          step: detail.step,
          rank: detail.rank,
          call: detail.call,
        }, "replace");
        this.#prefetch_around(of, detail);
      };
      load().catch((error) => {
        if (!isEnded && !is_abort(error)) this.problem.set(sentence(error));
      });
      return () => {
        isEnded = true;
      };
    });
    app.stepper.set((to) => this.step_to(to));
    onEnd(() => {
      this.#isLeft = true;
      app.stepper.set(null);
    });
  }

  // The next step's answers, so that a key press finds them here. Who goes from step to step will go on: what comes in that
  // direction is fetched at once, and one more after it.
  #prefetch_around(side: SideName, detail: EventDetail): void {
    const kCalm = 150, kInSteps = 10;
    const isStepping = performance.now() - this.#lastStepped < 1500 && this.#direction !== 0;
    const [ahead, behind] = this.#direction < 0 ? [detail.previous, detail.next] : [detail.next, detail.previous];
    if (ahead !== null) this.#prefetch(side, ahead, isStepping ? kInSteps : kCalm, isStepping ? 2 : 1);
    if (behind !== null) this.#prefetch(side, behind, isStepping ? 2 * kCalm : kCalm, 1);
  }

  #prefetch(side: SideName, event: number, delay: number, steps: number): void {
    const isOver = (): boolean => this.#isLeft;
    setTimeout(async () => {
      try {
        if (isOver() || !this.app.source.has("/api/event", { side: side === "b" ? "b" : undefined, event })) return;
        const detail = await this.#ask_event(side, event);
        if (isOver()) return;
        if (side === "a" && detail.partner !== null) await this.#ask_event("b", detail.partner);
        if (
          isOver() || !(detail.tensor?.has_bytes ?? false) ||
          detail.tensor?.shape.join() !== this.shape.peek().join()
        ) return;
        const panes = this.panes.peek();
        const tiles = await Promise.all(
          panes.map((of) => this.#tileSource.ask(this.#tileSource.params_of(of, event, side))),
        );
        for (const tile of tiles) this.warm?.(tile);
        const next = this.#direction < 0 ? detail.previous : detail.next;
        if (steps > 1 && next !== null) this.#prefetch(side, next, 0, steps - 1);
      } catch {
        // What could not be fetched ahead is asked for again when it is needed.
      }
    }, delay);
  }

  go_event(event: number, options: { side?: SideName; isStep?: boolean; isOther?: boolean } = {}): void {
    this.url.flush();
    const now = performance.now();
    // Steps in quick succession are one entry of the history.
    const mode = options.isStep && now - this.#lastStepped < 1200 ? "replace" : "push";
    if (options.isStep) this.#lastStepped = now;
    const params: Record<string, null> = options.isOther ? Object.fromEntries(kLook.map((name) => [name, null])) : {};
    this.app.go({ view: "tensor", side: options.side ?? this.side.peek(), event, params }, mode);
  }

  step_by(by: 1 | -1): void {
    const detail = this.detail.peek();
    const next = by > 0 ? detail?.next : detail?.previous;
    this.#direction = by;
    if (next !== null && next !== undefined) this.go_event(next, { isStep: true });
    else void this.#step_beyond(by);
  }

  // The steps of the recordings after this one, or before it, the nearest first.
  steps_beyond(by: 1 | -1): number[] {
    const now = this.detail()?.step ?? 0;
    const steps = new Set((this.app.session()?.sides ?? []).flatMap((side) => side.steps));
    return [...steps].filter((step) => by * (step - now) > 0).sort((a, b) => by * (a - b));
  }

  // Calls that are counted over all steps have other numbers there: then it is the call at the same place of its step.
  async #step_beyond(by: 1 | -1): Promise<void> {
    const kMostTried = 50;
    const detail = this.detail.peek();
    if (detail === null) return;
    const offset = Math.max(0, detail.calls.findIndex((one) => one.id === detail.id));
    const side = this.side.peek() === "b" ? "b" : undefined;
    try {
      for (const step of untrack(() => this.steps_beyond(by)).slice(0, kMostTried)) {
        const params = { side, name: detail.name, step, rank: detail.rank, offset, count: 1 };
        if (!this.app.source.has("/api/events", params)) break;
        const found = await this.app.source.json<Events>("/api/events", params);
        if (this.detail.peek() !== detail) return;
        if (found.events[0]) return this.go_event(found.events[0].id, { isStep: true });
      }
      this.found.set(by > 0 ? "this is the last step" : "this is the first step");
    } catch (error) {
      this.found.set(sentence(error));
    }
  }

  async step_to(to: { step?: number; rank?: number; call?: number }): Promise<void> {
    const detail = this.detail.peek();
    if (detail === null) return;
    const wanted = { step: detail.step, rank: detail.rank, call: detail.call, ...to };
    const side = this.side.peek();
    const ask = (call: number | undefined) =>
      this.app.source.json<Events>("/api/events", {
        side: side === "b" ? "b" : undefined,
        name: detail.name,
        step: wanted.step,
        rank: wanted.rank,
        call,
        count: 1,
      });
    try {
      let found = await ask(wanted.call);
      if (found.events.length === 0 && to.call === undefined) found = await ask(undefined);
      const event = found.events[0];
      if (event) this.go_event(event.id, { isStep: true });
      else this.app.notify(`${detail.name} was not recorded there`);
    } catch (error) {
      this.app.notify(sentence(error), { kind: "bad" });
    }
  }

  // ---- the slice

  slice_text(): string {
    const picture = this.picture();
    return picture.isFolded ? "" : format_slice(picture.parts, picture.shape);
  }

  // The slice that is shown is not the whole tensor.
  has_other_slices(): boolean {
    const { shape, parts, isFolded } = this.picture();
    return !isFolded && parts.some((part, axis) => part.kind === "index" && shape[axis]! > 1);
  }

  is_default_slice(): boolean {
    const picture = this.picture();
    return format_slice(picture.parts, picture.shape) === format_slice(default_slice(picture.shape), picture.shape);
  }

  set_slice(parts: readonly Part[], isTransposed = this.picture.peek().isTransposed): void {
    const { shape } = this.picture.peek();
    const text = format_slice(parts, shape);
    this.url.set({
      slice: text === format_slice(default_slice(shape), shape) ? null : text,
      t: isTransposed ? "1" : null,
      fold: null,
    });
  }

  // Shows an element: moves the slice where it must, pins it and brings it into view.
  go_index(index: readonly number[]): void {
    const picture = this.picture.peek();
    if (place_of(picture, index) === null) this.set_slice(show_index(picture.parts, picture.shape, index));
    this.pin(index);
    const place = place_of(this.picture.peek(), index);
    if (place !== null) this.set_view(reveal(this.view.peek(), this.extent.peek(), place[0], place[1]));
  }

  go_place(row: number, col: number): void {
    this.go_index(index_at(this.picture.peek(), row, col));
  }

  pin(index: readonly number[] | null): void {
    this.url.set({ at: index === null || index.length === 0 ? null : index.join(",") });
  }

  set_view(view: Viewport): void {
    const isAll = is_whole(view, this.extent.peek(), this.pane.peek());
    batch(() => {
      this.zoomed.set(isAll ? null : view);
      this.url.set({ zoom: isAll ? null : format_view(view) });
    });
  }

  // ---- scales

  scale_of(of: Of): Scale {
    const both: Of[] = of === "a" || of === "b" ? ["a", "b"] : [of];
    const scales = both.map((one) => this.tiles[one]().overview?.scale ?? null);
    const known = scales.filter((scale) => scale !== null);
    // Of complex numbers magnitudes are shown, also of their difference.
    const isComplex = this.detail()?.tensor?.dtype.startsWith("complex") ?? false;
    const isSequential = of === "rel" || of === "ulp" || (of === "diff" && isComplex) ||
      (of !== "diff" && known.length > 0 && known.every((scale) => scale.min >= 0));
    const chosen = this.scaleMode();
    const mode = chosen === "auto" ? (of === "rel" || of === "ulp" ? "symlog" : "linear") : chosen;
    const limit = this.isFullRange()
      ? Math.max(0, ...known.map((s) => (Number.isFinite(s.abs) ? s.abs : 0)))
      : limit_of(known);
    return make_scale(limit, mode, isSequential);
  }

  // A small picture of another rank's or step's tensor.
  overview_of(event: number, side: SideName): Promise<Tile> {
    return this.#tileSource.ask(this.#tileSource.params_of("a", event, side));
  }

  // ---- the element, the tolerance, the blinking

  #follow_element(): Read<readonly number[] | null> {
    const focus = computed(() => {
      const hover = this.hover();
      if (hover !== null) return index_at(this.picture(), hover.row, hover.col);
      const at = this.at();
      if (at !== null) return at;
      return this.shape().length === 0 ? [] : null;
    }, (a, b) => a === b || (a !== null && b !== null && a.join() === b.join()));
    effect(() => {
      const index = focus(), detail = this.detail();
      const isHere = index !== null && this.element.peek()?.index.join() === index.join();
      if (!isHere) this.element.set(null);
      if (index === null || detail === null || !this.hasBytes()) return;
      const stop = new AbortController();
      const side = this.side() === "b" ? "b" : undefined;
      if (!this.app.source.has("/api/element", { side, event: detail.id, index: index.join(",") })) return;
      const timer = setTimeout(() => {
        this.app.source.json<ElementAnswer>(
          "/api/element",
          { side, event: detail.id, index: index.join(",") },
          stop.signal,
        )
          .then((answer) => this.element.set(answer)).catch(() => {
            // What the tile says stays.
          });
      }, 50);
      return () => {
        clearTimeout(timer);
        stop.abort();
      };
    });
    return focus;
  }

  #follow_tolerance(): void {
    let lastName: string | null = null;
    effect(() => {
      const detail = this.detail();
      // Figures of another tensor would be false here; those of the step before stay for a moment.
      if (detail?.name !== lastName) this.tolerance.set(null);
      lastName = detail?.name ?? null;
      // Without a chosen tolerance the figures that do not depend on it are wanted all the same.
      const limits = this.limits() ?? {};
      if (detail === null || !this.isComparable()) {
        this.tolerance.set(null);
        return;
      }
      const stop = new AbortController();
      const timer = setTimeout(() => {
        this.app.source.json<Tolerance>("/api/tolerance", { event: detail.id, ...limits }, stop.signal)
          .then((answer) => this.tolerance.set(answer)).catch((error) => {
            if (!is_abort(error)) this.tolerance.set(null);
          });
      }, 80);
      return () => {
        clearTimeout(timer);
        stop.abort();
      };
    });
  }

  #follow_blink(): void {
    effect(() => {
      if (!this.isBlinking()) return;
      const timer = setInterval(() => this.blinkSide.update((side) => (side === "a" ? "b" : "a")), 600);
      return () => clearInterval(timer);
    });
  }

  async jump(what: "worst" | "largest" | "bad" | "differs" | "mismatch", isBack = false): Promise<void> {
    const detail = this.detail.peek();
    if (detail === null || !this.hasBytes.peek()) return;
    if ((what === "worst" || what === "differs" || what === "mismatch") && !this.isComparable.peek()) {
      this.found.set("there is nothing to compare it with");
      return;
    }
    const limits = this.limits.peek() ?? usual_tolerance(detail.tensor?.dtype ?? "");
    const isWalk = what !== "worst" && what !== "largest";
    try {
      const found = await this.app.source.json<Found>("/api/find", {
        side: this.side.peek() === "b" ? "b" : undefined,
        event: detail.id,
        what,
        from: isWalk ? this.at.peek()?.join(",") : undefined,
        back: isWalk && isBack,
        ...(what === "mismatch" ? limits : {}),
      });
      const words = {
        worst: "the largest |b − a|",
        largest: "the largest |a|",
        bad: "NaN or infinite",
        differs: "different",
        mismatch: `beyond rtol ${limit_text(limits.rtol)}, atol ${limit_text(limits.atol)}`,
      };
      if (found.index === null) {
        this.found.set(isWalk ? `no element is ${words[what]}` : "there is no such element");
        return;
      }
      const noun = found.within === "cells" ? "cell" : "element";
      const where = found.within === undefined ? "" : ", in what this page holds";
      const count = `${found.count.toLocaleString("en-US")} ${noun}${found.count === 1 ? " is" : "s are"}`;
      this.found.set(isWalk ? `${count} ${words[what]}${where}` : words[what]);
      if (what === "mismatch" && this.limits.peek() === null) this.set_limits(limits);
      this.go_index(found.index);
    } catch (error) {
      this.found.set(sentence(error));
    }
  }

  set_limits(limits: Limits | null): void {
    this.url.set({
      rtol: limits === null ? null : limit_text(limits.rtol),
      atol: limits === null ? null : limit_text(limits.atol),
    });
  }

  toggle_pane(of: Of): void {
    if (of !== "a" && !this.isComparable.peek()) return;
    const now = this.isBlinking.peek() ? [] : this.panes.peek();
    const next = kAllPanes.filter((one) => (one === of) !== now.includes(one));
    if (next.length === 0) return;
    this.url.set({ panes: next.join() === "a,b,diff" ? null : next.join(","), blink: null });
  }

  // B's own tensor, where it has no partner, is what is asked for as `a`.
  title_of(of: Of): { text: string; of: Of } {
    return of === "a" && this.side() === "b" ? { text: kPaneTitles.b, of: "b" } : { text: kPaneTitles[of], of };
  }

  toggle(name: string, isOn: boolean): void {
    this.url.set({ [name]: isOn ? "1" : null });
  }
}
