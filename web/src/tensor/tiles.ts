// The tiles that the panes of a tensor show, and the digits of its elements: asked for as the viewport needs them, and kept.

import { computed, effect } from "../lib/signals.ts";
import type { SideName } from "../route.ts";
import type { Params } from "../source.ts";
import { Answers } from "./kept.ts";
import { is_abort, kAllPanes, kNoPane, kOverview, type Of, sentence, type TensorModel, type Texts } from "./model.ts";
import { picture_size } from "./slicing.ts";
import { decode_tile, type Tile } from "./tile.ts";
import { detail_range, needs_detail } from "./viewport.ts";

const kFinest = 1024;

export class Tiles {
  readonly #model: TensorModel;
  readonly #answers = new Answers<Tile>(96);

  constructor(model: TensorModel) {
    this.#model = model;
  }

  // The parameters of an overview. Whatever is usual is left out, so that equal pictures are asked for in equal words.
  params_of(of: Of, event: number, side: SideName): Params {
    const model = this.#model;
    const picture = model.picture.peek();
    return {
      side: side === "b" ? "b" : undefined,
      event,
      of,
      slice: picture.isFolded || model.is_default_slice() ? undefined : model.slice_text(),
      t: picture.isTransposed,
      fold: picture.isFolded,
      h: kOverview,
      w: kOverview,
    };
  }

  ask(params: Params, signal?: AbortSignal): Promise<Tile> {
    const model = this.#model;
    const ask = (): Promise<Tile> => model.app.source.bytes("/api/tile", params, signal).then(decode_tile);
    return this.#answers.get(JSON.stringify(params), ask, signal);
  }

  follow_tiles(): void {
    const model = this.#model;
    for (const of of kAllPanes) {
      const isShown = computed(() =>
        model.panes().includes(of) || (of === "b" && model.isBlinking()) || (of === "a" && model.panes().length > 0) ||
        (of === "diff" && model.limits() !== null && model.isComparable())
      );
      const state = model.tiles[of];
      effect(() => {
        const detail = model.detail(), picture = model.picture();
        model.partner();
        if (!isShown() || detail === null || !model.hasBytes()) {
          state.set(kNoPane);
          return;
        }
        const params = this.params_of(of, detail.id, model.side());
        const stop = new AbortController();
        let isEnded = false;
        const before = state.peek();
        // What is there stays until the next is: but only where it has the same rows and columns.
        const [rows, cols] = picture_size(picture);
        const keeps = before.overview !== null && before.overview.ofRows === rows && before.overview.ofCols === cols;
        state.set(keeps ? { ...before, isLoading: true } : { ...kNoPane, isLoading: true });
        this.ask(params, stop.signal).then((overview) => {
          if (isEnded) return;
          const now = state.peek();
          state.set(now.overview === overview ? { ...now, isLoading: false } : { ...kNoPane, overview });
        }).catch((error) => {
          if (!isEnded && !is_abort(error)) state.set({ ...kNoPane, problem: sentence(error) });
        });
        return () => {
          isEnded = true;
          stop.abort();
        };
      });

      // A finer tile of what is seen, where the overview is too coarse.
      const wanted = computed(
        () => {
          const overview = state().overview;
          if (overview === null || overview.exact || !isShown()) return null;
          const view = model.view(), pane = model.pane();
          const dpr = globalThis.devicePixelRatio || 1;
          const needs = needs_detail(overview.ofRows, overview.height, view.rows, pane.height * dpr) ||
            needs_detail(overview.ofCols, overview.width, view.cols, pane.width * dpr);
          if (!needs) return null;
          return {
            overview,
            rows: detail_range(view.row, view.rows, overview.ofRows).join(":"),
            cols: detail_range(view.col, view.cols, overview.ofCols).join(":"),
            h: Math.min(kFinest, Math.ceil(pane.height * dpr / 64) * 64),
            w: Math.min(kFinest, Math.ceil(pane.width * dpr / 64) * 64),
          };
        },
        (a, b) =>
          a === b || (a !== null && b !== null && a.overview === b.overview && a.rows === b.rows && a.cols === b.cols &&
            a.h === b.h && a.w === b.w),
      );
      let lastWanted = "";
      effect(() => {
        const want = wanted();
        const detail = model.detail.peek();
        if (want === null || detail === null) {
          const now = state.peek();
          if (now.detail !== null || now.note !== null) state.set({ ...now, detail: null, note: null });
          return;
        }
        const { rows, cols, h, w } = want;
        const params = { ...this.params_of(of, detail.id, model.side.peek()), rows, cols, h, w, scale: 0 };
        const stop = new AbortController();
        // A viewport that moves is waited for; the same one of another step is not.
        const key = [rows, cols, h, w].join();
        const delay = key === lastWanted ? 0 : 60;
        lastWanted = key;
        const timer = setTimeout(() => {
          this.ask(params, stop.signal).then((tile) => {
            if (stop.signal.aborted) return;
            state.set({ ...state.peek(), detail: tile, note: null });
          }).catch((error) => {
            if (stop.signal.aborted || is_abort(error)) return;
            const note = model.app.source.isEmbedded ? "no finer data in this page" : sentence(error);
            state.set({ ...state.peek(), detail: null, note });
          });
        }, delay);
        return () => {
          clearTimeout(timer);
          stop.abort();
        };
      });
    }
  }

  // The digits of the elements that are seen, once their cells are large.
  follow_texts(): void {
    const model = this.#model;
    for (const of of kAllPanes) {
      const wanted = computed(() => {
        const detail = model.detail();
        if (detail === null || !model.areTextsShown() || !model.hasBytes()) return "";
        const isShown = model.isBlinking() ? of === "a" || of === "b" : model.panes().includes(of);
        if (!isShown) return "";
        const overview = model.tiles[of]().overview;
        if (overview === null) return "";
        const view = model.view(), extent = model.extent();
        const rows = detail_range(view.row, view.rows, extent.rows),
          cols = detail_range(view.col, view.cols, extent.cols);
        if ((rows[1] - rows[0]) * (cols[1] - cols[0]) > 4096) return "";
        const { h: _h, w: _w, ...params } = this.params_of(of, detail.id, model.side());
        return JSON.stringify({ ...params, rows: rows.join(":"), cols: cols.join(":") });
      });
      effect(() => {
        const key = wanted();
        if (key === "" || !model.app.source.has("/api/elements", JSON.parse(key))) return;
        const stop = new AbortController();
        const timer = setTimeout(() => {
          model.app.source.json<Omit<Texts, "key">>("/api/elements", JSON.parse(key), stop.signal).then((answer) => {
            model.texts[of].set({ ...answer, key });
          }).catch(() => {
            // The numbers of the tile are shown instead.
          });
        }, 90);
        return () => {
          clearTimeout(timer);
          stop.abort();
        };
      });
      // Digits of another event or slice must not be drawn.
      effect(() => {
        model.detail();
        model.picture();
        model.texts[of].set(null);
      });
    }
  }
}
