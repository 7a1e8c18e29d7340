import type { App } from "../app.ts";
import { computed, effect, onEnd, type Read, type Signal, signal } from "../lib/signals.ts";

// Parameters of the address. They are written a moment later, so that a drag does not write hundreds.
export class UrlState {
  readonly #app: App;
  readonly #pending = new Map<string, string | null>();
  readonly #texts: Signal<Readonly<Record<string, string>>>;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(app: App) {
    this.#app = app;
    this.#texts = signal({});
    let last: { event: number | null; name: string | null } = { event: null, name: null };
    effect(() => {
      const { event, name, params } = app.route();
      // What was chosen of one tensor is not for the one that a link leads to.
      const isOther = event === null ? name !== last.name : last.event !== null && last.event !== event;
      if (isOther) this.#pending.clear();
      last = { event, name };
      const merged: Record<string, string> = { ...params };
      for (const [name, value] of this.#pending) {
        if (value === null) delete merged[name];
        else merged[name] = value;
      }
      this.#texts.set(merged);
    });
    onEnd(() => clearTimeout(this.#timer));
  }

  read(name: string): Read<string | null> {
    return computed(() => this.#texts()[name] ?? null);
  }

  set(patch: Record<string, string | null>): void {
    const merged = { ...this.#texts.peek() };
    for (const [name, value] of Object.entries(patch)) {
      this.#pending.set(name, value);
      if (value === null) delete merged[name];
      else merged[name] = value;
    }
    this.#texts.set(merged);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), 250);
  }

  flush(): void {
    clearTimeout(this.#timer);
    if (this.#pending.size === 0) return;
    const params = Object.fromEntries(this.#pending);
    this.#pending.clear();
    this.#app.go({ params }, "replace");
  }
}
