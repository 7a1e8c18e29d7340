// The page: a bar that says what is looked at, the views, the selectors of step, rank and call, the module tree, and the status line.

import { append, clear, h } from "./lib/jsx.ts";
import { computed, effect, type Read, scope, signal, untrack } from "./lib/signals.ts";
import { page_source } from "./source.ts";
import { type RoutePatch, Router } from "./route.ts";
import { error_text, State } from "./state.ts";
import type { EventDetail, Events } from "./types.ts";
import { verdict_class } from "./lib/paint.ts";
import { hide_tip } from "./lib/tip.tsx";
import { Failure, Skeleton } from "./parts.tsx";
import { open_help, open_palette } from "./palette.tsx";
import { ModuleTree } from "./views/tree.tsx";
import { AnswerView, place_patch } from "./views/answer.tsx";
import { TimelineView } from "./views/timeline.tsx";
import { ModulesView } from "./views/modules.tsx";
import { TableView } from "./views/table.tsx";
import { LinesView } from "./views/lines.tsx";
import { CallsView } from "./views/calls.tsx";
import { RunsView } from "./views/runs.tsx";
import { TensorView } from "./tensor/view.tsx";

interface ViewEntry {
  id: string;
  title: string;
  make: (state: State) => Node;
  isOffered: (state: State) => boolean;
}

const has_run = (state: State) => (state.session()?.sides.length ?? 0) > 0;
// A file by itself has no answer: its tensors are what there is to see.
const is_file_alone = (state: State) => state.session()?.kind === "files" && state.session()!.sides.length === 1;
const of_runs = (state: State) => has_run(state) && state.session()!.kind !== "files";

const kViews: ViewEntry[] = [
  { id: "runs", title: "Runs", make: RunsView, isOffered: (state) => state.session()?.kind === "list" },
  { id: "answer", title: "Answer", make: AnswerView, isOffered: (state) => has_run(state) && !is_file_alone(state) },
  {
    id: "timeline",
    title: "Timeline",
    make: TimelineView,
    isOffered: (state) => of_runs(state) && state.source.covers("/api/timeline"),
  },
  {
    id: "modules",
    title: "Modules",
    make: ModulesView,
    isOffered: (state) => of_runs(state) && state.session()!.has_modules,
  },
  { id: "table", title: "Table", make: TableView, isOffered: has_run },
  { id: "tensor", title: "Tensor", make: TensorView, isOffered: has_run },
  {
    id: "lines",
    title: "Lines",
    make: LinesView,
    isOffered: (state) => of_runs(state) && state.session()!.has_changes && state.source.covers("/api/variables"),
  },
  {
    id: "calls",
    title: "Calls",
    make: CallsView,
    isOffered: (state) => of_runs(state) && state.session()!.has_calls && state.source.covers("/api/calls"),
  },
];

function view_of(state: State): string {
  const { view } = state.route();
  const session = state.session();
  if (session?.kind === "list" && session.sides.length === 0) return "runs";
  return kViews.some((entry) => entry.id === view) ? view : "answer";
}

const kThemeKey = "tenscope-theme";

function stored_theme(): string | null {
  try {
    return localStorage.getItem(kThemeKey);
  } catch {
    return null;
  }
}

function start_theme() {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const chosen = stored_theme();
  const theme = signal<"light" | "dark">(
    chosen === "light" || chosen === "dark" ? chosen : query.matches ? "dark" : "light",
  );
  query.addEventListener("change", () => {
    if (stored_theme() === null) theme.set(query.matches ? "dark" : "light");
  });
  effect(() => {
    document.documentElement.dataset["theme"] = theme();
  });
  return theme;
}

function toggle_theme(state: State): void {
  state.theme.set(state.theme.peek() === "dark" ? "light" : "dark");
  try {
    localStorage.setItem(kThemeKey, state.theme.peek());
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

/** Leads to another step, rank or call: in the tensor view to the event of the same name there. */
async function choose_place(state: State, to: { step?: number; rank?: number; call?: number }): Promise<void> {
  const stepper = state.stepper.peek();
  if (stepper) return stepper(to);
  const route = state.route.peek();
  if (view_of(state) !== "tensor" || route.event === null) return state.go(to, "replace");
  try {
    const { side, event } = route;
    const now = await state.source.json<EventDetail>("/api/event", { side, event });
    const place = { step: now.step, rank: now.rank, call: now.call, ...to };
    const found = await state.source.json<Events>("/api/events", { side, name: now.name, ...place, count: 1 });
    const next = found.events[0];
    if (next) state.go({ event: next.id, ...place }, "replace");
    else state.notify(`${now.name} was not recorded at step ${place.step}, rank ${place.rank}, call ${place.call}`);
  } catch (error) {
    state.notify(error_text(error), { kind: "bad" });
  }
}

function SideChip(props: { state: State; at: number }): Node {
  const { state, at } = props;
  const side = computed(() => state.session()?.sides[at] ?? null);
  const live = computed(() => state.live()?.sides[at] ?? null);
  const word = computed(() => live()?.state ?? side()?.state ?? "");
  return (
    <span
      class="side"
      title={() => [side()?.path, live()?.state_text ?? side()?.state_text, side()?.command].filter(Boolean).join("\n")}
    >
      <span class={`side-letter side-${at === 0 ? "a" : "b"}`}>{at === 0 ? "A" : "B"}</span>
      <span class="side-label">{() => side()?.label ?? ""}</span>
      {() => side()?.kind === "run" ? <span class={`run-state state-${word()}`}>{word()}</span> : null}
    </span>
  );
}

function TopBar(props: { state: State }): Node {
  const { state } = props;
  const verdict = computed(() => {
    const answer = state.answer();
    return answer ? answer.verdict : null;
  });
  return (
    <header class="top">
      <a class="brand" href={state.href({ view: "answer" })} aria-label="tenscope: the answer">
        <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
          <rect x="1" y="1" width="7" height="7" rx="1.5" class="mark-1" />
          <rect x="10" y="1" width="7" height="7" rx="1.5" class="mark-2" />
          <rect x="1" y="10" width="7" height="7" rx="1.5" class="mark-2" />
          <rect x="10" y="10" width="7" height="7" rx="1.5" class="mark-3" />
        </svg>
        <span>tenscope</span>
      </a>
      <div class="subject">
        {() => {
          const session = state.session();
          if (!session) return <span class="bone bone-title"></span>;
          if (session.sides.length === 0) return <span class="side-label">{session.title}</span>;
          return [
            <SideChip state={state} at={0} />,
            session.sides.length > 1 ? [<span class="arrow">→</span>, <SideChip state={state} at={1} />] : null,
          ];
        }}
        {() => {
          const word = verdict();
          if (word === null || is_file_alone(state)) return null;
          return <a class={`chip ${verdict_class(word)}`} href={state.href({ view: "answer" })}>{word}</a>;
        }}
      </div>
      <div class="top-tools">
        {() => state.exportNote() ? <span class="run-state" title={state.exportNote()}>exported page</span> : null}
        {() =>
          state.isRunning()
            ? (
              <button
                type="button"
                class={() => `live ${state.isPaused() ? "paused" : ""} ${state.isLost() ? "lost" : ""}`}
                title="Follow the running recording (L)"
                onClick={() => state.isPaused.update((now) => !now)}
              >
                <span class="live-dot"></span>
                {() => state.isLost() ? "No server" : state.isPaused() ? "Paused" : "Live"}
                <span class="num">
                  {() =>
                    (state.live()?.sides[state.hasTwo() ? 1 : 0]?.last_step ?? null) === null
                      ? ""
                      : `step ${Math.max(...state.live()!.sides.map((side) => side.last_step ?? 0))}`}
                </span>
              </button>
            )
            : null}
        <button type="button" class="search-button" onClick={() => show_palette(state)}>
          <span>Search</span>
          <kbd>Ctrl K</kbd>
        </button>
        <button
          type="button"
          class="icon"
          title="Light or dark (D)"
          aria-label="Light or dark"
          onClick={() => toggle_theme(state)}
        >
          {() => state.theme() === "dark" ? "☀" : "☾"}
        </button>
        <button type="button" class="icon" title="Keys (?)" aria-label="Keys" onClick={() => open_help(state)}>
          ?
        </button>
      </div>
    </header>
  );
}

function Tabs(props: { state: State }): Node {
  const { state } = props;
  return (
    <nav class="tabs" aria-label="Views">
      {() =>
        kViews.filter((entry) => entry.isOffered(state)).map((entry, i) => (
          <a
            class={() => view_of(state) === entry.id ? "tab on" : "tab"}
            href={entry.id === "runs" ? "#/runs" : untrack(() => state.href({ view: entry.id }))}
            title={`${entry.title} (${i + 1})`}
            aria-current={() => view_of(state) === entry.id ? "page" : null}
            onClick={(event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey) return;
              event.preventDefault();
              // Keys are the view's from now on; who came here by the keyboard stays on the tab.
              if (event.detail > 0) (event.currentTarget as HTMLElement).blur();
              open_view(state, entry.id);
            }}
          >
            {entry.title}
          </a>
        ))}
    </nav>
  );
}

function open_view(state: State, id: string): void {
  const { event, name } = state.route.peek();
  if (id === "runs") state.choose(null, null);
  else if (id === "tensor" && event === null && name === null) state.go({ ...first_tensor(state), view: id });
  else state.go({ view: id });
}

/** What the tensor view shows before anything was chosen: what the answer is about, else the first tensor. */
function first_tensor(state: State): RoutePatch {
  const place = state.answer.peek()?.places[0];
  if (place && (place.event_a !== null || place.event_b !== null)) {
    return place_patch(place, place.event_a === null ? "b" : "a");
  }
  const names = state.names.peek();
  const first = names?.kind.indexOf("tensor") ?? -1;
  return first < 0 ? {} : { name: names!.name[first]!, side: (names!.first[first] ?? null) === null ? "b" : "a" };
}

function StepSelector(props: { state: State; isPlaying: Read<boolean>; toggle: () => void }): Node {
  const { state } = props;
  const place = computed(() => {
    const steps = state.steps();
    const step = state.route().step;
    if (steps.length === 0) return -1;
    if (step === null) return -1;
    let at = steps.indexOf(step);
    if (at < 0) at = steps.findIndex((each) => each >= step);
    return at < 0 ? steps.length - 1 : at;
  });
  return (
    <div class="stepper" role="group" aria-label="Step">
      {() =>
        state.steps().length > 1
          ? [
            <button type="button" class="icon" title="Play (Space)" aria-label="Play the steps" onClick={props.toggle}>
              {() => props.isPlaying() ? "❚❚" : "▶"}
            </button>,
            <button
              type="button"
              class="icon"
              title="The step before ([)"
              aria-label="The step before"
              onClick={() => move_step(state, -1)}
            >
              ‹
            </button>,
            <input
              type="range"
              min="0"
              max={state.steps().length - 1}
              value={() => Math.max(0, place())}
              aria-label="Step"
              onInput={(event) => {
                const step = state.steps.peek()[Number((event.currentTarget as HTMLInputElement).value)];
                if (step !== undefined) choose_place(state, { step });
              }}
            />,
            <button
              type="button"
              class="icon"
              title="The step after (])"
              aria-label="The step after"
              onClick={() => move_step(state, 1)}
            >
              ›
            </button>,
            <label class="step-number">
              step
              <input
                type="text"
                inputmode="numeric"
                class="num"
                value={() => state.route().step ?? ""}
                placeholder="all"
                aria-label="Step number"
                onChange={(event) => {
                  const text = (event.currentTarget as HTMLInputElement).value.trim();
                  if (text === "") state.go({ step: null });
                  else if (/^\d+$/.test(text)) choose_place(state, { step: Number(text) });
                }}
              />
              <span class="muted num">/ {state.steps()[state.steps().length - 1] ?? 0}</span>
            </label>,
          ]
          : null}
      {() =>
        state.ranks().length > 1
          ? (
            <label class="picker">
              rank
              <select
                value={() => state.route().rank ?? ""}
                onChange={(event) => {
                  const value = (event.currentTarget as HTMLSelectElement).value;
                  if (value === "") state.go({ rank: null });
                  else choose_place(state, { rank: Number(value) });
                }}
              >
                <option value="">any</option>
                {state.ranks().map((rank) => <option value={rank}>{rank}</option>)}
              </select>
            </label>
          )
          : null}
      {() =>
        state.calls().length > 1
          ? (
            <label class="picker">
              call
              <select
                value={() => state.route().call ?? ""}
                onChange={(event) => {
                  const value = (event.currentTarget as HTMLSelectElement).value;
                  if (value !== "") choose_place(state, { call: Number(value) });
                }}
              >
                {state.calls().map((call) => <option value={call}>{call}</option>)}
              </select>
            </label>
          )
          : null}
    </div>
  );
}

function move_step(state: State, by: number): boolean {
  const steps = state.steps.peek();
  const now = state.route.peek().step;
  if (steps.length === 0) return false;
  let at = now === null ? (by > 0 ? -1 : steps.length) : steps.indexOf(now);
  if (now !== null && at < 0) at = steps.findIndex((step) => step >= now);
  const step = steps[at + by];
  if (step === undefined) return false;
  choose_place(state, { step });
  return true;
}

function StatusLine(props: { state: State }): Node {
  const { state } = props;
  return (
    <footer class="status">
      <span class="status-hint">
        {() => state.status().hint ?? "? shows the keys"}
      </span>
      <span class="status-tools">
        {() => {
          const { command } = state.status();
          return command
            ? (
              <button type="button" title={command} onClick={() => state.copy(command, "the command")}>
                Copy command
              </button>
            )
            : null;
        }}
        {() => {
          const { python } = state.status();
          return python
            ? (
              <button type="button" title={python} onClick={() => state.copy(python, "the Python code")}>
                Copy Python
              </button>
            )
            : null;
        }}
        <button type="button" onClick={() => state.copy(location.href, "the link")}>Copy link</button>
        <span class="muted num">{() => state.session()?.version ?? ""}</span>
      </span>
    </footer>
  );
}

function Toasts(props: { state: State }): Node {
  const { state } = props;
  let known = new Set<number>();
  return (
    <div class="toasts" role="status" aria-live="polite">
      {() => {
        const before = known;
        known = new Set(state.toasts().map((toast) => toast.id));
        return state.toasts().map((toast) => (
          <div class={`toast ${toast.kind ?? "info"} ${before.has(toast.id) ? "" : "fresh"}`}>
            <span>{toast.text}</span>
            {toast.link
              ? (
                <button
                  type="button"
                  class="link"
                  onClick={() => {
                    state.dismiss(toast.id);
                    state.go(toast.link!);
                  }}
                >
                  {toast.linkText ?? "Open"}
                </button>
              )
              : null}
            <button
              type="button"
              class="icon"
              aria-label="Close"
              onClick={() =>
                state.dismiss(toast.id)}
            >
              ×
            </button>
          </div>
        ));
      }}
    </div>
  );
}

function show_palette(state: State): void {
  open_palette(state, () => [
    ...kViews.filter((entry) => entry.isOffered(state)).map((entry) => ({
      kind: "view",
      title: entry.title,
      run: () => open_view(state, entry.id),
    })),
    ...state.viewActions.peek().map((action) => ({ kind: "action", ...action })),
    { kind: "action", title: "Copy link", key: "C", run: () => state.copy(location.href, "the link") },
    { kind: "action", title: "Light or dark", key: "D", run: () => toggle_theme(state) },
    { kind: "action", title: "Show the keys", key: "?", run: () => open_help(state) },
    { kind: "action", title: "Show or hide the module tree", key: "M", run: () => toggle_side(state) },
    {
      kind: "action",
      title: "The first step",
      run: () => choose_place(state, { step: state.steps.peek()[0] ?? 0 }),
    },
    {
      kind: "action",
      title: "The last step",
      run: () => choose_place(state, { step: state.steps.peek().at(-1) ?? 0 }),
    },
    ...(state.answer.peek()?.places ?? []).slice(0, 20).map((place) => ({
      kind: "place",
      title: `${place.title}: ${place.tensor || place.name}`,
      run: () =>
        state.go({
          view: "tensor",
          side: place.event_a === null ? "b" : "a",
          event: place.event_a ?? place.event_b,
          name: place.name,
          step: place.step,
          rank: place.rank,
          call: place.call,
        }),
    })),
  ]);
}

const isSideShown = signal(true);
function toggle_side(_state: State): void {
  isSideShown.update((now) => !now);
}

function page_keys(state: State, play: () => void): void {
  const views = () => kViews.filter((entry) => untrack(() => entry.isOffered(state)));
  const open = (place: number) => {
    const entry = views()[place];
    if (entry) open_view(state, entry.id);
  };
  state.keys.page({
    "?": ["show these keys", () => open_help(state)],
    "Ctrl+K": ["search everything", () => show_palette(state)],
    "/": ["search everything", () => show_palette(state)],
    "]": ["the step after", () => move_step(state, 1)],
    "[": ["the step before", () => move_step(state, -1)],
    "Space": ["play the steps, stop", play],
    "Home": ["the first step", () => choose_place(state, { step: state.steps.peek()[0] ?? 0 })],
    "End": ["the last step", () => choose_place(state, { step: state.steps.peek().at(-1) ?? 0 })],
    ...Object.fromEntries(
      kViews.flatMap((_, i) =>
        ["", "Alt+"].map((prefix) => [`${prefix}${i + 1}`, ["a view, by its number", () => open(i)] as const])
      ),
    ),
    "m": ["show or hide the module tree", () => toggle_side(state)],
    "t": ["go to the module tree: arrows move, fold and unfold, Enter opens", () => {
      isSideShown.set(true);
      (document.querySelector(".tree") as HTMLElement | null)?.focus();
    }],
    "l": ["pause or follow a running recording", () => state.isPaused.update((now) => !now)],
    "d": ["light or dark", () => toggle_theme(state)],
    "c": ["copy the link", () => state.copy(location.href, "the link")],
    "Backspace": ["back", () => history.back()],
  });
}

function Page(props: { state: State }): Node {
  const { state } = props;
  const isPlaying = signal(false);
  const toggle = () => isPlaying.update((now) => !now);
  effect(() => {
    if (!isPlaying()) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden && !move_step(state, 1)) isPlaying.set(false);
    }, 350);
    return () => clearInterval(timer);
  });
  page_keys(state, toggle);
  const main = <main class="view" id="view" tabindex="-1"></main> as HTMLElement;
  const shown = computed(() => {
    if (state.sessionError() !== null) return "failure";
    if (state.session() === null) return "loading";
    // Another run begins its view anew.
    return `${view_of(state)}\n${state.subject()}`;
  });
  effect(() => {
    const [id = ""] = shown().split("\n");
    hide_tip();
    const [node, end] = scope(() => {
      if (id === "loading") return <Skeleton rows={10} />;
      if (id === "failure") {
        return (
          <Failure title="There is nothing to look at" text={state.sessionError.peek() ?? ""}>
            <button type="button" onClick={() => location.reload()}>Try again</button>
          </Failure>
        );
      }
      const entry = kViews.find((each) => each.id === id);
      try {
        return entry!.make(state);
      } catch (error) {
        console.error(error);
        return <Failure title="This view has failed" text={error_text(error)} />;
      }
    });
    clear(main);
    append(main, node);
    return () => {
      end();
      state.status.set({});
      state.stepper.set(null);
    };
  });
  effect(() => {
    const session = state.session();
    const entry = kViews.find((each) => each.id === view_of(state));
    const name = state.route().name;
    document.title = [view_of(state) === "tensor" ? name : entry?.title, session?.title, "tenscope"].filter(Boolean)
      .join(" · ");
  });
  const hasSide = computed(() =>
    isSideShown() && (state.session()?.has_modules ?? false) && (state.session()?.sides.length ?? 0) > 0 &&
    !["runs", "timeline", "modules", "lines"].includes(view_of(state))
  );
  // Where calls were recorded there will be modules: their place is kept, so that nothing moves when they come.
  const keepsSide = computed(() => {
    const session = state.session();
    if (hasSide() || session === null) return hasSide();
    return isSideShown() && session.is_ready === false && session.has_calls && session.sides.length > 0 &&
      !["runs", "timeline", "modules", "lines"].includes(view_of(state));
  });
  return (
    <div class={() => `page ${keepsSide() ? "with-side" : ""} ${shown() === "loading" ? "loading" : ""}`}>
      <TopBar state={state} />
      <div class="second">
        <Tabs state={state} />
        <StepSelector state={state} isPlaying={isPlaying} toggle={toggle} />
      </div>
      <aside class="sidebar" aria-label="Modules">
        {() => hasSide() ? untrack(() => <ModuleTree state={state} />) : keepsSide() ? <Skeleton rows={12} /> : null}
      </aside>
      {main}
      <StatusLine state={state} />
      <Toasts state={state} />
    </div>
  );
}

async function start(): Promise<void> {
  const theme = start_theme();
  try {
    const source = await page_source();
    const router = new Router(globalThis as unknown as ConstructorParameters<typeof Router>[0]);
    const state = new State(source, router, theme);
    // Links of the page work where it has no address of its own, too.
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element ? event.target.closest("a[href^='#/']") : null;
      if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) {
        return;
      }
      event.preventDefault();
      router.open(link.getAttribute("href")!);
    });
    document.addEventListener("keydown", (event) => {
      if (!event.defaultPrevented) state.keys.press(event);
    });
    effect(() => {
      if (!is_file_alone(state) || state.route().view !== "answer") return undefined;
      const one = state.session()!.sides[0]!.events === 1;
      untrack(() => state.go(one ? { view: "tensor", event: 0 } : { view: "table" }, "replace"));
      return undefined;
    });
    clear(document.body);
    document.body.appendChild(<Page state={state} />);
  } catch (error) {
    clear(document.body);
    document.body.appendChild(<Failure title="The page could not start" text={error_text(error)} />);
  }
}

start();
