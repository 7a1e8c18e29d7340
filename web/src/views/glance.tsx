// What the answer shows at a glance: a picture of the tensor that it is about, and the numbers of a recording over steps.

import { h } from "../lib/jsx.ts";
import { computed, effect, type Signal, signal } from "../lib/signals.ts";
import { Canvas } from "../lib/virtual.tsx";
import { paints } from "../lib/paint.ts";
import { number_text } from "../lib/text.ts";
import { paint_tile, palette_of, reduce_tile, reduction, to_canvas } from "../tensor/paint.ts";
import { default_slice, format_slice, type Picture as Slice, place_of, show_index } from "../tensor/slicing.ts";
import { limit_of, make_scale, type Scale } from "../tensor/scale.ts";
import { decode_tile, type Tile } from "../tensor/tile.ts";
import { kOverview } from "../tensor/model.ts";
import type { State } from "../state.ts";
import { type Answer, type EventDetail, type Found, type Names, type Place, type Series, to_number } from "../types.ts";
import { Spark, spread_steps } from "../parts.tsx";

interface Seen {
  tile: Tile;
  of: "a" | "diff";
  slice: string | null;
  picture: Slice;
  at: readonly number[] | null;
}

/** Where to look: the worst element of a pair, a NaN, else the largest element. */
async function look(state: State, place: Place, answer: Answer, signal: AbortSignal): Promise<Seen | string> {
  const side = place.event_a === null ? "b" : undefined;
  const event = place.event_a ?? place.event_b;
  const detail = await state.source.json<EventDetail>("/api/event", { side, event }, signal);
  if (!detail.tensor) return "";
  if (!detail.tensor.has_bytes) return "Only its statistics were kept.";
  if (detail.tensor.shape.includes(0)) return "It has no elements.";
  let of: "a" | "diff" = "a";
  if (side === undefined && detail.partner !== null) {
    const partner = await state.source.json<EventDetail>("/api/event", { side: "b", event: detail.partner }, signal);
    if (partner.tensor?.has_bytes && partner.tensor.shape.join() === detail.tensor.shape.join()) of = "diff";
  }
  const find = (what: string) => state.source.json<Found>("/api/find", { side, event, what }, signal);
  let found: Found = { index: null, count: 0 };
  if (of === "diff") found = await find("worst");
  else if (answer.of === "check" && to_bad(detail) > 0) found = await find("bad");
  if (of === "a" && found.index === null) found = await find("largest");
  const { shape } = detail.tensor;
  const usual = default_slice(shape);
  const parts = found.index ? show_index(usual, shape, found.index) : usual;
  const isUsual = format_slice(parts, shape) === format_slice(usual, shape);
  const slice = isUsual ? null : format_slice(parts, shape);
  const size = { h: kOverview, w: kOverview };
  const tile = decode_tile(await state.source.bytes("/api/tile", { side, event, of, slice, ...size }, signal));
  return { tile, of, slice, at: found.index, picture: { shape, parts, isTransposed: false, isFolded: false } };
}

function to_bad(detail: EventDetail): number {
  const stats = detail.tensor?.stats;
  return stats ? stats.nan + stats.pos_inf + stats.neg_inf : 0;
}

/** The tensor of a place as a small heat map, which leads to its worst element. */
export function Picture(
  props: { state: State; place: Place; answer: Answer; slice: Signal<string | null> },
): Node {
  const { state, place, answer } = props;
  const seen = signal<Seen | string | null>(null);
  effect(() => {
    const abort = new AbortController();
    look(state, place, answer, abort.signal).then((now) => {
      seen.set(now);
      props.slice.set(typeof now === "string" ? null : now.slice);
    }, () => {
      if (!abort.signal.aborted) seen.set("");
    });
    return () => abort.abort();
  });
  const scale = computed<Scale | null>(() => {
    const now = seen();
    if (now === null || typeof now === "string" || !now.tile.scale) return null;
    return make_scale(limit_of([now.tile.scale]), "linear", now.of === "a" && now.tile.scale.min >= 0);
  });
  const link = () => {
    const now = seen();
    const at = now !== null && typeof now !== "string" ? now : null;
    return state.href({
      view: "tensor",
      side: place.event_a === null ? "b" : "a",
      event: place.event_a ?? place.event_b,
      name: place.name,
      step: place.step,
      rank: place.rank,
      call: place.call,
      params: { slice: at?.slice ?? null, at: at?.at?.join(",") || null, place: null },
    });
  };
  return (
    <a class="glance" href={link} hidden={() => seen() === ""} title="Look at it element by element">
      <span class="glance-box">
        {() => typeof seen() === "string" ? <span class="muted glance-note">{seen() as string}</span> : null}
        <Canvas
          label="The tensor as a heat map"
          follow={() => [seen(), state.theme()]}
          draw={(g, width, height) => {
            const now = seen.peek(), of = scale.peek();
            if (now === null || typeof now === "string" || of === null || now.tile.width === 0) return;
            const ratio = g.getTransform().a;
            const small = reduce_tile(
              now.tile,
              reduction(now.tile.height, height * ratio),
              reduction(now.tile.width, width * ratio),
            );
            const words = new Uint32Array(small.width * small.height);
            paint_tile(small, "peak", of, palette_of(of.isSequential, state.theme.peek()), words);
            g.imageSmoothingEnabled = false;
            g.drawImage(to_canvas(words, small.width, small.height), 0, 0, width, height);
            const place = now.at && place_of(now.picture, now.at);
            if (!place) return;
            // A ring around the element, which may be smaller than a pixel.
            const x = (place[1] + 0.5) / now.tile.ofCols * width, y = (place[0] + 0.5) / now.tile.ofRows * height;
            const p = paints(state.theme.peek());
            for (const [wide, color] of [[4, p.panel], [1.5, p.ink]] as const) {
              g.lineWidth = wide;
              g.strokeStyle = color;
              g.beginPath();
              g.arc(x, y, 7, 0, 2 * Math.PI);
              g.stroke();
            }
          }}
        />
      </span>
      <span class="glance-text muted">
        {() => {
          const now = seen(), of = scale();
          if (now === null || typeof now === "string" || of === null) return "\u00a0";
          return [
            now.of === "diff" ? "B − A" : place.event_a === null ? "B" : "A",
            `[${now.slice ?? format_slice(default_slice(now.tile.shape), now.tile.shape)}]`,
            of.isSequential ? `0 to ${number_text(of.limit, 3)}` : `±${number_text(of.limit, 3)}`,
          ].join(" · ");
        }}
      </span>
    </a>
  );
}

const kMostLines = 8;

/** The names of numbers that were recorded more than once, losses first; as many as are shown. */
export function numbers_of(names: Names, most: number): number[] {
  const found: number[] = [];
  for (let i = 0; i < names.name.length; i++) {
    if (names.kind[i] === "number" && names.events[i]! > 1) found.push(i);
  }
  const rank = (i: number) => /(^|[._/])loss/i.test(names.name[i]!) ? 0 : 1;
  return found.sort((a, b) => rank(a) - rank(b) || a - b).slice(0, most);
}

/** Losses and other numbers over the steps, of both recordings. */
export function Numbers(props: { state: State }): Node {
  const { state } = props;
  const shown = computed(() => {
    const names = state.names();
    if (!names || state.steps().length < 2) return [];
    return numbers_of(names, kMostLines).map((i) => ({ i, name: names.name[i]! }));
  }, (a, b) => a.length === b.length && a.every((one, at) => one.name === b[at]!.name && one.i === b[at]!.i));
  const lines = signal<Series["series"] | null>(null);
  effect(() => {
    const wanted = shown();
    state.revision();
    if (wanted.length === 0) return undefined;
    const abort = new AbortController();
    const params = { stat: "l2", names: wanted.map((one) => one.i).join(","), points: 100 };
    state.source.json<Series>("/api/series", params, abort.signal).then((answer) => lines.set(answer.series), () => {
      // Without them the answer is what it was.
    });
    return () => abort.abort();
  });
  const last = (points: Series["series"][number]["a"] | undefined) => {
    const point = points?.[points.length - 1];
    return point ? number_text(to_number(point[1]), 4) : "";
  };
  const numbers = (points: Series["series"][number]["a"] | undefined) =>
    spread_steps((points ?? []).map(([step, value]): [number, number] => [step, to_number(value)]));
  return (
    <div>
      {() =>
        shown().length === 0 ? null : (
          <section class="section">
            <h2>Numbers over steps</h2>
            <div class="curves">
              {shown().map(({ name }, at) => (
                <a
                  class="curve"
                  href={state.href({ view: "tensor", name, event: null, step: null, call: null, params: {} })}
                >
                  <span class="curve-head">
                    <span class="mono curve-name" title={name}>{name}</span>
                    <span class="num curve-last">
                      {() => last(lines()?.[at]?.a)}
                      {() => lines()?.[at]?.b ? <span class="side-b-text">{` ${last(lines()![at]!.b)}`}</span> : null}
                    </span>
                  </span>
                  <span class="curve-line">
                    {() => {
                      const line = lines()?.[at];
                      return line
                        ? (
                          <Spark
                            a={numbers(line.a)}
                            b={numbers(line.b)}
                            width={240}
                            height={54}
                            label={`${name} over steps`}
                          />
                        )
                        : null;
                    }}
                  </span>
                </a>
              ))}
            </div>
          </section>
        )}
    </div>
  );
}
