// What stands around the views: the bar that says what is looked at, the tabs, the status line, notes, and the theme.

import { h } from "./lib/jsx.ts";
import { computed, effect, signal, untrack } from "./lib/signals.ts";
import { verdict_class } from "./lib/paint.ts";
import { open_help } from "./palette.tsx";
import type { State } from "./state.ts";
import { is_file_alone, kViews, open_view, view_of } from "./views.ts";

const kThemeKey = "tenscope-theme";

function stored_theme(): string | null {
  try {
    return localStorage.getItem(kThemeKey);
  } catch {
    return null;
  }
}

export function start_theme() {
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

export function toggle_theme(state: State): void {
  state.theme.set(state.theme.peek() === "dark" ? "light" : "dark");
  try {
    localStorage.setItem(kThemeKey, state.theme.peek());
  } catch {
    // Without storage the choice lasts as long as the page.
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

export function TopBar(props: { state: State; search: () => void }): Node {
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
        <button type="button" class="search-button" onClick={props.search}>
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

export function Tabs(props: { state: State }): Node {
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

export function StatusLine(props: { state: State }): Node {
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

export function Toasts(props: { state: State }): Node {
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
