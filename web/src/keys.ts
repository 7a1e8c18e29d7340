// Keys of the page and of the open view. A key is written as it is shown: "j", "Shift+J", "Ctrl+K", "ArrowLeft", "?", "Space".

import { onEnd } from "./lib/signals.ts";

export type Handler = (event: KeyboardEvent) => void;
export type KeyMap = Record<string, readonly [what: string, handler: Handler]>;

/** The name of a key press, as KeyMap has it. */
export function key_name(
  event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "shiftKey">,
): string {
  let key = event.key === " " ? "Space" : event.key;
  if (key.length === 1 && key !== key.toUpperCase() && (event.ctrlKey || event.metaKey)) key = key.toUpperCase();
  // Shift is part of a sign such as "?", and is named with letters and named keys only.
  const isLetter = key.length === 1 && key.toLowerCase() !== key.toUpperCase();
  if (isLetter && event.shiftKey) key = key.toUpperCase();
  const needsShift = event.shiftKey && (isLetter || key.length > 1);
  return `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${
    needsShift ? "Shift+" : ""
  }${key}`;
}

function is_typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement &&
    (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement ||
      (target instanceof HTMLInputElement && !["range", "checkbox", "radio", "button"].includes(target.type)));
}

export class Keys {
  readonly #page = new Map<string, readonly [string, Handler]>();
  readonly #views: Map<string, readonly [string, Handler]>[] = [];

  /** Keys that hold everywhere. */
  page(map: KeyMap): void {
    for (const [key, entry] of Object.entries(map)) this.#page.set(key, entry);
  }

  /** Keys of the open view, before those of the page; they end with the view. */
  view(map: KeyMap): void {
    const mine = new Map(Object.entries(map));
    this.#views.push(mine);
    onEnd(() => {
      const place = this.#views.indexOf(mine);
      if (place >= 0) this.#views.splice(place, 1);
    });
  }

  list(): { title: string; keys: [key: string, what: string][] }[] {
    const rows = (map: Map<string, readonly [string, Handler]>): [string, string][] =>
      [...map].map(([key, [what]]) => [key, what]);
    const own = this.#views.flatMap(rows);
    const taken = new Set(own.map(([key]) => key));
    return [
      { title: "This view", keys: own },
      { title: "Everywhere", keys: rows(this.#page).filter(([key]) => !taken.has(key)) },
    ].filter((group) => group.keys.length > 0);
  }

  /** True where the key was one of ours. */
  press(event: KeyboardEvent): boolean {
    const name = key_name(event);
    if (is_typing(event.target) && !name.startsWith("Ctrl+") && name !== "Escape") return false;
    // Arrow keys of a slider that has the focus are its own, and so is Space of a button.
    if (
      event.target instanceof HTMLInputElement && event.target.type === "range" && /^(Arrow|Page|Home|End)/.test(name)
    ) {
      return false;
    }
    if (event.target instanceof HTMLButtonElement && (name === "Space" || name === "Enter")) return false;
    if (event.target instanceof HTMLAnchorElement && name === "Enter") return false;
    for (const map of [...this.#views].reverse()) {
      const found = map.get(name);
      if (found) return this.#run(found, event);
    }
    const found = this.#page.get(name);
    return found ? this.#run(found, event) : false;
  }

  #run(entry: readonly [string, Handler], event: KeyboardEvent): boolean {
    event.preventDefault();
    entry[1](event);
    return true;
  }
}
