// The state of the page is its address: #/tensor?event=5&side=b&slice=0,:,:
//
// `go` changes it. What a person would call a place (another view, tensor, run) is pushed, so that Back returns to it; what is
// only a way of looking (a slider that is dragged, a zoom) replaces the entry. Free parameters belong to a view: those that a
// view had are restored when it is opened again without any.

import { batch, type Read, signal } from "./lib/signals.ts";

export type SideName = "a" | "b";

export interface Route {
  /** answer, timeline, modules, table, lines, calls, runs or tensor. */
  view: string;
  run: string | null;
  against: string | null;
  side: SideName;
  event: number | null;
  name: string | null;
  step: number | null;
  rank: number | null;
  call: number | null;
  /** Free parameters of the view. */
  params: Readonly<Record<string, string>>;
}

export type RoutePatch = Partial<Omit<Route, "params">> & {
  /** Merged into the view's free parameters; null removes one. */
  params?: Record<string, string | number | boolean | null>;
};

export const kEmptyRoute: Route = {
  view: "answer",
  run: null,
  against: null,
  side: "a",
  event: null,
  name: null,
  step: null,
  rank: null,
  call: null,
  params: {},
};

const kTexts = ["run", "against", "name"] as const;
const kNumbers = ["event", "step", "rank", "call"] as const;
const kKnown = new Set<string>(["side", ...kTexts, ...kNumbers]);

/** Percent-encodes what would be misread in a fragment, and leaves the rest readable. */
function encode_part(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replace(/%(2C|3A|2F|5B|5D|20|24|40|3B)/g, (all, code: string) => {
    return code === "20" ? "+" : code === "5B" || code === "5D" ? all : String.fromCharCode(parseInt(code, 16));
  });
}

function decode_part(text: string): string {
  const spaced = text.replace(/\+/g, " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced;
  }
}

export function format_route(route: Route): string {
  const parts: string[] = [];
  const add = (name: string, value: string | number | null) => {
    if (value !== null) parts.push(`${encode_part(name)}=${encode_part(String(value))}`);
  };
  add("run", route.run);
  add("against", route.against);
  add("name", route.name);
  add("step", route.step);
  add("rank", route.rank);
  add("call", route.call);
  if (route.side !== "a") add("side", route.side);
  add("event", route.event);
  for (const name of Object.keys(route.params).sort()) if (!kKnown.has(name)) add(name, route.params[name] ?? null);
  return `#/${encode_part(route.view)}${parts.length > 0 ? "?" + parts.join("&") : ""}`;
}

export function parse_route(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const view = decode_part(mark < 0 ? text : text.slice(0, mark));
  const route = { ...kEmptyRoute, view: view || kEmptyRoute.view };
  const params: Record<string, string> = {};
  for (const part of mark < 0 ? [] : text.slice(mark + 1).split("&")) {
    const equals = part.indexOf("=");
    if (equals <= 0) continue;
    const name = decode_part(part.slice(0, equals));
    const value = decode_part(part.slice(equals + 1));
    if (name === "side") route.side = value === "b" ? "b" : "a";
    else if ((kTexts as readonly string[]).includes(name)) route[name as typeof kTexts[number]] = value;
    else if ((kNumbers as readonly string[]).includes(name)) {
      if (/^-?\d+$/.test(value)) route[name as typeof kNumbers[number]] = Number(value);
    } else params[name] = value;
  }
  return { ...route, params };
}

/** The route after a change. `remembered` are the free parameters that each view had when it was left. */
export function apply_patch(
  route: Route,
  patch: RoutePatch,
  remembered: ReadonlyMap<string, Readonly<Record<string, string>>> = new Map(),
): Route {
  const { params: more, ...rest } = patch;
  const isOther = rest.view !== undefined && rest.view !== route.view;
  const params: Record<string, string> = { ...(isOther ? remembered.get(rest.view!) ?? {} : route.params) };
  for (const [name, value] of Object.entries(more ?? {})) {
    if (value === null || value === false || value === "") delete params[name];
    else params[name] = value === true ? "1" : String(value);
  }
  return { ...route, ...rest, params };
}

/** What Router needs of a window. */
export interface Address {
  location: { hash: string };
  history: {
    pushState(data: unknown, unused: string, url: string): void;
    replaceState(data: unknown, unused: string, url: string): void;
  };
  addEventListener(type: string, listener: () => void): void;
}

export class Router {
  readonly #address: Address;
  readonly #route;
  readonly #remembered = new Map<string, Readonly<Record<string, string>>>();

  constructor(address: Address) {
    this.#address = address;
    this.#route = signal(parse_route(address.location.hash), (a, b) => format_route(a) === format_route(b));
    // Back, Forward, and an address that was typed.
    const follow = () => this.#route.set(parse_route(address.location.hash));
    address.addEventListener("popstate", follow);
    address.addEventListener("hashchange", follow);
  }

  get route(): Read<Route> {
    return this.#route;
  }

  go(patch: RoutePatch, mode: "push" | "replace" = "push"): void {
    const before = this.#route.peek();
    const next = apply_patch(before, patch, this.#remembered);
    const hash = format_route(next);
    if (hash === format_route(before)) return;
    if (next.view !== before.view) this.#remembered.set(before.view, before.params);
    try {
      if (mode === "push") this.#address.history.pushState(null, "", hash);
      else this.#address.history.replaceState(null, "", hash);
    } catch {
      // A page without an address of its own (srcdoc) keeps its state to itself.
    }
    batch(() => this.#route.set(next));
  }

  /** Follows a link of the page. */
  open(hash: string): void {
    const next = parse_route(hash);
    const gone = Object.fromEntries(Object.keys(this.#route.peek().params).map((name) => [name, null]));
    this.#remembered.delete(next.view);
    this.go({ ...next, params: { ...gone, ...next.params } });
  }

  /** The address that `go(patch)` would lead to. */
  href(patch: RoutePatch): string {
    return format_route(apply_patch(this.#route.peek(), patch, this.#remembered));
  }
}
