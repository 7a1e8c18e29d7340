// Small parts that several views use.

import { type Child, h } from "./lib/jsx.ts";
import type { Read } from "./lib/signals.ts";
import type { State } from "./state.ts";

export function Failure(props: { title: string; text: string; children?: Child }): Node {
  return (
    <div class="state-box failure" role="alert">
      <h2>{props.title}</h2>
      <p>{props.text}</p>
      {props.children}
    </div>
  );
}

export function Empty(props: { title: string; children?: Child }): Node {
  return (
    <div class="state-box">
      <h2>{props.title}</h2>
      <div class="state-text">{props.children}</div>
    </div>
  );
}

export function Skeleton(props: { rows?: number; progress?: Read<number | null>; text?: string }): Node {
  const rows = Array.from(
    { length: props.rows ?? 8 },
    (_, i) => <div class="bone" style={{ width: `${[62, 84, 47, 73, 55, 90, 66, 38][i % 8]}%` }}></div>,
  );
  return (
    <div class="skeleton" aria-busy="true">
      {props.progress ? <ProgressBar done={props.progress} text={props.text ?? "Working it out"} /> : null}
      {rows}
    </div>
  );
}

/** One colour of a legend, and what it means. */
export function LegendItem(props: { swatch: string; text: string }): Node {
  return (
    <span class="legend-item">
      <span class={`swatch ${props.swatch}`}></span>
      {props.text}
    </span>
  );
}

/** Folds and unfolds a row of a tree of modules. */
export function Caret(props: { state: State; of: string }): Node {
  const { state, of } = props;
  return (
    <button
      type="button"
      class={`caret ${state.collapsed.peek().has(of) ? "" : "open"}`}
      aria-label="Fold or unfold"
      onClick={(event) => {
        event.stopPropagation();
        state.toggle([of]);
      }}
    >
      ›
    </button>
  );
}

export function ProgressBar(props: { done: Read<number | null>; text: string | (() => string) }): Node {
  return (
    <div class="progress" role="progressbar" aria-label={props.text}>
      <div class="progress-text">
        <span>{props.text}</span>
        <span class="num">{() => props.done() === null ? "" : `${Math.round(props.done()! * 100)} %`}</span>
      </div>
      <div class={() => `progress-track ${props.done() === null ? "unsure" : ""}`}>
        <div class="progress-fill" style={{ width: () => `${Math.round((props.done() ?? 0.3) * 100)}%` }}></div>
      </div>
    </div>
  );
}

/** A row of buttons of which one is chosen. */
export function Choice<T extends string>(
  props: { label: string; options: readonly (readonly [T, string])[]; value: () => T; onChoose: (value: T) => void },
): Node {
  return (
    <div class="choice" role="radiogroup" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button
          type="button"
          role="radio"
          aria-checked={() => String(props.value() === value)}
          class={() => props.value() === value ? "on" : ""}
          onClick={() => props.onChoose(value)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** Letters of a text that were searched for are marked. */
export function Marked(props: { text: string; places: readonly number[] }): Node {
  const parts: Child[] = [];
  let at = 0;
  for (let i = 0; i < props.places.length;) {
    const start = props.places[i]!;
    let end = start + 1;
    i++;
    while (props.places[i] === end) {
      end++;
      i++;
    }
    parts.push(props.text.slice(at, start), <mark>{props.text.slice(start, end)}</mark>);
    at = end;
  }
  parts.push(props.text.slice(at));
  return <span>{parts}</span>;
}

/** Several values of one step stand behind each other within it, and not above each other. */
export function spread_steps(points: readonly (readonly [number, number])[]): [number, number][] {
  const spread: [number, number][] = [];
  for (let i = 0; i < points.length;) {
    const step = points[i]![0];
    let end = i + 1;
    while (end < points.length && points[end]![0] === step) end++;
    const room = end < points.length ? points[end]![0] - step : 1;
    for (let at = i; at < end; at++) spread.push([step + (at - i) / (end - i) * room, points[at]![1]]);
    i = end;
  }
  return spread;
}

/** A small line of numbers; those that are not finite are marks at the top. */
export function spark_path(
  points: readonly (readonly [number, number])[],
  width: number,
  height: number,
  range?: readonly [number, number],
): { line: string; bad: number[] } {
  const finite = points.filter(([, y]) => Number.isFinite(y));
  const xs = points.map(([x]) => x);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const ys = finite.map(([, y]) => y);
  const [y0, y1] = range ?? [Math.min(...ys), Math.max(...ys)];
  const place = (x: number) => x1 > x0 ? (x - x0) / (x1 - x0) * (width - 2) + 1 : width / 2;
  const level = (y: number) => y1 > y0 ? height - 1.5 - (y - y0) / (y1 - y0) * (height - 3) : height / 2;
  let line = "";
  let isOpen = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) {
      isOpen = false;
      continue;
    }
    line += `${isOpen ? "L" : "M"}${place(x).toFixed(1)} ${level(y).toFixed(1)}`;
    isOpen = true;
  }
  if (finite.length === 1) line += "h0.01";
  return { line, bad: points.filter(([, y]) => !Number.isFinite(y)).map(([x]) => place(x)) };
}

export function Spark(
  props: {
    a: readonly (readonly [number, number])[];
    b?: readonly (readonly [number, number])[];
    width: number;
    height: number;
    label?: string;
  },
): Node {
  const all = [...props.a, ...(props.b ?? [])].map(([, y]) => y).filter(Number.isFinite);
  const range: [number, number] | undefined = all.length > 0
    ? [all.reduce((m, y) => Math.min(m, y), Infinity), all.reduce((m, y) => Math.max(m, y), -Infinity)]
    : undefined;
  const a = spark_path(props.a, props.width, props.height, range);
  const b = props.b && props.b.length > 0 ? spark_path(props.b, props.width, props.height, range) : null;
  return (
    <svg
      class="spark"
      width={props.width}
      height={props.height}
      viewBox={`0 0 ${props.width} ${props.height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={props.label ?? "over steps"}
    >
      {b ? <path class="spark-b" d={b.line} /> : null}
      <path class="spark-a" d={a.line} />
      {[...a.bad, ...(b?.bad ?? [])].map((x) => (
        <rect class="spark-bad" x={x - 1} y={props.height - 5} width="2" height="5" />
      ))}
    </svg>
  );
}
