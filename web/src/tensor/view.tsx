// One tensor, and its partner in the other run: everything about it, down to the element.

import type { App } from "../app.ts";
import { type Child, h } from "../lib/jsx.ts";
import { computed, effect, onEnd } from "../lib/signals.ts";
import { Failure, Skeleton } from "../parts.tsx";
import { type EventDetail, to_number, verdict_word } from "../types.ts";
import { Chart, draw_lines, line_tip, type LineChart, nearest } from "./charts.tsx";
import { command_of, python_of } from "./command.ts";
import { Slicer, ToleranceRow, Toolbar } from "./controls.tsx";
import { format_count, format_index, format_number, format_range, format_shape } from "./format.ts";
import { Panes } from "./heat.tsx";
import { history_of, Inspector } from "./inspector.tsx";
import { kAllPanes, kPaneTitles, type Of, TensorModel } from "./model.ts";
import { zoom_in, zoom_middle } from "./pointer.ts";
import { place_of } from "./slicing.ts";
import { facts_at, kNan, kNegInf, kPosInf } from "./tile.ts";
import { pan_by } from "./viewport.ts";

const kVerdictClasses = ["good", "good", "calm", "open", "open", "bad", "open"];

// What keeps a tensor from being laid beside its partner.
function pair_chips(model: TensorModel, detail: EventDetail): Child[] {
  const partner = model.partner();
  const isPair = (model.app.session()?.sides.length ?? 0) > 1;
  if (!isPair || model.isComparable() || !detail.tensor) return [];
  if (model.side() === "b") {
    return [<span class="chip open">{detail.partner === null ? "only in B" : "B, of another shape than A"}</span>];
  }
  if (partner === null) return [<span class="chip open">only in A</span>];
  if (partner.tensor?.shape.join() === detail.tensor.shape.join()) {
    return [<span class="chip open">B was kept as statistics only</span>];
  }
  return [
    <a
      class="chip open"
      href={model.app.href({ view: "tensor", side: "b", event: partner.id, name: null, call: null })}
    >
      B has another shape: show it
    </a>,
  ];
}

function Header(props: { model: TensorModel }): Node {
  const { model } = props;
  const step = (by: 1 | -1): Node => (
    <button
      type="button"
      class="icon"
      title={by > 0 ? "The step after (])" : "The step before ([)"}
      aria-label={by > 0 ? "the step after" : "the step before"}
      disabled={() =>
        (by > 0 ? model.detail()?.next : model.detail()?.previous) === null && model.steps_beyond(by).length === 0}
      onClick={() => model.step_by(by)}
    >
      {by > 0 ? "›" : "‹"}
    </button>
  );
  const fact = (title: string, text: string | null | undefined, kind = ""): Child =>
    text ? <span class={`tv-fact ${kind}`} title={title}>{text}</span> : null;
  return (
    <header class="tv-head">
      <div class="tv-title">
        <h1 class="mono">{() => model.detail()?.name ?? ""}</h1>
        {() => {
          const detail = model.detail();
          if (detail === null || detail.verdict < 0) return null;
          const error = to_number(detail.error);
          return (
            <span class={`chip ${kVerdictClasses[detail.verdict] ?? "open"}`}>
              {detail.verdict === 4
                ? "follows from a difference"
                : detail.verdict === 5
                ? "starts a difference"
                : verdict_word(detail.verdict)}
              {Number.isFinite(error) && error > 0 ? `, ${format_number(error, 3)}` : ""}
            </span>
          );
        }}
        <span class="tv-grow"></span>
        <span class="tv-found" role="status">{model.found}</span>
        <span class="tv-step" hidden={() => model.app.session()?.kind === "files"}>
          {step(-1)}
          {() => {
            const detail = model.detail();
            if (detail === null) return "";
            const more = [
              `step ${detail.step}`,
              detail.calls.length > 1 || detail.call > 0 ? `call ${detail.call}` : "",
              detail.ranks.length > 1 || detail.rank > 0 ? `rank ${detail.rank}` : "",
            ];
            return more.filter((text) => text !== "").join(" · ");
          }}
          {step(1)}
        </span>
      </div>
      <div class="tv-facts">
        {() => {
          const detail = model.detail();
          if (detail === null) return null;
          const tensor = detail.tensor, other = model.partner()?.tensor;
          const own = (a: string | undefined, b: string | undefined): string | undefined =>
            b !== undefined && a !== b ? `${a} → ${b}` : a;
          return [
            fact("type", own(tensor?.dtype, other?.dtype), "mono"),
            fact(
              "shape",
              own(tensor ? format_shape(tensor.shape) : undefined, other ? format_shape(other.shape) : undefined),
              "mono",
            ),
            detail.module !== ""
              ? (
                <a
                  class="tv-fact"
                  href={model.app.href({ view: "modules", params: { module: detail.module } })}
                  title="module"
                >
                  {detail.module}
                </a>
              )
              : null,
            fact("class", detail.class),
            fact("what it is to the module", [detail.io, detail.phase].filter(Boolean).join(", ")),
            fact("device", tensor?.device ?? null),
            fact("where it was recorded", detail.site, "mono"),
            ...pair_chips(model, detail),
          ];
        }}
      </div>
    </header>
  );
}

// Digits of a difference beyond those that its operands have say nothing.
function short_digits(text: string): string {
  if (text.length <= 12) return text;
  return text.replace(/([+-]?)(\d+(?:\.\d+)?(?:e[+-]?\d+)?)/gi, (_, sign: string, digits: string) => {
    return `${sign}${format_number(Number(digits), 7)}`;
  });
}

// What is under the pointer, or pinned: at once from the tiles, then exactly from the server.
function Readout(props: { model: TensorModel }): Node {
  const { model } = props;
  const place = computed(() => {
    const focus = model.focus();
    return focus === null ? null : place_of(model.picture(), focus);
  });
  const shown = computed((): readonly Of[] => model.isComparable() ? kAllPanes : ["a"]);
  const cell = (of: Of): { text: string; note: string } => {
    const exact = model.element();
    if (exact !== null) {
      const side = of === "a" ? exact.a : of === "b" ? exact.b : null;
      if (side) return { text: side.text, note: side.bits };
      if (of === "diff" && exact.difference !== null) return { text: short_digits(exact.difference), note: "" };
      if (of === "rel" && exact.relative !== null) {
        return { text: format_number(to_number(exact.relative), 6), note: "" };
      }
      if (of === "ulp" && exact.ulp !== null) return { text: format_count(exact.ulp), note: "" };
      if (exact.b !== null) return { text: "–", note: "" };
    }
    const at = place(), state = model.tiles[of]();
    if (at === null) return { text: "", note: "" };
    for (const tile of [state.detail, state.overview]) {
      const facts = tile === null ? null : facts_at(tile, at[0], at[1], model.cellMode());
      if (facts === null) continue;
      const odd = facts.flags & kNan ? "NaN" : facts.flags & kPosInf ? "+Inf" : facts.flags & kNegInf ? "−Inf" : "";
      if (facts.exact) return { text: odd || format_number(facts.value, 7), note: "" };
      return {
        text: `${format_number(facts.min, 4)} … ${format_number(facts.max, 4)}`,
        note: odd === "" ? "" : `with ${odd}`,
      };
    }
    return { text: "", note: "" };
  };
  const block = computed(() => {
    const at = place();
    const state = model.tiles[model.panes()[0] ?? "a"]();
    if (at === null) return "";
    for (const tile of [state.detail, state.overview]) {
      const facts = tile === null ? null : facts_at(tile, at[0], at[1], "peak");
      if (facts === null) continue;
      if (facts.exact) return "";
      const values = `${format_number(facts.min, 3)} to ${format_number(facts.max, 3)}, mean ${
        format_number(facts.mean, 3)
      }`;
      return `block ${format_range(facts.rows)}, ${format_range(facts.cols)}: ${values}`;
    }
    return "";
  });
  return (
    <div class="tv-readout" aria-live="off">
      <span class="tv-where mono">
        {() => {
          const focus = model.focus();
          if (focus === null) return <span class="muted">point at an element</span>;
          return focus.length === 0 ? "scalar" : format_index(focus);
        }}
        {() =>
          model.hover() === null && model.at() !== null
            ? (
              <button
                type="button"
                class="icon"
                title="Let it go (Esc)"
                aria-label="let the pinned element go"
                onClick={() => model.pin(null)}
              >
                ×
              </button>
            )
            : null}
      </span>
      {() =>
        shown().map((of) => (
          <span class="tv-value" title={() => `${kPaneTitles[of]} ${cell(of).text} ${cell(of).note}`}>
            <span class={`tv-of tv-of-${model.title_of(of).of}`}>{model.title_of(of).text}</span>
            <span class="mono">{() => cell(of).text}</span>
            <span class="mono tv-bits">
              {() =>
                cell(of).note === "" ? "" : /^[0-9a-f]+$/i.test(cell(of).note) ? `0x${cell(of).note}` : cell(of).note}
            </span>
          </span>
        ))}
      <span class="tv-grow"></span>
      <span class="tv-message" title={block}>{block}</span>
    </div>
  );
}

// A number or a text: its value, and its history over steps.
function ValueView(props: { model: TensorModel }): Node {
  const { model } = props;
  const history = history_of(model, () => true);
  const numeric = (value: unknown): number =>
    typeof value === "number"
      ? value
      : typeof value === "boolean"
      ? Number(value)
      : value === "inf"
      ? Infinity
      : value === "-inf"
      ? -Infinity
      : NaN;
  const chart = computed((): LineChart | null => {
    const { a, b } = history();
    if (a.length < 2 || !a.some((event) => typeof event.value === "number")) return null;
    const others = new Map(b.map((event) => [event.step, numeric(event.value)]));
    const lines: LineChart["lines"] = [
      { values: a.map((event) => numeric(event.value)), ink: "a", name: "A" },
      ...(b.length > 0
        ? [{ values: a.map((event) => others.get(event.step) ?? NaN), ink: "b" as const, name: "B" }]
        : []),
    ];
    return { at: a.map((event) => event.step), lines, now: model.detail()?.step ?? null, unit: "step" };
  });
  const text = (value: unknown): string =>
    typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value, null, 1);
  return (
    <div class="tv-scalar">
      <div class="tv-scalar-values">
        {() => (
          <figure>
            <figcaption class="tv-of-a">{model.partner() === null ? "value" : "A"}</figcaption>
            <pre>{text(model.detail()?.value)}</pre>
          </figure>
        )}
        {() =>
          model.partner() === null ? null : (
            <figure>
              <figcaption class="tv-of-b">B</figcaption>
              <pre>{text(model.partner()?.value)}</pre>
            </figure>
          )}
      </div>
      {() =>
        chart() === null ? null : (
          <Chart
            height={220}
            label="the value over steps"
            theme={model.app.theme}
            draw={(context, width, height, inks, pointer) => {
              const now = chart();
              if (now !== null) draw_lines(context, width, height, inks, pointer, now);
            }}
            tip={(pointer, width) => (chart() === null ? "" : line_tip(chart()!, pointer, width))}
            click={(pointer, width) => {
              const now = chart.peek();
              const event = now === null ? undefined : history.peek().a[nearest(now, pointer.x, width)];
              if (event) model.go_event(event.id, { isStep: true });
            }}
          />
        )}
      {() =>
        history().a.length < 2 ? null : (
          <table class="tv-stats tv-history">
            <thead>
              <tr>
                <th>step</th>
                <th class="tv-of-a">A</th>
                {history().b.length > 0 ? <th class="tv-of-b">B</th> : null}
              </tr>
            </thead>
            <tbody>
              {history().a.slice(0, 500).map((event) => (
                <tr
                  class={event.id === model.detail()?.id ? "on" : ""}
                  onClick={() => model.go_event(event.id, { isStep: true })}
                >
                  <th>{event.step}</th>
                  <td>{text(event.value)}</td>
                  {history().b.length > 0
                    ? <td>{text(history().b.find((one) => one.step === event.step)?.value)}</td>
                    : null}
                </tr>
              ))}
            </tbody>
          </table>
        )}
    </div>
  );
}

function NoBytes(props: { detail: EventDetail }): Node {
  return (
    <div class="tv-none">
      <h2>The bytes of this tensor were not kept</h2>
      <p>
        It was recorded with its statistics only{props.detail.tensor?.fingerprint
          ? ", and a fingerprint that tells whether two are equal"
          : ""}. What is known stands beside this.
      </p>
    </div>
  );
}

function Empty(props: { shape: readonly number[] }): Node {
  return (
    <div class="tv-none">
      <h2>This tensor has no elements</h2>
      <p>Its shape is {format_shape(props.shape)}.</p>
    </div>
  );
}

function bind_keys(app: App, model: TensorModel): void {
  const move = (down: number, across: number) => (event: KeyboardEvent): void => {
    const by = event.shiftKey ? 10 : 1;
    const at = model.at.peek();
    const place = at === null ? null : place_of(model.picture.peek(), at);
    const view = model.view.peek(), extent = model.extent.peek();
    if (place === null) {
      model.set_view(pan_by(view, extent, down * by * view.rows * 0.08, across * by * view.cols * 0.08));
      return;
    }
    model.go_place(
      Math.max(0, Math.min(extent.rows - 1, place[0] + down * by)),
      Math.max(0, Math.min(extent.cols - 1, place[1] + across * by)),
    );
  };
  const arrows = {
    ArrowUp: ["Move up", move(-1, 0)],
    ArrowDown: ["Move down", move(1, 0)],
    ArrowLeft: ["Move left", move(0, -1)],
    ArrowRight: ["Move right", move(0, 1)],
    "Shift+ArrowUp": ["Ten up", move(-1, 0)],
    "Shift+ArrowDown": ["Ten down", move(1, 0)],
    "Shift+ArrowLeft": ["Ten left", move(0, -1)],
    "Shift+ArrowRight": ["Ten right", move(0, 1)],
  } as const;
  app.keys.view({
    ...Object.fromEntries(
      kAllPanes.map((
        of,
        k,
      ) => [String(k + 1), [`Show or hide ${kPaneTitles[of]}`, () => model.toggle_pane(of)] as const]),
    ),
    b: ["A and B in turn", () => model.toggle("blink", !model.isBlinking.peek())],
    w: ["The worst difference", () => model.jump("worst")],
    l: ["The largest value", () => model.jump("largest")],
    n: ["The next NaN or infinity", () => model.jump("bad")],
    "Shift+N": ["The NaN or infinity before", () => model.jump("bad", true)],
    d: ["The next element that differs", () => model.jump("differs")],
    "Shift+D": ["The element before that differs", () => model.jump("differs", true)],
    m: ["The next element beyond the tolerance", () => model.jump("mismatch")],
    "Shift+M": ["The element before beyond the tolerance", () => model.jump("mismatch", true)],
    "]": ["The step after", () => model.step_by(1)],
    "[": ["The step before", () => model.step_by(-1)],
    ".": ["The step after", () => model.step_by(1)],
    ",": ["The step before", () => model.step_by(-1)],
    "+": ["Closer", () => zoom_middle(model, 1.6)],
    "=": ["Closer", () => zoom_middle(model, 1.6)],
    "-": ["Farther", () => zoom_middle(model, 1 / 1.6)],
    "0": ["All of it", () => model.url.set({ zoom: null })],
    z: ["As close as can be", () => zoom_in(model)],
    t: ["Exchange rows and columns", () => model.toggle("t", !model.picture.peek().isTransposed)],
    f: [
      "Fold all axes but the last",
      () => model.shape.peek().length > 2 && model.toggle("fold", !model.picture.peek().isFolded),
    ],
    s: ["Linear or symlog", () => model.url.set({ scale: model.scaleMode.peek() === "symlog" ? "linear" : "symlog" })],
    i: ["Show or hide what stands beside", () => model.isBeside.update((now) => !now)],
    Escape: ["Let the pinned element go", () => model.pin(null)],
    ...arrows,
  });
  app.actions([
    { title: "Go to the worst difference", key: "w", run: () => void model.jump("worst") },
    { title: "Go to the largest value", key: "l", run: () => void model.jump("largest") },
    { title: "Go to the next NaN or infinity", key: "n", run: () => void model.jump("bad") },
    { title: "Go to the next element that differs", key: "d", run: () => void model.jump("differs") },
    { title: "Go to the next element beyond the tolerance", key: "m", run: () => void model.jump("mismatch") },
    { title: "Blink A and B", key: "b", run: () => model.toggle("blink", !model.isBlinking.peek()) },
    { title: "Exchange rows and columns", key: "t", run: () => model.toggle("t", !model.picture.peek().isTransposed) },
    {
      title: "Linear or symlog colours",
      key: "s",
      run: () => model.url.set({ scale: model.scaleMode.peek() === "symlog" ? "linear" : "symlog" }),
    },
  ]);
}

export function TensorView(app: App): Node {
  const model = new TensorModel(app);
  bind_keys(app, model);
  const isReady = computed(() => model.detail() !== null);
  // What was shown before is of another name than what was asked for.
  const isOther = computed(() => (app.route().name ?? model.detail()?.name) !== model.detail()?.name);
  const kind = computed(() => {
    const detail = model.detail();
    if (detail === null) return "none";
    if (!detail.tensor) return "value";
    if (!detail.tensor.has_bytes) return "bare";
    return detail.tensor.shape.includes(0) ? "empty" : "tensor";
  });
  effect(() => {
    const detail = model.detail();
    if (detail === null) return;
    const picture = model.picture();
    app.status.set({
      command: command_of(detail.command, picture),
      python: python_of(detail.python, picture),
      hint: kind() !== "tensor"
        ? undefined
        : "wheel zooms · drag moves · click pins · 1–5 panes · b blinks · w worst · n NaN · d differs · ? keys",
    });
  });
  onEnd(() => app.status.set({}));
  return (
    <div class={() => `tv ${model.isBeside() ? "" : "tv-wide"}`}>
      {() => {
        if (model.problem() !== null && (!isReady() || isOther())) {
          return (
            <Failure title="This tensor cannot be shown" text={model.problem() ?? ""}>
              <a href={app.href({ view: "table", params: {} })}>The table has every tensor by its name</a>
            </Failure>
          );
        }
        if (!isReady()) return <Skeleton rows={10} />;
        return [
          <Header model={model} />,
          model.problem() !== null ? <p class="tv-problem tv-strip" role="alert">{model.problem()}</p> : null,
          <Body model={model} kind={kind} />,
        ];
      }}
    </div>
  );
}

function Body(props: { model: TensorModel; kind: () => string }): Node {
  const { model, kind } = props;
  return (
    <div class="tv-body">
      {() => {
        switch (kind()) {
          case "value":
            return (
              <div class="tv-main">
                <ValueView model={model} />
              </div>
            );
          case "bare":
            return [
              <div class="tv-main">{() => model.detail() === null ? null : <NoBytes detail={model.detail()!} />}</div>,
              <Inspector model={model} />,
            ];
          case "empty":
            return [<div class="tv-main">{() => <Empty shape={model.shape()} />}</div>, <Inspector model={model} />];
          default:
            return [
              <div class="tv-main">
                <div class="tv-controls">
                  <Toolbar model={model} />
                  <ToleranceRow model={model} />
                  <Slicer model={model} />
                </div>
                <Panes model={model} />
                <Readout model={model} />
              </div>,
              <Inspector model={model} />,
            ];
        }
      }}
    </div>
  );
}
