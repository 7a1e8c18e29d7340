// The rows above the panes: what is shown and how, the tolerance, and the slicer.

import { type Child, h } from "../lib/jsx.ts";
import { computed, type Read } from "../lib/signals.ts";
import { format_count, format_percent } from "./format.ts";
import { kAllPanes, kPaneTitles, limit_text, type TensorModel, usual_tolerance } from "./model.ts";
import { zoom_middle } from "./pointer.ts";
import { format_slice, open_axes, parse_slice, type Part, type Role, role_of, set_role } from "./slicing.ts";
import type { CellMode } from "./tile.ts";

function value_of(event: { currentTarget: EventTarget | null }): string {
  return (event.currentTarget as HTMLInputElement | HTMLSelectElement).value;
}

function Toggle(
  props: {
    isOn: () => boolean;
    title: string;
    onClick: () => void;
    isOff?: () => boolean;
    class?: string;
    children?: Child;
  },
): Node {
  return (
    <button
      type="button"
      class={() => `tv-toggle ${props.class ?? ""} ${props.isOn() ? "on" : ""}`}
      aria-pressed={() => String(props.isOn())}
      title={props.title}
      disabled={() => props.isOff?.() ?? false}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}

// The first letter is the key.
function Jump(
  props: { text: string; title: string; onClick: () => void; isOff?: () => boolean; isHidden?: () => boolean },
): Node {
  return (
    <button
      type="button"
      class="tv-jump"
      title={props.title}
      disabled={() => props.isOff?.() ?? false}
      hidden={() => props.isHidden?.() ?? false}
      onClick={props.onClick}
    >
      <u>{props.text.slice(0, 1)}</u>
      {props.text.slice(1)}
    </button>
  );
}

export function Toolbar(props: { model: TensorModel }): Node {
  const { model } = props;
  const isAlone = (): boolean => !model.isComparable();
  const isReduced = computed(() => model.panes().some((of) => model.tiles[of]().overview?.exact === false));
  const hasBad = computed(() => {
    const count = (stats: { nan: number; pos_inf: number; neg_inf: number } | undefined): number =>
      stats ? stats.nan + stats.pos_inf + stats.neg_inf : 0;
    return count(model.detail()?.tensor?.stats) + count(model.partner()?.tensor?.stats) > 0;
  });
  return (
    <div class="tv-toolbar" role="toolbar" aria-label="what is shown">
      <div class="tv-group tv-pane-choice" hidden={isAlone}>
        <div class="choice">
          {kAllPanes.map((of, k) => (
            <Toggle
              class={`tv-pick-${of}`}
              isOn={() => !model.isBlinking() && model.panes().includes(of)}
              isOff={() => of !== "a" && isAlone()}
              title={`Show or hide ${kPaneTitles[of]} (${k + 1})`}
              onClick={() => model.toggle_pane(of)}
            >
              {kPaneTitles[of]}
            </Toggle>
          ))}
        </div>
        <Toggle
          isOn={model.isBlinking}
          isOff={isAlone}
          title="A and B in turn, in one pane (b)"
          onClick={() => model.toggle("blink", !model.isBlinking.peek())}
        >
          Blink
        </Toggle>
      </div>
      <div class="tv-group">
        <select
          aria-label="scale"
          title="How colours follow the values (s)"
          value={model.scaleMode}
          onChange={(event) => model.url.set({ scale: value_of(event) === "auto" ? null : value_of(event) })}
        >
          <option value="auto">auto scale</option>
          <option value="linear">linear</option>
          <option value="symlog">symlog</option>
        </select>
        <select
          aria-label="where the colours end"
          title="Where the colours end"
          value={() => model.isFullRange() ? "max" : "p999"}
          onChange={(event) => model.url.set({ range: value_of(event) === "max" ? "max" : null })}
        >
          <option value="p999">99.9 %</option>
          <option value="max">max |x|</option>
        </select>
        <select
          aria-label="what a reduced cell shows"
          title="What a reduced cell shows"
          hidden={() => !isReduced()}
          value={model.cellMode}
          onChange={(event) => {
            const value = value_of(event) as CellMode;
            model.url.set({ cell: value === "peak" ? null : value });
          }}
        >
          <option value="peak">peak</option>
          <option value="min">min</option>
          <option value="max">max</option>
          <option value="mean">mean</option>
        </select>
      </div>
      <div class="tv-group">
        <div class="choice">
          <button type="button" title="Farther (-)" aria-label="farther" onClick={() => zoom_middle(model, 1 / 1.6)}>
            −
          </button>
          <button type="button" title="All of it (0)" onClick={() => model.url.set({ zoom: null })}>fit</button>
          <button type="button" title="Closer (+)" aria-label="closer" onClick={() => zoom_middle(model, 1.6)}>
            +
          </button>
        </div>
      </div>
      <div class="tv-group" aria-label="go to an element">
        <Jump text="worst" title="The largest |b − a| (w)" isHidden={isAlone} onClick={() => model.jump("worst")} />
        <Jump text="largest" title="The largest |a| (l)" onClick={() => model.jump("largest")} />
        <Jump
          text="NaN"
          title="The next NaN or infinity; Shift: back (n)"
          isOff={() => !hasBad()}
          onClick={() => model.jump("bad")}
        />
        <Jump
          text="differs"
          title="The next element that differs; Shift: back (d)"
          isHidden={isAlone}
          onClick={() => model.jump("differs")}
        />
        <Jump
          text="mismatch"
          title="The next element beyond the tolerance; Shift: back (m)"
          isHidden={isAlone}
          onClick={() => model.jump("mismatch")}
        />
      </div>
    </div>
  );
}

// ---- tolerance

// The slider runs over powers of ten; its left end is 0.
const kLeast = -12, kMost = 2;

export function slider_of(value: number): number {
  return value > 0 ? Math.max(kLeast, Math.min(kMost, Math.log10(value))) : kLeast - 0.5;
}

export function from_slider(place: number): number {
  return place < kLeast - 0.25 ? 0 : Number((10 ** place).toPrecision(2));
}

function Limit(props: { model: TensorModel; name: "rtol" | "atol" }): Node {
  const { model, name } = props;
  const now = (): number => model.limits()?.[name] ?? 0;
  const set = (value: number): void => {
    const old = model.limits.peek() ?? { rtol: 0, atol: 0 };
    if (Number.isFinite(value) && value >= 0) model.set_limits({ ...old, [name]: value });
  };
  return (
    <label class="tv-limit">
      <span>{name}</span>
      <input
        type="range"
        min={kLeast - 0.5}
        max={kMost}
        step="0.05"
        value={() => slider_of(now())}
        aria-label={`${name}, a slider`}
        onInput={(event) => set(from_slider(Number(value_of(event))))}
      />
      <input
        type="text"
        class="num"
        value={() => limit_text(now())}
        onChange={(event) => set(Number(value_of(event)))}
        aria-label={name}
      />
    </label>
  );
}

export function ToleranceRow(props: { model: TensorModel }): Node {
  const { model } = props;
  return (
    <div class="tv-tolerance" hidden={() => !model.isComparable()}>
      <Toggle
        isOn={() => model.limits() !== null}
        title="Mark what is beyond a tolerance: |b − a| > atol + rtol |a|"
        onClick={() =>
          model.set_limits(
            model.limits.peek() === null ? usual_tolerance(model.detail.peek()?.tensor?.dtype ?? "") : null,
          )}
      >
        Tolerance
      </Toggle>
      {() => model.limits() === null ? null : <ToleranceLimits model={model} />}
      <span class="tv-count num">
        {() => {
          const found = model.tolerance();
          if (model.limits() === null || found === null) return "";
          return `${format_count(found.mismatches)} of ${format_count(found.count)} beyond (${
            format_percent(found.mismatches, found.count)
          })`;
        }}
      </span>
    </div>
  );
}

function ToleranceLimits(props: { model: TensorModel }): Node {
  return (
    <span class="tv-limits">
      <Limit model={props.model} name="rtol" />
      <Limit model={props.model} name="atol" />
    </span>
  );
}

// ---- slicer

export function Slicer(props: { model: TensorModel }): Node {
  const { model } = props;
  const rank = computed(() => model.shape().length);
  const text = computed(() => {
    const picture = model.picture();
    return format_slice(picture.parts, picture.shape);
  });
  const apply = (written: string): void => {
    const shape = model.shape.peek();
    try {
      const parts = parse_slice(written, shape);
      if (open_axes(parts).length > 2) model.sliceProblem.set("at most two axes may be left: give the others an index");
      else {
        model.sliceProblem.set(null);
        model.set_slice(parts);
      }
    } catch (error) {
      model.sliceProblem.set(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <div class="tv-slicer" hidden={() => rank() === 0} aria-label="slice">
      {() => model.shape().map((size, axis) => <Axis model={model} axis={axis} size={size} rank={rank} />)}
      <div class="tv-slice-text">
        <Toggle
          isOn={() => model.picture().isTransposed}
          title="Exchange rows and columns (t)"
          onClick={() => model.toggle("t", !model.picture.peek().isTransposed)}
        >
          ⇄
        </Toggle>
        <span hidden={() => rank() < 3}>
          <Toggle
            isOn={() => model.picture().isFolded}
            title="All axes but the last become rows (f)"
            onClick={() => model.toggle("fold", !model.picture.peek().isFolded)}
          >
            fold
          </Toggle>
        </span>
        <label class="tv-slice-box">
          <span class="muted">[</span>
          <input
            type="text"
            class="mono"
            value={text}
            disabled={() => model.picture().isFolded}
            size="10"
            aria-label="slice, as --slice takes it"
            aria-invalid={() => String(model.sliceProblem() !== null)}
            onChange={(event) => apply(value_of(event))}
          />
          <span class="muted">]</span>
        </label>
        <span class="tv-problem" role="alert">{() => model.sliceProblem() ?? ""}</span>
      </div>
    </div>
  );
}

function Axis(props: { model: TensorModel; axis: number; size: number; rank: Read<number> }): Node {
  const { model, axis, size } = props;
  const part = computed((): Part | null => model.picture().parts[axis] ?? null);
  const role = computed((): Role | "folded" => {
    const picture = model.picture();
    if (picture.isFolded) {
      return axis === picture.shape.length - 1 ? (picture.isTransposed ? "rows" : "cols") : "folded";
    }
    return role_of(picture, axis);
  });
  const index = (): number => {
    const now = part();
    return now?.kind === "index" ? now.index : 0;
  };
  const set_index = (value: number): void => {
    if (!Number.isInteger(value)) return;
    const picture = model.picture.peek();
    const next = Math.max(0, Math.min(size - 1, value));
    model.set_slice(picture.parts.map((one, at): Part => (at === axis ? { kind: "index", index: next } : one)));
  };
  return (
    <div class={() => `tv-axis tv-role-${role()}`}>
      <span class="tv-axis-name" title={`axis ${axis} has ${size} elements`}>
        {axis}
        <span class="muted">:{format_count(size)}</span>
      </span>
      <select
        aria-label={`axis ${axis}`}
        value={role}
        disabled={() => model.picture().isFolded}
        onChange={(event) => {
          const next = set_role(model.picture.peek(), axis, value_of(event) as Role);
          model.url.set({ zoom: null });
          model.set_slice(next.parts, next.isTransposed);
        }}
      >
        <option value="rows">rows ↓</option>
        <option value="cols">columns →</option>
        <option value="index" disabled={size === 0}>index</option>
        <option value="folded" hidden>folded</option>
      </select>
      {() =>
        role() === "index" && part()?.kind === "index"
          ? (
            <span class="tv-index">
              <input
                type="range"
                min="0"
                max={Math.max(0, size - 1)}
                value={index}
                aria-label={`index of axis ${axis}, a slider`}
                hidden={size < 2}
                onInput={(event) => set_index(Number(value_of(event)))}
              />
              <input
                type="number"
                class="num"
                min="0"
                max={Math.max(0, size - 1)}
                value={index}
                aria-label={`index of axis ${axis}`}
                onChange={(event) => set_index(Number(value_of(event)))}
              />
            </span>
          )
          : null}
    </div>
  );
}
