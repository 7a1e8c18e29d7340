// What `watch` saw: the source with the values beside its lines, and a cursor that goes through the changes as they happened.

import { h } from "../lib/jsx.ts";
import { computed, effect, signal } from "../lib/signals.ts";
import { count_text, number_text, plural, seconds_text, shape_text, value_text } from "../lib/text.ts";
import { error_text, type State } from "../state.ts";
import { type Change, type Changes, type SourceText, to_number, type Variable, type Variables } from "../types.ts";
import { Choice, Empty, Failure, Skeleton, Spark } from "../parts.tsx";

const kMost = 5000;

/** The number that a change can be drawn as; null where it is none. */
export function number_of(change: Pick<Change, "value" | "tensor">): number | null {
  const { value } = change;
  if (typeof value === "number") return value;
  if (value === "nan" || value === "inf" || value === "-inf") return to_number(value);
  if (change.tensor && change.tensor.stats.count === 1) return to_number(change.tensor.stats.mean);
  return null;
}

export function is_bad(change: Pick<Change, "value" | "tensor">): boolean {
  const number = number_of(change);
  if (number !== null) return !Number.isFinite(number);
  const stats = change.tensor?.stats;
  return stats !== undefined && stats.nan + stats.pos_inf + stats.neg_inf > 0;
}

/** Whether there is something to draw: numbers that are not all the same. */
function is_line(numbers: readonly (number | null)[]): boolean {
  return numbers.every((number) => number !== null) && numbers.some((number) => !Object.is(number, numbers[0]));
}

/** Scrolls the box of the code, and nothing around it, until the line is seen. */
function show_line(line: HTMLElement): void {
  const box = line.closest(".code");
  if (!box) return;
  const [seen, own] = [box.getBoundingClientRect(), line.getBoundingClientRect()];
  if (own.top < seen.top) box.scrollTop += own.top - seen.top;
  else if (own.bottom > seen.bottom) box.scrollTop += own.bottom - seen.bottom;
}

export function change_text(change: Pick<Change, "value" | "tensor" | "text">): string {
  const number = number_of(change);
  if (number !== null) return number_text(number, 6);
  if (!change.tensor) return value_text(change.value ?? change.text, 80);
  const { dtype, shape, stats } = change.tensor;
  const bad = stats.nan + stats.pos_inf + stats.neg_inf;
  return `${dtype} ${shape_text(shape)}  ${number_text(to_number(stats.min), 3)} … ${
    number_text(to_number(stats.max), 3)
  }${bad > 0 ? `, ${count_text(bad)} NaN or Inf` : ""}`;
}

export function LinesView(state: State): Node {
  const side = computed(() => state.route().side);
  const variables = signal<Variable[] | null>(null);
  const failure = signal<string | null>(null);
  effect(() => {
    const asked = side();
    state.revision();
    const abort = new AbortController();
    state.source.json<Variables>("/api/variables", { side: asked }, abort.signal).then((answer) => {
      failure.set(null);
      variables.set(answer.variables);
    }, (error) => {
      if (!abort.signal.aborted) failure.set(error_text(error));
    });
    return () => abort.abort();
  });
  const scope = computed(() => state.route().params["scope"] ?? variables()?.[0]?.scope ?? null);
  const name = computed(() => state.route().params["var"] ?? null);
  const changes = signal<Change[]>([]);
  const total = signal(0);
  const source = signal<SourceText | null>(null);
  const sourceNote = signal<string | null>(null);
  const isLoaded = signal(false);
  effect(() => {
    const params = { side: side(), scope: scope(), name: name(), count: kMost };
    state.revision();
    if (params.scope === null) return undefined;
    const abort = new AbortController();
    const load = async () => {
      const answer = await state.source.json<Changes>("/api/changes", params, abort.signal);
      total.set(answer.total);
      changes.set(answer.changes);
      isLoaded.set(true);
      const first = answer.changes[0];
      if (!first) return source.set(null);
      try {
        source.set(
          await state.source.json<SourceText>("/api/source", { side: params.side, event: first.id }, abort.signal),
        );
        sourceNote.set(null);
      } catch (error) {
        if (abort.signal.aborted) return;
        source.set(null);
        sourceNote.set(error_text(error));
      }
    };
    load().catch((error) => {
      if (!abort.signal.aborted) failure.set(error_text(error));
    });
    return () => abort.abort();
  });
  const at = computed(() => {
    const count = changes().length;
    if (count === 0) return -1;
    const chosen = state.route().params["at"];
    const place = chosen === undefined ? -1 : changes().findIndex((change) => change.id === Number(chosen));
    return place >= 0 ? place : count - 1;
  });
  const set_at = (place: number) => {
    const change = changes.peek()[Math.max(0, Math.min(changes.peek().length - 1, place))];
    if (change) state.go({ params: { at: change.id } }, "replace");
  };
  const next_bad = (by: number) => {
    const list = changes.peek();
    for (let i = 1; i <= list.length; i++) {
      const place = (at.peek() + by * i + list.length * 2) % list.length;
      if (is_bad(list[place]!)) return set_at(place);
    }
    state.notify("There is no NaN or Inf among these");
  };
  const byLine = computed(() => {
    const map = new Map<number, Map<string, Change[]>>();
    for (const change of changes()) {
      let names = map.get(change.line);
      if (!names) map.set(change.line, names = new Map());
      const list = names.get(change.name);
      if (list) list.push(change);
      else names.set(change.name, [change]);
    }
    return map;
  });
  state.keys.view({
    "ArrowRight": ["the next change", () => set_at(at.peek() + 1)],
    "ArrowLeft": ["the change before", () => set_at(at.peek() - 1)],
    "Shift+ArrowRight": ["ten changes on", () => set_at(at.peek() + 10)],
    "Shift+ArrowLeft": ["ten changes back", () => set_at(at.peek() - 10)],
    "n": ["the next NaN or Inf", () => next_bad(1)],
    "p": ["the NaN or Inf before", () => next_bad(-1)],
    "Home": ["the first change", () => set_at(0)],
    "End": ["the last change", () => set_at(Infinity)],
  });
  state.status.set({
    hint: "← and → go through the changes, n to the next NaN; a click on a value goes to its last change",
  });

  const Values = (props: { line: number }) => {
    const names = byLine().get(props.line);
    if (!names) return null;
    const now = changes()[at()];
    return [...names].map(([variable, list]) => {
      // The latest at the cursor; what comes later is not known there yet.
      let last: Change | null = null;
      for (const change of list) if (now === undefined || change.id <= now.id) last = change;
      const numbers = list.map(number_of);
      const isLine = is_line(numbers);
      return (
        <span
          class={`code-value ${last && now && last.id === now.id ? "now" : ""}`}
          onClick={() => last && set_at(changes.peek().indexOf(last))}
        >
          <b>{variable}</b>
          <span class={last && is_bad(last) ? "is-nan" : ""}>{last ? change_text(last) : "not yet"}</span>
          {isLine
            ? (
              <Spark
                a={numbers.map((number, i) => [i, number!])}
                width={64}
                height={16}
                label={`${variable} at each change`}
              />
            )
            : null}
          {list.length > 1 ? <span class="muted">×{count_text(list.length)}</span> : null}
        </span>
      );
    });
  };

  return (
    <div class="column">
      <div class="toolbar">
        {() =>
          state.hasTwo()
            ? (
              <Choice<"a" | "b">
                label="Side"
                options={[["a", state.session()?.sides[0]?.label ?? "a"], [
                  "b",
                  state.session()?.sides[1]?.label ?? "b",
                ]]}
                value={side}
                onChoose={(value) => state.go({ side: value, params: { at: null } }, "replace")}
              />
            )
            : null}
        <button
          type="button"
          class="icon"
          aria-label="The change before"
          title="The change before (←)"
          onClick={() => set_at(at.peek() - 1)}
        >
          ‹
        </button>
        <input
          type="range"
          min="0"
          class="wide-range"
          max={() => Math.max(0, changes().length - 1)}
          value={() => Math.max(0, at())}
          aria-label="Change"
          onInput={(event) => set_at(Number((event.currentTarget as HTMLInputElement).value))}
        />
        <button
          type="button"
          class="icon"
          aria-label="The next change"
          title="The next change (→)"
          onClick={() => set_at(at.peek() + 1)}
        >
          ›
        </button>
        <span class="num muted">
          {() => {
            const now = changes()[at()];
            if (!now) return "";
            return [
              `change ${count_text(at() + 1)} of ${count_text(total())}`,
              now.step === null ? "" : `step ${now.step}`,
              `call ${now.call}`,
              seconds_text(now.time),
            ].filter(Boolean).join(" · ");
          }}
        </span>
        <span class="grow"></span>
        {() =>
          total() > changes().length
            ? <span class="muted">the first {count_text(changes().length)} are shown</span>
            : null}
        <button type="button" onClick={() => next_bad(1)}>Next NaN</button>
      </div>
      {() => {
        if (failure() !== null) return <Failure title="What was watched could not be read" text={failure()!} />;
        if (variables() === null) return <Skeleton rows={12} />;
        if (variables()!.length === 0) {
          return (
            <Empty title="Nothing was watched">
              tenscope.watch records how the variables of a function change, line by line.
            </Empty>
          );
        }
        return null;
      }}
      {() => {
        const list = variables();
        if (!list || list.length === 0) return null;
        const scopes = [...new Set(list.map((variable) => variable.scope))];
        return (
          <div class="lines">
            <nav class="lines-list" aria-label="Variables">
              {scopes.map((each) => [
                <a
                  class={() => `lines-scope mono ${scope() === each && name() === null ? "on" : ""}`}
                  href={state.href({ params: { scope: each, var: null, at: null } })}
                >
                  {each}
                </a>,
                list.filter((variable) => variable.scope === each).map((variable) => (
                  <a
                    class={() => `lines-var mono ${scope() === each && name() === variable.name ? "on" : ""}`}
                    href={state.href({ params: { scope: each, var: variable.name, at: null } })}
                    title={`${variable.file}, ${variable.lines.length === 1 ? "line" : "lines"} ${
                      variable.lines.join(", ")
                    }`}
                  >
                    {variable.name}
                    <span class="num">{count_text(variable.changes)}</span>
                  </a>
                )),
              ])}
            </nav>
            <div class="code">{() => <Code />}</div>
            <div class="watch-now">{() => <Now />}</div>
          </div>
        );
      }}
    </div>
  );

  function Code(): Node {
    const text = source();
    if (!isLoaded()) return <Skeleton rows={14} />;
    if (!text) {
      // Without the source the lines that are known stand below each other.
      return (
        <div>
          <p class="muted pad">
            {sourceNote() ?? "The source is not on this machine."} The lines that changed something:
          </p>
          {[...byLine().keys()].sort((a, b) => a - b).map((line) => (
            <div class="code-line">
              <span class="code-number">{line}</span>
              <span class="code-text muted">{[...byLine().get(line)!.keys()].join(", ")} = …</span>
              <span class="code-values">{() => Values({ line })}</span>
            </div>
          ))}
        </div>
      );
    }
    const lines = [...byLine().keys()];
    const from = Math.max(text.first, lines.reduce((least, line) => Math.min(least, line), Infinity) - 12);
    const to = Math.min(text.first + text.lines.length, lines.reduce((most, line) => Math.max(most, line), 0) + 14);
    const rows: Node[] = [];
    for (let line = from; line < to; line++) {
      const hasValues = byLine().has(line);
      rows.push(
        <div
          class={() => `code-line ${hasValues ? "hit" : ""} ${changes()[at()]?.line === line ? "on" : ""}`}
          ref={(element) => {
            // The line of the cursor stays in view.
            effect(() => {
              if (changes()[at()]?.line === line) queueMicrotask(() => show_line(element));
            });
          }}
        >
          <span class="code-number">{line}</span>
          <span class="code-text">{text.lines[line - text.first] ?? ""}</span>
          <span class="code-values">{hasValues ? () => Values({ line }) : null}</span>
        </div>,
      );
    }
    return (
      <div>
        <div class="muted pad code-file">{text.file}</div>
        {rows}
      </div>
    );
  }

  /** Every variable as it is at the cursor. */
  function Now(): Node {
    const list = changes();
    const place = at();
    const last = new Map<string, { change: Change; seen: Change[] }>();
    for (let i = 0; i <= place && i < list.length; i++) {
      const change = list[i]!;
      const entry = last.get(change.name);
      if (entry) {
        entry.change = change;
        entry.seen.push(change);
      } else last.set(change.name, { change, seen: [change] });
    }
    if (last.size === 0) return <p class="muted">Nothing has changed yet.</p>;
    const fresh = list[place];
    return (
      <div>
        <h2>At this moment</h2>
        {[...last].map(([variable, { change, seen }]) => {
          const numbers = seen.map(number_of);
          const isLine = is_line(numbers);
          return (
            <div class={`watch-item ${fresh === change ? "fresh" : ""}`}>
              <div class="watch-name">
                <span>{variable}</span>
                <span class="muted num">{plural(seen.length, "change")}</span>
              </div>
              <div class={`watch-value ${is_bad(change) ? "is-nan" : ""}`}>{change_text(change)}</div>
              {isLine
                ? (
                  <Spark
                    a={numbers.map((number, i) => [i, number!])}
                    width={210}
                    height={34}
                    label={`${variable} so far`}
                  />
                )
                : null}
              {change.tensor
                ? (
                  <a
                    href={state.href({
                      view: "tensor",
                      side: side(),
                      event: change.id,
                      name: null,
                      step: change.step,
                      call: null,
                    })}
                  >
                    Look at it
                  </a>
                )
                : null}
            </div>
          );
        })}
      </div>
    );
  }
}
