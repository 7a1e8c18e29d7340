// A folder of recordings: one is opened, two are compared.

import { h } from "../lib/jsx.ts";
import { computed, effect, onEnd, signal } from "../lib/signals.ts";
import { VirtualList } from "../lib/virtual.tsx";
import { name_filter } from "../lib/fuzzy.ts";
import { ago_text, bytes_text, count_text, plural } from "../lib/text.ts";
import { error_text, type State } from "../state.ts";
import type { RunEntry, Runs } from "../types.ts";
import { Empty, Failure, Skeleton } from "../parts.tsx";

const kColumns = "70px minmax(180px, 1fr) 110px 120px 70px 90px 80px minmax(180px, 1.4fr)";

export function RunsView(state: State): Node {
  const list = signal<RunEntry[] | null>(null);
  const failure = signal<string | null>(null);
  const filter = signal("");
  const [a, b] = [signal<string | null>(null), signal<string | null>(null)];
  const active = signal<number | null>(null);
  const load = () =>
    state.runs<Runs>().then((answer) => {
      failure.set(null);
      list.set(answer.runs);
    }, (error) => failure.set(error_text(error)));
  load();
  const timer = setInterval(() => {
    if (!document.hidden && list.peek()?.some((run) => run.state === "running")) load();
  }, 3000);
  onEnd(() => clearInterval(timer));
  const shown = computed(() => {
    const matches = name_filter(filter());
    return (list() ?? []).filter((run) => matches(`${run.name} ${run.command} ${run.state}`));
  });
  const choose = (name: string) => {
    if (a.peek() === name) {
      a.set(b.peek());
      b.set(null);
    } else if (b.peek() === name) b.set(null);
    else if (a.peek() === null) a.set(name);
    else b.set(name);
  };
  const open = () => {
    const row = active.peek() === null ? null : shown.peek()[active.peek()!]?.name ?? null;
    const first = a.peek() ?? row;
    if (first !== null) state.choose(first, b.peek());
  };
  const move = (by: number) =>
    active.update((now) => Math.max(0, Math.min(shown.peek().length - 1, now === null ? 0 : now + by)));
  let input: HTMLInputElement | null = null;
  state.keys.view({
    "j": ["the next run", () => move(1)],
    "k": ["the run before", () => move(-1)],
    "ArrowDown": ["the next run", () => move(1)],
    "ArrowUp": ["the run before", () => move(-1)],
    "x": ["choose the run, first A, then B", () => {
      const run = active.peek() === null ? undefined : shown.peek()[active.peek()!];
      if (run) choose(run.name);
    }],
    "s": ["exchange A and B", () => {
      const now = a.peek();
      if (b.peek() === null) return;
      a.set(b.peek());
      b.set(now);
    }],
    "f": ["filter", () => input?.focus()],
    "Enter": ["open, or compare", open],
  });
  effect(() => {
    const [first, second] = [a(), b()];
    state.status.set({
      hint: "Click a run to open it. x chooses the run under the bar, first A, then B; Enter opens or compares",
      command: first ? `tenscope ${second ? `diff ${first} ${second}` : `view ${first}`}` : undefined,
    });
  });
  return (
    <div class="column">
      <div class="toolbar">
        <h1>{() => list() ? plural(list()!.length, "recording") : "Recordings"}</h1>
        <input
          type="search"
          placeholder="Filter"
          aria-label="Filter recordings"
          ref={(element) => input = element}
          onInput={(event) => filter.set((event.currentTarget as HTMLInputElement).value)}
        />
        <span class="grow"></span>
        {() =>
          a() === null ? <span class="muted">Choose two to compare them</span> : [
            <span class="side">
              <span class="side-letter side-a">A</span>
              <span class="side-label">{a()}</span>
            </span>,
            <span class="arrow">→</span>,
            <span class="side">
              <span class="side-letter side-b">B</span>
              <span class={b() ? "side-label" : "muted"}>{b() ?? "choose another"}</span>
            </span>,
            <button type="button" class="button primary" onClick={open}>{b() ? "Compare" : "Open A"}</button>,
          ]}
      </div>
      <div class="grid-head" style={{ "grid-template-columns": kColumns }}>
        <span>compare</span>
        <span>name</span>
        <span>state</span>
        <span>started</span>
        <span class="right">steps</span>
        <span class="right">events</span>
        <span class="right">size</span>
        <span>command</span>
      </div>
      {() => {
        if (failure() !== null) {
          return (
            <Failure title="The folder could not be read" text={failure()!}>
              <button type="button" onClick={load}>Try again</button>
            </Failure>
          );
        }
        if (list() === null) return <Skeleton rows={10} />;
        if (list()!.length === 0) {
          return (
            <Empty title="There are no recordings in this folder">
              A program records with tenscope.trace or tenscope.record; its runs appear here.
            </Empty>
          );
        }
        if (shown().length === 0) return <Empty title="No recording matches">Change the filter.</Empty>;
        return null;
      }}
      <VirtualList
        count={computed(() => shown().length)}
        rowHeight={30}
        class="grid-body"
        label="Recordings"
        version={() => [shown(), a(), b(), active()]}
        active={active}
        row={(index) => {
          const run = shown.peek()[index]!;
          const isA = a.peek() === run.name;
          const isB = b.peek() === run.name;
          return (
            <div
              class={`grid-row ${active.peek() === index ? "on" : ""}`}
              style={{ "grid-template-columns": kColumns }}
              role="option"
              onClick={() => state.choose(run.name, null)}
            >
              <span>
                <button
                  type="button"
                  class={isA ? "pick side-letter side-a" : isB ? "pick side-letter side-b" : "pick"}
                  aria-label={`Choose ${run.name}`}
                  onClick={(event) => {
                    event.stopPropagation();
                    choose(run.name);
                  }}
                >
                  {isA ? "A" : isB ? "B" : ""}
                </button>
              </span>
              <span class="mono">{run.name}</span>
              <span title={run.state_text}>
                <span class={`run-state state-${run.state}`}>{run.state}</span>
              </span>
              <span class="muted" title={new Date(run.started * 1000).toLocaleString()}>{ago_text(run.started)}</span>
              <span class="num right">{count_text(run.steps)}</span>
              <span class="num right">{count_text(run.events)}</span>
              <span class="num right muted">{bytes_text(run.size_bytes)}</span>
              <span class="mono muted" title={run.command}>{short_command(run.command)}</span>
            </div>
          );
        }}
      />
    </div>
  );
}

/** As it was typed: without the folders of the interpreter. */
export function short_command(command: string): string {
  return command.replace(/^(['"]?)\/\S*\/(python[\d.]*)\1(?=\s|$)/, "$2").replace(
    /^python[\d.]* -m tenscope\.run(?=\s|$)/,
    "tenscope run",
  );
}
