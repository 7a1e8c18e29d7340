// Beside the panes: statistics, histograms, profiles, the same tensor over steps and ranks, and what is related.

import { type Child, h } from "../lib/jsx.ts";
import { computed, effect, onEnd, type Read, signal } from "../lib/signals.ts";
import { Choice } from "../parts.tsx";
import type { EventInfo, Events, Histogram, Histograms, Profile, Stats } from "../types.ts";
import { to_number } from "../types.ts";
import {
  Chart,
  common_bins,
  draw_histogram,
  draw_lines,
  draw_ridges,
  histogram_tip,
  kRidge,
  type Line,
  line_tip,
  type LineChart,
  nearest,
  ridge_at,
  ridge_rows,
  ridge_tip,
  type Spread,
} from "./charts.tsx";
import { follow } from "./follow.ts";
import { format_change, format_count, format_number, format_percent } from "./format.ts";
import { fit_canvas } from "./draw.ts";
import { type TensorModel } from "./model.ts";
import { paint_tile, palette_of, reduce_tile, reduction, to_canvas } from "./paint.ts";
import { index_at, picture_axes } from "./slicing.ts";
import type { Tile } from "./tile.ts";

// Which sections are open is kept while the page is.
const kOpen = new Map<string, boolean>();

function Section(props: { id: string; title: string; note?: () => Child; isOpen?: boolean; children?: Child }): Node {
  const isOpen = signal(kOpen.get(props.id) ?? props.isOpen ?? true);
  return (
    <section class="tv-section" data-section={props.id}>
      <button
        type="button"
        class="tv-section-head"
        aria-expanded={() => String(isOpen())}
        onClick={() => {
          isOpen.update((now) => !now);
          kOpen.set(props.id, isOpen.peek());
        }}
      >
        <span class="tv-caret" aria-hidden="true">{() => isOpen() ? "▾" : "▸"}</span>
        {props.title}
        <span class="tv-section-note">{props.note}</span>
      </button>
      <div class="tv-section-body" hidden={() => !isOpen()}>{props.children}</div>
    </section>
  );
}

// ---- statistics

const kStats: readonly [keyof Stats, string, boolean][] = [
  ["count", "elements", true],
  ["min", "min", false],
  ["max", "max", false],
  ["mean", "mean", false],
  ["std", "std", false],
  ["l2", "L2 norm", false],
  ["abs_max", "max |x|", false],
  ["zero", "zero", true],
  ["subnormal", "subnormal", true],
  ["nan", "NaN", true],
  ["pos_inf", "+Inf", true],
  ["neg_inf", "−Inf", true],
];

function StatsTable(props: { model: TensorModel }): Node {
  const { model } = props;
  return (
    <div>
      {() => {
        const a = model.detail()?.tensor?.stats, b = model.partner()?.tensor?.stats;
        if (!a) return <p class="muted">No statistics were kept.</p>;
        const isLone = model.side() === "b";
        return (
          <table class="tv-stats">
            <thead>
              <tr>
                <th></th>
                <th class={isLone ? "tv-of-b" : "tv-of-a"}>{isLone ? "B" : "A"}</th>
                {b ? [<th class="tv-of-b">B</th>, <th>change</th>] : null}
              </tr>
            </thead>
            <tbody>
              {kStats.map(([name, title, isCount]) => {
                const one = to_number(a[name]), two = b ? to_number(b[name]) : NaN;
                const isRare = ["subnormal", "nan", "pos_inf", "neg_inf"].includes(name);
                if (isRare && one === 0 && (!b || two === 0) && name !== "nan") return null;
                const isBad = (name === "nan" || name === "pos_inf" || name === "neg_inf") && (one > 0 || two > 0);
                const isNothing = a.count === 0;
                const text = (value: number): string =>
                  isCount ? format_count(value) : isNothing ? "–" : format_number(value, 4);
                const change = b ? format_change(one, two) : "";
                return (
                  <tr class={isBad ? "tv-bad-row" : ""}>
                    <th>{title}</th>
                    <td title={String(one)}>{text(one)}</td>
                    {b
                      ? [
                        <td title={String(two)}>{text(two)}</td>,
                        <td class={change === "=" ? "tv-same" : ""}>{change}</td>,
                      ]
                      : null}
                  </tr>
                );
              })}
            </tbody>
          </table>
        );
      }}
      {() => {
        const found = model.tolerance();
        if (found === null || found.count === 0) return null;
        const rows: [string, string][] = [
          ["max |b − a|", format_number(to_number(found.max_abs), 5)],
          ["mean |b − a|", format_number(to_number(found.mean_abs), 5)],
          ["max relative", format_number(to_number(found.max_rel), 5)],
          ["relative L2", format_number(to_number(found.relative_l2), 5)],
          ["cosine", format_number(to_number(found.cosine), 7)],
        ];
        if (found.max_ulps !== null) rows.push(["max ULP", format_count(to_number(found.max_ulps))]);
        return (
          <table class="tv-stats tv-difference">
            <tbody>
              {rows.map(([title, text]) => (
                <tr>
                  <th>{title}</th>
                  <td>{text}</td>
                </tr>
              ))}
            </tbody>
          </table>
        );
      }}
    </div>
  );
}

// ---- histogram

function HistogramSection(props: { model: TensorModel }): Node {
  const { model } = props;
  const params = () => {
    const detail = model.detail();
    return detail !== null && model.hasBytes()
      ? { side: model.side() === "b" ? "b" : undefined, event: detail.id }
      : null;
  };
  const a = follow<Histogram>(model, () => {
    const base = params();
    return base === null ? null : ["/api/histogram", { ...base, of: "a" }];
  });
  const b = follow<Histogram>(model, () => {
    const base = params();
    return base === null || !model.isComparable() ? null : ["/api/histogram", { ...base, of: "b" }];
  });
  const both = computed((): [Spread, Spread | null] | null => {
    const one = a().value, two = b().value;
    if (one === null || one.edges.length < 2) return null;
    return two === null || two.edges.length < 2 ? [one, null] : common_bins(one, two);
  });
  return (
    <div>
      {() => a().problem !== null ? <p class="muted">{a().problem}</p> : null}
      {() => model.app.source.isEmbedded && a().value === null ? <p class="muted">It is not in this page.</p> : null}
      <Chart
        height={120}
        label="histogram of the values, logarithmic counts"
        theme={model.app.theme}
        draw={(context, width, height, inks) => {
          const now = both();
          if (now !== null) draw_histogram(context, width, height, inks, now[0], now[1]);
        }}
        tip={(pointer, width) => {
          const now = both();
          return now === null ? "" : histogram_tip(pointer, width, now[0], now[1]);
        }}
      />
    </div>
  );
}

// ---- over steps

type StepStat = "abs_max" | "l2" | "mean" | "std" | "error";

function StepsSection(props: { model: TensorModel }): Node {
  const { model } = props;
  const history = history_of(model, () => true);
  const hasSteps = computed(() => history().a.length > 1);
  const stat = signal<StepStat>("abs_max");
  const ridges = follow<Histograms>(model, () => {
    const detail = model.detail();
    if (detail === null || !hasSteps() || !model.hasBytes()) return null;
    return ["/api/histograms", { side: model.side() === "b" ? "b" : undefined, event: detail.id, steps: 64 }];
  }, 250);
  const chart = computed((): LineChart => {
    const { a, b } = history();
    const read = (event: EventInfo): number =>
      stat() === "error" ? to_number(event.error) : to_number(event.tensor?.stats[stat() as keyof Stats]);
    const lines: Line[] = [{
      values: a.map(read),
      ink: stat() === "error" ? "diff" : "a",
      name: stat() === "error" ? "error" : "A",
    }];
    if (b.length > 0 && stat() !== "error") {
      const bySteps = new Map(b.map((event) => [event.step, read(event)]));
      lines.push({ values: a.map((event) => bySteps.get(event.step) ?? NaN), ink: "b", name: "B" });
    }
    const isPositive = lines.every((line) => line.values.every((value) => !(value < 0)));
    const finite = lines.flatMap((line) => line.values.filter((value) => Number.isFinite(value) && value > 0));
    const isLog = isPositive && finite.length > 1 &&
      finite.reduce((m, v) => Math.max(m, v), 0) > 50 * finite.reduce((m, v) => Math.min(m, v), Infinity);
    return { at: a.map((event) => event.step), lines, isLog, now: model.detail()?.step ?? null, unit: "step" };
  });
  const go = (step: number | undefined): void => {
    const event = history.peek().a.find((one) => one.step === step);
    if (event) model.go_event(event.id, { isStep: true });
  };
  return (
    <div>
      {() => history().a.length === 1 ? <p class="muted">It was recorded at this step only.</p> : null}
      <div hidden={() => !hasSteps()}>
        {() => (
          <Choice<StepStat>
            label="statistic"
            options={[
              ["abs_max", "max |x|"],
              ["l2", "L2"],
              ["mean", "mean"],
              ["std", "std"],
              ...(model.hasPartner() ? [["error", "error"] as const] : []),
            ]}
            value={stat}
            onChoose={(value) => stat.set(value)}
          />
        )}
        <Chart
          height={92}
          label="a statistic over steps"
          theme={model.app.theme}
          draw={(context, width, height, inks, pointer) => {
            if (chart().at.length > 0) draw_lines(context, width, height, inks, pointer, chart());
          }}
          tip={(pointer, width) => line_tip(chart(), pointer, width)}
          click={(pointer, width) => go(chart.peek().at[nearest(chart.peek(), pointer.x, width)])}
        />
        {() => {
          const data = ridges().value;
          if (data === null || data.steps.length < 2 || data.edges.length < 2) return null;
          const height = Math.min(
            420,
            kRidge.top + kRidge.bottom +
              Math.max(5, Math.min(14, 240 / ridge_rows(data.steps.length))) * data.steps.length,
          );
          return (
            <div>
              <p class="tv-caption">Histogram of each step{data.left_out > 0 ? `, ${data.left_out} left out` : ""}</p>
              <Chart
                height={height}
                label="histograms over steps"
                theme={model.app.theme}
                draw={(context, width, tall, inks, pointer) =>
                  draw_ridges(context, width, tall, inks, data, model.detail()?.step ?? -1, pointer)}
                tip={(pointer, _width, tall) => ridge_tip(pointer, tall, data)}
                click={(pointer, _width, tall) => {
                  const step = data.steps[ridge_at(pointer, tall, data.steps.length)];
                  if (step) model.go_event(step.event, { isStep: true });
                }}
              />
            </div>
          );
        }}
      </div>
    </div>
  );
}

export interface History {
  a: EventInfo[];
  b: EventInfo[];
}

// The same name, rank and call at all steps.
export function history_of(model: TensorModel, isWanted: () => boolean): Read<History> {
  const ask = (of: "a" | "b"): Read<{ value: Events | null }> =>
    follow<Events>(model, () => {
      const detail = of === "a" ? model.detail() : model.partner();
      if (detail === null || !isWanted()) return null;
      const side = of === "b" || model.side() === "b" ? "b" : undefined;
      // The only call of its step may have another number in each.
      const call = detail.calls.length > 1 ? detail.call : undefined;
      return ["/api/events", { side, name: detail.name, rank: detail.rank, call, count: 1000 }];
    }, 200);
  const [a, b] = [ask("a"), ask("b")];
  return computed(() => ({ a: a().value?.events ?? [], b: b().value?.events ?? [] }));
}

// ---- profiles

type Metric = "difference" | "largest" | "rms" | "bad" | "differing";

function ProfilesSection(props: { model: TensorModel }): Node {
  const { model } = props;
  const chosen = signal<Metric | null>(null);
  const metric = computed((): Metric => chosen() ?? (model.isComparable() ? "difference" : "largest"));
  return (
    <div>
      {() => (
        <Choice<Metric>
          label="what is shown along each axis"
          options={model.isComparable()
            ? [["difference", "max |b−a|"], ["largest", "max |x|"], ["rms", "rms"], ["differing", "differing"], [
              "bad",
              "bad",
            ]]
            : [["largest", "max |x|"], ["rms", "rms"], ["bad", "NaN, Inf"]]}
          value={metric}
          onChoose={(value) => chosen.set(value)}
        />
      )}
      {() =>
        model.shape().map((size, axis) => size > 1 ? <AxisProfile model={model} axis={axis} metric={metric} /> : null)}
    </div>
  );
}

// Whether a few values hide all others on a linear scale.
export function is_spiky(values: readonly number[]): boolean {
  const sizes = values.filter((value) => Number.isFinite(value) && value > 0).sort((x, y) => x - y);
  return sizes.length > 4 && sizes.at(-1)! > 100 * sizes[sizes.length >> 1]!;
}

function AxisProfile(props: { model: TensorModel; axis: number; metric: Read<Metric> }): Node {
  const { model, axis, metric } = props;
  const ask = (
    of: "a" | "b" | "diff",
    isWanted: () => boolean,
  ): Read<{ value: Profile | null; problem: string | null }> =>
    follow<Profile>(model, () => {
      const detail = model.detail();
      if (detail === null || !model.hasBytes() || !isWanted() || axis >= model.shape().length) return null;
      return ["/api/profile", { side: model.side() === "b" ? "b" : undefined, event: detail.id, of, axis }];
    }, 180);
  const isDiff = (): boolean => metric() === "difference" || metric() === "differing";
  const a = ask("a", () => !isDiff()), b = ask("b", () => !isDiff() && model.isComparable());
  const diff = ask("diff", () => isDiff() && model.isComparable());
  const chart = computed((): LineChart | null => {
    const main = isDiff() ? diff().value : a().value;
    if (main === null) return null;
    const count = model.shape().reduce((all, size) => all * size, 1) / Math.max(1, main.size) * main.bin;
    const values = (profile: Profile): number[] => {
      switch (metric()) {
        case "bad":
          return profile.bad;
        case "differing":
          return profile.differing ?? [];
        case "rms":
          return profile.l2.map((l2) => to_number(l2) / Math.sqrt(Math.max(1, count)));
        default:
          return profile.min.map((low, k) => Math.max(Math.abs(to_number(low)), Math.abs(to_number(profile.max[k]))));
      }
    };
    const lines: Line[] = [{
      values: values(main),
      ink: isDiff() ? "diff" : "a",
      name: isDiff() ? "" : "A",
      isFilled: isDiff() || b().value === null,
    }];
    const other = b().value;
    if (!isDiff() && other !== null && other.size === main.size) {
      lines.push({ values: values(other), ink: "b", name: "B" });
    }
    const picture = model.picture();
    const [rows, cols] = picture_axes(picture);
    const part = picture.parts[axis];
    const focus = model.at();
    const view = model.view();
    const seen = axis === rows
      ? [view.row, view.row + view.rows]
      : axis === cols
      ? [view.col, view.col + view.cols]
      : null;
    const isPlain = part?.kind === "range" && part.step === 1 && !picture.isFolded;
    return {
      at: lines[0]!.values.map((_, k) => k * main.bin),
      lines,
      isLog: metric() !== "bad" && metric() !== "differing" && is_spiky(lines[0]!.values),
      now: part?.kind === "index" && !picture.isFolded ? part.index : focus?.[axis] ?? null,
      seen: seen !== null && isPlain && model.zoomed() !== null
        ? [Math.max(0, seen[0]! + part.start), Math.min(main.size, seen[1]! + part.start)]
        : null,
      unit: `axis ${axis}, index`,
    };
  });
  const go = (index: number): void => {
    const picture = model.picture.peek();
    const view = model.view.peek(), extent = model.extent.peek();
    const middle = index_at(
      picture,
      Math.max(0, Math.min(extent.rows - 1, Math.floor(view.row + view.rows / 2))),
      Math.max(0, Math.min(extent.cols - 1, Math.floor(view.col + view.cols / 2))),
    );
    const next = [...(model.at.peek() ?? middle)];
    next[axis] = index;
    model.go_index(next);
  };
  return (
    <div class="tv-profile">
      <p class="tv-caption">
        axis {axis} <span class="muted">of {() => format_count(model.shape()[axis] ?? 0)}</span>
      </p>
      <Chart
        height={64}
        label={`profile along axis ${axis}`}
        theme={model.app.theme}
        draw={(context, width, height, inks, pointer) => {
          const now = chart();
          if (now !== null) draw_lines(context, width, height, inks, pointer, now);
        }}
        tip={(pointer, width) => {
          const now = chart();
          return now === null ? "" : line_tip(now, pointer, width);
        }}
        click={(pointer, width) => {
          const now = chart.peek();
          if (now !== null) go(now.at[nearest(now, pointer.x, width)] ?? 0);
        }}
      />
    </div>
  );
}

// ---- ranks side by side

function RanksSection(props: { model: TensorModel }): Node {
  const { model } = props;
  const limit = signal(16);
  const ranks = computed(() => model.detail()?.ranks ?? [], (x, y) => JSON.stringify(x) === JSON.stringify(y));
  return (
    <div class="tv-ranks">
      {() => ranks().slice(0, limit()).map((one) => <RankPane model={model} event={one.id} rank={one.rank} />)}
      {() =>
        ranks().length > limit()
          ? <button type="button" onClick={() => limit.update((n) => n + 16)}>{ranks().length - limit()} more</button>
          : null}
    </div>
  );
}

function RankPane(props: { model: TensorModel; event: number; rank: number }): Node {
  const { model } = props;
  const canvas = <canvas class="tv-rank-canvas"></canvas> as HTMLCanvasElement;
  const tile = signal<Tile | null>(null);
  const problem = signal("");
  const width = signal(0);
  const watch = new ResizeObserver(() => width.set(canvas.clientWidth));
  watch.observe(canvas);
  onEnd(() => watch.disconnect());
  effect(() => {
    model.picture();
    if (!model.hasBytes()) return;
    let isEnded = false;
    model.overview_of(props.event, model.side()).then((found) => {
      if (!isEnded) tile.set(found);
    }).catch((error) => {
      if (!isEnded) problem.set(error instanceof Error ? error.message : String(error));
    });
    return () => {
      isEnded = true;
    };
  });
  effect(() => {
    const now = tile(), wide = width();
    const scale = model.scale_of("a");
    const theme = model.app.theme();
    if (now === null || wide <= 0 || now.width === 0 || now.height === 0) return;
    const height = canvas.clientHeight;
    const context = fit_canvas(canvas, wide, height);
    const dpr = globalThis.devicePixelRatio || 1;
    const small = reduce_tile(now, reduction(now.height, height * dpr), reduction(now.width, wide * dpr));
    const words = new Uint32Array(small.width * small.height);
    paint_tile(small, model.cellMode(), scale, palette_of(scale.isSequential, theme), words);
    context.imageSmoothingEnabled = false;
    context.drawImage(to_canvas(words, small.width, small.height), 0, 0, wide, height);
  });
  return (
    <button
      type="button"
      class={() => model.detail()?.rank === props.rank ? "tv-rank on" : "tv-rank"}
      onClick={() => model.go_event(props.event)}
      title={() => problem() || `rank ${props.rank}`}
    >
      {canvas}
      <span>
        rank {props.rank} <span class="muted">{() => tile()?.scale ? format_number(tile()!.scale!.abs, 3) : ""}</span>
      </span>
    </button>
  );
}

// ---- related

function RelatedSection(props: { model: TensorModel }): Node {
  const { model } = props;
  const link = (id: number, text: string, note = ""): Node => (
    <li>
      <a
        href={model.app.href({
          view: "tensor",
          side: model.side.peek(),
          event: id,
          // The address is completed once it is shown.
          name: null,
          step: null,
          rank: null,
          call: null,
          params: { slice: null, zoom: null, at: null, t: null, fold: null },
        })}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          model.go_event(id, { isOther: true });
        }}
      >
        {text}
      </a>
      {note === "" ? null : <span class="muted">{note}</span>}
    </li>
  );
  return (
    <div class="tv-related">
      {() => {
        const detail = model.detail();
        if (detail === null) return null;
        const inputs = detail.inputs.map((one) => typeof one === "number" ? { id: one, name: `event ${one}` } : one);
        const others = detail.same_module.filter((one) => one.id !== detail.id);
        const calls = detail.calls.filter((one) => one.id !== detail.id && one.rank === detail.rank);
        return [
          inputs.length > 0 ? [<h4>made of</h4>, <ul>{inputs.map((one) => link(one.id, one.name))}</ul>] : null,
          others.length > 0
            ? [<h4>of the same module</h4>, <ul>{others.slice(0, 200).map((one) => link(one.id, one.name))}</ul>]
            : null,
          calls.length > 0
            ? [
              <h4>other calls in this step</h4>,
              <ul class="tv-inline">{calls.slice(0, 64).map((one) => link(one.id, `call ${one.call}`))}</ul>,
            ]
            : null,
          inputs.length + others.length + calls.length === 0
            ? <p class="muted">Nothing else is known to belong to it.</p>
            : null,
        ];
      }}
    </div>
  );
}

export function Inspector(props: { model: TensorModel }): Node {
  const { model } = props;
  const hasSteps = computed(() =>
    (model.detail()?.previous ?? model.detail()?.next ?? null) !== null ||
    (model.app.session()?.sides ?? []).some((side) => side.steps.length > 1)
  );
  const hasRanks = computed(() => (model.detail()?.ranks.length ?? 0) > 1);
  const hasAxes = computed(() =>
    model.hasBytes() && model.shape().some((size) => size > 1) && !model.shape().includes(0)
  );
  return (
    <aside class="tv-inspector" aria-label="about this tensor">
      <Section
        id="stats"
        title="Statistics"
        note={() => {
          const found = model.tolerance();
          return found !== null && model.limits() !== null
            ? `${format_percent(found.mismatches, found.count)} beyond`
            : null;
        }}
      >
        <StatsTable model={model} />
      </Section>
      {() =>
        hasRanks()
          ? (
            <Section id="ranks" title="Ranks" note={() => `${model.detail()?.ranks.length ?? 0}`}>
              <RanksSection model={model} />
            </Section>
          )
          : null}
      {() =>
        hasAxes()
          ? (
            <Section id="histogram" title="Histogram" note={() => "log counts"}>
              <HistogramSection model={model} />
            </Section>
          )
          : null}
      {() =>
        hasAxes()
          ? (
            <Section id="profiles" title="Along each axis">
              <ProfilesSection model={model} />
            </Section>
          )
          : null}
      {() =>
        hasSteps()
          ? (
            <Section id="steps" title="Over steps">
              <StepsSection model={model} />
            </Section>
          )
          : null}
      <Section id="related" title="Related">
        <RelatedSection model={model} />
      </Section>
    </aside>
  );
}
