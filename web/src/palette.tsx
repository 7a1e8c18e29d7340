// Ctrl+K: everything that can be gone to or done, found by a few of its letters.

import { clear, h } from "./lib/jsx.ts";
import { computed, effect, onEnd, scope, signal, untrack } from "./lib/signals.ts";
import { key_name } from "./keys.ts";
import { FuzzyIndex, match_places } from "./lib/fuzzy.ts";
import { Marked } from "./parts.tsx";
import type { State } from "./state.ts";

interface Entry {
  kind: string;
  title: string;
  key?: string;
  run(): void;
}

const kShown = 60;

/** Entries are made when they are needed: there may be a hundred thousand. */
class Catalogue {
  readonly index: FuzzyIndex;
  readonly #fixed: Entry[];
  readonly #state: State;
  readonly #modules: readonly { root: string; path: string }[];

  constructor(state: State, fixed: Entry[]) {
    this.#state = state;
    this.#fixed = fixed;
    this.#modules = (state.modules.peek()?.nodes ?? []).filter((node) => node.path !== "");
    const names = state.names.peek()?.name ?? [];
    this.index = new FuzzyIndex([
      ...fixed.map((entry) => entry.title),
      ...this.#modules.map((node) => node.path),
      ...names,
    ]);
  }

  entry(at: number): Entry {
    const state = this.#state;
    if (at < this.#fixed.length) return this.#fixed[at]!;
    at -= this.#fixed.length;
    const node = this.#modules[at];
    if (node) {
      return {
        kind: "module",
        title: node.path,
        run: () => state.go({ view: "table", params: { module: node.path, filter: null } }),
      };
    }
    at -= this.#modules.length;
    const names = state.names.peek()!;
    const name = names.name[at]!;
    const isB = names.first[at] === null || names.first[at] === undefined;
    return {
      kind: names.io[at] || "tensor",
      title: name,
      run: () => {
        const route = state.route.peek();
        const step = route.step;
        const event = isB ? names.first_b[at] ?? null : names.first[at] ?? null;
        // The same step where the name has one there: the tensor view looks for it by name.
        state.go({
          view: "tensor",
          side: isB ? "b" : "a",
          event: step === null ? event : null,
          name,
          step,
          call: null,
        });
      },
    };
  }
}

export function open_palette(state: State, actions: () => Entry[]): void {
  if (document.querySelector(".palette")) return;
  const before = document.activeElement as HTMLElement | null;
  const query = signal("");
  const chosen = signal(0);
  const [node, end] = scope(() => {
    const list = <div class="palette-list" role="listbox" id="palette-list"></div> as HTMLElement;
    const note = <div class="palette-note"></div> as HTMLElement;
    let shown: Entry[] = [];
    const close = () => {
      overlay.remove();
      end();
      before?.focus?.();
    };
    const run = (at: number) => {
      const entry = shown[at];
      if (!entry) return;
      close();
      entry.run();
    };
    // Names may arrive while the palette is open.
    const catalogue = computed(() => {
      state.names();
      state.modules();
      return untrack(() => new Catalogue(state, actions()));
    });
    effect(() => draw(catalogue(), query()));
    function draw(catalogue: Catalogue, text: string) {
      const start = performance.now();
      const numeric = /^\s*(?:step\s+)?(\d+)\s*$/.exec(text);
      const found = catalogue.index.search(text, kShown);
      shown = found.map((match) => catalogue.entry(match.index));
      if (numeric && state.steps.peek().includes(Number(numeric[1]))) {
        const step = Number(numeric[1]);
        shown.unshift({ kind: "step", title: `Go to step ${step}`, run: () => state.go({ step }) });
      }
      const ms = performance.now() - start;
      clear(list);
      shown.forEach((entry, at) => {
        list.appendChild(
          <div
            class={() => `palette-row ${chosen() === at ? "on" : ""}`}
            role="option"
            aria-selected={() => String(chosen() === at)}
            onClick={() => run(at)}
            onPointerMove={() => chosen.set(at)}
          >
            <span class="palette-kind">{entry.kind}</span>
            <span class="palette-title">
              <Marked text={entry.title} places={match_places(entry.title, text)} />
            </span>
            {entry.key ? <kbd>{entry.key}</kbd> : null}
          </div>,
        );
      });
      note.textContent = shown.length === 0
        ? "Nothing has these letters in this order."
        : `${catalogue.index.texts.length.toLocaleString("en-US")} things searched in ${ms.toFixed(0)} ms`;
      chosen.set(0);
    }
    const input = (
      <input
        class="palette-input"
        type="text"
        placeholder="A tensor, a module, a view, a step, an action"
        aria-label="Search"
        aria-controls="palette-list"
        spellcheck="false"
        autocomplete="off"
        onInput={(event) => query.set((event.currentTarget as HTMLInputElement).value)}
        onKeyDown={(event) => {
          const last = shown.length - 1;
          const move = (to: number) => {
            event.preventDefault();
            chosen.set(Math.max(0, Math.min(last, to)));
            list.children[chosen.peek()]?.scrollIntoView({ block: "nearest" });
          };
          if (event.key === "ArrowDown") move(chosen.peek() === last ? 0 : chosen.peek() + 1);
          else if (event.key === "ArrowUp") move(chosen.peek() === 0 ? last : chosen.peek() - 1);
          else if (event.key === "PageDown") move(chosen.peek() + 10);
          else if (event.key === "PageUp") move(chosen.peek() - 10);
          else if (event.key === "Enter") {
            event.preventDefault();
            run(chosen.peek());
          } else if (event.key === "Escape" || (event.key === "Tab")) {
            event.preventDefault();
            close();
          } else return;
          event.stopPropagation();
        }}
      />
    ) as HTMLInputElement;
    const overlay = (
      <div class="overlay" onPointerDown={(event) => event.target === overlay && close()}>
        <div class="palette" role="dialog" aria-label="Search">
          {input}
          {list}
          {note}
        </div>
      </div>
    ) as HTMLElement;
    onEnd(() => overlay.remove());
    queueMicrotask(() => input.focus());
    return overlay;
  });
  document.body.appendChild(node);
}

export function open_help(state: State): void {
  if (document.querySelector(".help")) return;
  const before = document.activeElement as HTMLElement | null;
  const close = () => {
    overlay.remove();
    before?.focus?.();
  };
  const overlay = (
    <div
      class="overlay"
      tabindex="-1"
      onPointerDown={(event) => event.target === overlay && close()}
      onKeyDown={(event) => {
        if (event.key === "Escape" || event.key === "?") {
          event.preventDefault();
          close();
        }
        // Whoever has found the key that opens the search may press it here.
        if (key_name(event) === "Ctrl+K") return close();
        event.stopPropagation();
      }}
    >
      <div class="help" role="dialog" aria-label="Keys">
        <h2>Keys</h2>
        <div class="help-groups">
          {state.keys.list().map((group) => (
            <section>
              <h3>{group.title}</h3>
              <dl>
                {by_meaning(group.keys).map(([what, keys]) => [
                  <dt>{key_ranges(keys).map((key) => key === "…" ? "…" : <kbd>{key_text(key)}</kbd>)}</dt>,
                  <dd>{what}</dd>,
                ])}
              </dl>
            </section>
          ))}
        </div>
      </div>
    </div>
  ) as HTMLElement;
  document.body.appendChild(overlay);
  overlay.focus();
}

/** Keys that do the same stand together. */
function by_meaning(keys: readonly [key: string, what: string][]): [what: string, keys: string[]][] {
  const map = new Map<string, string[]>();
  for (const [key, what] of keys) {
    const list = map.get(what);
    if (list) list.push(key);
    else map.set(what, [key]);
  }
  return [...map];
}

/** A key as it is printed on a keyboard. */
export function key_text(key: string): string {
  const signs: Record<string, string> = {
    ArrowLeft: "←",
    ArrowRight: "→",
    ArrowUp: "↑",
    ArrowDown: "↓",
    Escape: "Esc",
    PageUp: "Page up",
    PageDown: "Page down",
  };
  const parts = key === "+" ? ["+"] : key.split("+");
  return parts.map((part) => signs[part] ?? part).join(" ");
}

/** 1, 2, 3 … 8 as 1 … 8: the first and the last of keys that follow each other. */
export function key_ranges(keys: readonly string[]): string[] {
  const follows = (a: string | undefined, b: string | undefined): boolean =>
    a !== undefined && b !== undefined && a.slice(0, -1) === b.slice(0, -1) && /\d$/.test(a) &&
    Number(b.at(-1)) === Number(a.at(-1)) + 1;
  return keys.flatMap((key, i) => {
    const isInside = follows(keys[i - 1], key) && follows(key, keys[i + 1]);
    if (!isInside) return [key];
    return follows(keys[i - 2], keys[i - 1]) ? [] : ["…"];
  });
}
