// Every name, with what is known of it: sorted, filtered, and with its statistic over the steps.

import { h } from "../lib/jsx.ts";
import { computed, effect, onEnd, type Read, signal } from "../lib/signals.ts";
import { type Range, VirtualList } from "../lib/virtual.tsx";
import { name_filter } from "../lib/fuzzy.ts";
import { count_text, number_text, shape_text } from "../lib/text.ts";
import { num } from "../lib/paint.ts";
import type { State } from "../state.ts";
import { kPhaseWords, type Names, type Series, to_number, Verdict, verdict_word } from "../types.ts";
import { Empty, Failure, Skeleton, Spark, spread_steps } from "../parts.tsx";

const kStats = ["l2", "abs_max", "mean", "std", "min", "max", "nan", "zero", "subnormal", "error"];
const kRow = 28;

type SortBy = "order" | "name" | "io" | "dtype" | "shape" | "events" | "bad" | "verdict" | "error";

function verdict_tone(code: number): string {
  return ["equal", "same", "noise", "unknown", "carries", "starts", "alone"][code] ?? "none";
}

export function phase_word(phase: number | string | undefined): string {
  return typeof phase === "number" ? kPhaseWords[phase] ?? "" : phase ?? "";
}

/** The numbers of the names that are shown, in their order. */
export function table_order(
  names: Names,
  filter: { text: string; module: string; only: string },
  sort: SortBy,
  isDown: boolean,
): Int32Array {
  const matches = name_filter(filter.text);
  const kept: number[] = [];
  for (let i = 0; i < names.name.length; i++) {
    if (
      filter.module !== "" && names.module[i] !== filter.module && !names.module[i]!.startsWith(filter.module + ".")
    ) continue;
    if (filter.only === "bad" && !(names.bad[i]! > 0)) continue;
    if (filter.only === "differ" && !(names.verdict[i]! >= Verdict.unknown)) continue;
    if (!matches(names.name[i]!)) continue;
    kept.push(i);
  }
  const order = Int32Array.from(kept);
  if (sort === "order") return isDown ? order.reverse() : order;
  const numeric = (value: (i: number) => number) => {
    const keys = new Float64Array(names.name.length);
    for (const i of kept) {
      const key = value(i);
      keys[i] = Number.isNaN(key) ? -Infinity : key;
    }
    return (a: number, b: number) => keys[a]! - keys[b]! || a - b;
  };
  const textual = (value: (i: number) => string) => (a: number, b: number) => {
    const [x, y] = [value(a), value(b)];
    return x < y ? -1 : x > y ? 1 : a - b;
  };
  const compare = {
    name: textual((i) => names.name[i]!),
    io: textual((i) => names.io[i]!),
    dtype: textual((i) => names.dtype[i] ?? ""),
    shape: textual((i) => shape_text(names.shape[i])),
    events: numeric((i) => names.events[i]!),
    bad: numeric((i) => names.bad[i]!),
    // What starts a difference stands above what is on one side only.
    verdict: numeric((i) => [0, 1, 2, 3, 4, 6, 5][names.verdict[i]!] ?? -1),
    error: numeric((i) => num(names.error[i])),
  }[sort];
  order.sort(compare);
  return isDown ? order.reverse() : order;
}

export function TableView(state: State): Node {
  const param = (name: string): Read<string> => computed(() => state.route().params[name] ?? "");
  const [text, module, only, stat] = [param("filter"), param("module"), param("only"), param("stat")];
  const sort = computed(() => (state.route().params["sort"] ?? "order") as SortBy);
  const isDown = computed(() => state.route().params["down"] === "1");
  const chosenStat = computed(() => stat() || "l2");
  const order = computed(() => {
    const names = state.names();
    return names
      ? table_order(names, { text: text(), module: module(), only: only() }, sort(), isDown())
      : new Int32Array(0);
  });
  const active = signal<number | null>(null);
  effect(() => {
    order();
    active.set(null);
  });

  // Lines over the steps, asked for the rows that are seen, together and once.
  const lines = new Map<number, { a: [number, number][]; b: [number, number][] }>();
  const loaded = signal(0);
  let range: Range = { first: 0, end: 0 };
  let abort = new AbortController();
  let timer = 0;
  const ask = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const rows = order.peek();
      const wanted: number[] = [];
      for (let row = range.first; row < Math.min(range.end, rows.length); row++) {
        const i = rows[row]!;
        if (!lines.has(i)) wanted.push(i);
      }
      if (wanted.length === 0 || state.steps.peek().length < 2) return;
      abort.abort();
      abort = new AbortController();
      try {
        const answer = await state.source.json<Series>("/api/series", {
          stat: chosenStat.peek(),
          names: wanted.join(","),
          points: 100,
        }, abort.signal);
        const points = (list: Series["series"][number]["a"] | undefined) =>
          spread_steps((list ?? []).map(([step, value]): [number, number] => [step, to_number(value)]));
        wanted.forEach((i, at) => lines.set(i, { a: points(answer.series[at]?.a), b: points(answer.series[at]?.b) }));
        loaded.update((n) => n + 1);
      } catch {
        // The rows stay without a line; the next scroll asks again.
      }
    }, 60);
  };
  onEnd(() => {
    clearTimeout(timer);
    abort.abort();
  });
  effect(() => {
    chosenStat();
    state.revision();
    lines.clear();
    loaded.update((n) => n + 1);
  });

  const open = (row: number) => {
    const names = state.names.peek();
    const i = order.peek()[row];
    if (!names || i === undefined) return;
    const isB = names.first[i] === null || names.first[i] === undefined;
    const step = state.route.peek().step;
    state.go({
      view: "tensor",
      side: isB ? "b" : "a",
      event: step === null ? (isB ? names.first_b[i] : names.first[i]) ?? null : null,
      name: names.name[i]!,
      step,
      call: null,
    });
  };
  const move = (by: number) => {
    const last = order.peek().length - 1;
    if (last < 0) return;
    // Enter is then for the row, and no longer for a button that was clicked.
    if (document.activeElement instanceof HTMLButtonElement) document.activeElement.blur();
    active.update((now) => Math.max(0, Math.min(last, now === null ? (by > 0 ? 0 : last) : now + by)));
  };
  let input: HTMLInputElement | null = null;
  state.keys.view({
    "j": ["the next row", () => move(1)],
    "k": ["the row before", () => move(-1)],
    "ArrowDown": ["the next row", () => move(1)],
    "ArrowUp": ["the row before", () => move(-1)],
    "PageDown": ["twenty rows on", () => move(20)],
    "PageUp": ["twenty rows back", () => move(-20)],
    "Enter": ["open the tensor", () => active.peek() !== null && open(active.peek()!)],
    "f": ["filter", () => input?.focus()],
    "Escape": ["drop the filter", () => {
      input?.blur();
      state.go({ params: { filter: null, module: null, only: null } }, "replace");
    }],
  });
  state.status.set({ hint: "f filters (words, or a glob with *), j and k move, Enter opens the tensor" });

  const sorter = (by: SortBy, title: string, right = false) => (
    <button
      type="button"
      class={right ? "right" : ""}
      onClick={() => {
        const down = sort.peek() === by ? !isDown.peek() : ["events", "bad", "verdict", "error"].includes(by);
        state.go({ params: { sort: by === "order" ? null : by, down } }, "replace");
      }}
    >
      {title}
      <span>{() => sort() === by ? (isDown() ? "↓" : "↑") : ""}</span>
    </button>
  );
  const two = state.hasTwo.peek();
  const columns = two
    ? "minmax(220px, 1.4fr) 60px 76px 96px 56px 60px 112px 76px minmax(150px, 1fr)"
    : "minmax(220px, 1.4fr) 60px 76px 110px 56px 70px minmax(190px, 1fr)";

  return (
    <div class="column">
      <div class="toolbar">
        <input
          type="search"
          class="mono"
          size="34"
          placeholder="Filter: words, or blocks.*.weight"
          aria-label="Filter names"
          value={text}
          ref={(element) => input = element}
          onInput={(event) =>
            state.go({ params: { filter: (event.currentTarget as HTMLInputElement).value } }, "replace")}
          onKeyDown={(event) => {
            if (event.key === "Enter" || event.key === "ArrowDown") {
              event.preventDefault();
              input?.blur();
              move(1);
            }
          }}
        />
        {() =>
          module() !== ""
            ? (
              <button
                type="button"
                title="All modules"
                onClick={() => state.go({ params: { module: null } }, "replace")}
              >
                <span class="mono">{module()}</span> ×
              </button>
            )
            : null}
        <select
          value={only}
          aria-label="Which"
          onChange={(event) =>
            state.go({ params: { only: (event.currentTarget as HTMLSelectElement).value } }, "replace")}
        >
          <option value="">all</option>
          {two ? <option value="differ">that differ</option> : null}
          <option value="bad">with NaN or Inf</option>
        </select>
        <span class="muted num">
          {() => state.names() ? `${count_text(order().length)} of ${count_text(state.names()!.name.length)}` : ""}
        </span>
        <span class="grow"></span>
        <label>
          over steps
          <select
            value={chosenStat}
            onChange={(event) =>
              state.go({ params: { stat: (event.currentTarget as HTMLSelectElement).value } }, "replace")}
          >
            {kStats.filter((each) => two || each !== "error").map((each) => <option value={each}>{each}</option>)}
          </select>
        </label>
      </div>
      <div class="grid-head" style={{ "grid-template-columns": columns }}>
        {sorter("name", "name")}
        {sorter("io", "io")}
        {sorter("dtype", "dtype")}
        {sorter("shape", "shape")}
        {sorter("events", "events", true)}
        {sorter("bad", "NaN, Inf", true)}
        {two ? sorter("verdict", "verdict") : null}
        {two ? sorter("error", "error", true) : null}
        <span>{chosenStat}</span>
      </div>
      {() => {
        if (state.names.error() !== null && state.names() === null) {return (
            <Failure title="There are no names" text={state.names.error()!} />
          );}
        if (state.names() === null) return <Skeleton rows={16} progress={state.names.progress} />;
        if (order().length === 0) {
          return (
            <Empty title="No name matches">
              <button
                type="button"
                onClick={() => state.go({ params: { filter: null, module: null, only: null } }, "replace")}
              >
                Show all
              </button>
            </Empty>
          );
        }
        return null;
      }}
      <VirtualList
        count={computed(() => order().length)}
        rowHeight={kRow}
        class="grid-body"
        label="Names"
        version={() => [order(), loaded(), active()]}
        active={active}
        onRange={(now) => {
          range = now;
          ask();
        }}
        row={(row) => {
          const names = state.names.peek()!;
          const i = order.peek()[row]!;
          const line = lines.get(i);
          const error = num(names.error[i]);
          return (
            <div
              class={`grid-row ${active.peek() === row ? "on" : ""}`}
              style={{ "grid-template-columns": columns }}
              role="option"
              onClick={() => open(row)}
            >
              <span class="name-cell" title={`${names.name[i]} ${phase_word(names.phase[i])}`}>{names.name[i]}</span>
              <span class="muted">{names.io[i]}</span>
              <span class="muted">{names.dtype[i] || names.kind[i]}</span>
              <span class="num" title={shape_text(names.shape[i])}>{shape_text(names.shape[i])}</span>
              <span class="num right muted">{count_text(names.events[i]!)}</span>
              <span class={`num right ${names.bad[i]! > 0 ? "bad-text" : "muted"}`}>
                {names.bad[i]! > 0 ? count_text(names.bad[i]!) : ""}
              </span>
              {two
                ? (
                  <span class="verdict-cell">
                    <span class={`swatch ${verdict_tone(names.verdict[i]!)}`}></span>
                    {verdict_word(names.verdict[i]!)}
                  </span>
                )
                : null}
              {two ? <span class="num right">{Number.isNaN(error) ? "" : number_text(error, 3)}</span> : null}
              <span>
                {line
                  ? (
                    <Spark
                      a={line.a}
                      b={line.b}
                      width={two ? 146 : 186}
                      height={kRow - 6}
                      label={`${names.name[i]} over steps`}
                    />
                  )
                  : null}
              </span>
            </div>
          );
        }}
      />
    </div>
  );
}
