// The page: its frame, the view that the address names, and the keys.

import { append, clear, h } from "./lib/jsx.ts";
import { computed, effect, scope, signal, untrack } from "./lib/signals.ts";
import { page_source } from "./source.ts";
import { Router } from "./route.ts";
import { error_text, State } from "./state.ts";
import { hide_tip } from "./lib/tip.tsx";
import { Failure, Skeleton } from "./parts.tsx";
import { open_help, open_palette } from "./palette.tsx";
import { start_theme, StatusLine, Tabs, Toasts, toggle_theme, TopBar } from "./frame.tsx";
import { choose_place, move_step, StepSelector } from "./steps.tsx";
import { is_file_alone, kViews, open_view, view_of } from "./views.ts";
import { ModuleTree } from "./views/tree.tsx";

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
      <TopBar state={state} search={() => show_palette(state)} />
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
