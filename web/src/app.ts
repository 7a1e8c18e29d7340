// What every view is given.
//
// A view is a function `(app: App) => Node`. It is called once when it is opened, inside a scope: effects made in it end, and
// functions given to `onEnd` run, when another view is opened. While it is open it follows `app.route()`: what a person chooses
// is written with `app.go(...)` and read from `app.route()`, so that every state is a link and Back undoes.
//
//   const event = computed(() => app.route().event);
//   effect(() => { const id = event(); ... app.source.json<EventDetail>("/api/event", { side, event: id }) ... });
//   app.go({ view: "tensor", side: "a", event: 17 });                      // another place: pushed
//   app.go({ params: { slice: "0,:,:" } }, "replace");                     // a way of looking: replaced
//
// The tensor view is `export function TensorView(app: App): Node` in src/tensor/view.tsx. Its place is `side` and `event`; where
// only `name` (and `step`, `rank`, `call`) are given it finds the event itself with /api/events. When it shows an event it writes
// that one's `name`, `step`, `rank`, `call` into the route ("replace"), so that the shell's selectors show them. For the other
// direction it sets `app.stepper`: the shell's selectors and keys call it with what was chosen. While it is null the shell looks
// for the event of the same name itself. Free parameters of the route are the view's own. Its styles are src/tensor/tensor.css,
// which style.css imports.

import type { Read, Signal } from "./lib/signals.ts";
import type { Params, Source } from "./source.ts";
import type { Live, Names, Session } from "./types.ts";
import type { Route, RoutePatch } from "./route.ts";
import type { Keys } from "./keys.ts";

export interface Action {
  title: string;
  /** A key as it is shown, for the palette. */
  key?: string;
  run(): void;
}

/** What the status line offers to copy, and says. A view sets it whenever what it shows changes. */
export interface Status {
  command?: string;
  python?: string;
  hint?: string;
}

export interface NotifyOptions {
  kind?: "info" | "bad" | "good";
  /** Where a click on it leads. */
  link?: RoutePatch;
  linkText?: string;
}

export interface App {
  /** Adds `run` and `against` to each request where a run of a list was chosen. */
  readonly source: Source;

  readonly route: Read<Route>;
  go(patch: RoutePatch, mode?: "push" | "replace"): void;
  /** The address of a place, for <a href>. */
  href(patch: RoutePatch): string;

  /** null until the first answer. */
  readonly session: Read<Session | null>;

  /** Rises when a running recording has more, at most about once a second: views ask anew when it changes. */
  readonly revision: Read<number>;
  /** The last answer of /api/live; null without a running side. */
  readonly live: Read<Live | null>;
  readonly isPaused: Signal<boolean>;

  /** Shared answers, asked once for each revision; null while they are worked out. */
  readonly names: Read<Names | null>;

  /** "light" or "dark" as it is shown now; canvases draw again when it changes. */
  readonly theme: Read<"light" | "dark">;

  /** A note at the edge of the page. */
  notify(text: string, options?: NotifyOptions): void;

  readonly status: Signal<Status>;

  /** Leads to the same tensor at another step, rank or call; set by the tensor view while it is open, else null. */
  readonly stepper: Signal<((to: { step?: number; rank?: number; call?: number }) => void) | null>;

  /** Keys of the open view: `app.keys.view({ "n": ["the next NaN", () => ...] })`; they end with the view. */
  readonly keys: Keys;
  /** Actions of the open view in the palette; they end with the view. */
  actions(list: Action[]): void;

  /** Asks until the answer is no longer {"state": "working"}; `progress` is told how far it is. */
  ready<T extends { state?: string }>(
    path: string,
    params?: Params,
    options?: { signal?: AbortSignal; progress?: (done: number | null) => void },
  ): Promise<T>;

  copy(text: string, what: string): void;
}
