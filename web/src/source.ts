// Where the page's answers come from: the server that it was loaded from, or the page itself.

import { find_in_tiles } from "./embedded_find.ts";
import type { Found, Series } from "./types.ts";

export type Value = string | number | boolean | null | undefined;
export type Params = Record<string, Value>;

export interface Source {
  /** Everything that can be asked lies in the page: nothing else can be had, and nothing changes. */
  readonly isEmbedded: boolean;
  json<T>(path: string, params?: Params, signal?: AbortSignal): Promise<T>;
  bytes(path: string, params?: Params, signal?: AbortSignal): Promise<ArrayBuffer>;
  /** Whether there is an answer, as far as that is known without asking. */
  has(path: string, params?: Params): boolean;
  /** Whether there is any answer of this path, with whatever parameters. */
  covers(path: string): boolean;
}

/** A failure that the server has told: 400, 403, 404, 500; 0 where it could not be reached. */
export class SourceError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Percent-encodes all but the unreserved characters of RFC 3986. */
export function encode(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replace(
    /[!'()*]/g,
    (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase(),
  );
}

/**
 * The one form of a request: parameters in the order of their names' code units, those without a value (null, undefined,
 * false, "") left out, true as 1. Without parameters there is no question mark.
 */
export function canonical_target(path: string, params: Params = {}): string {
  const parts: string[] = [];
  for (const name of Object.keys(params).sort()) {
    const value = params[name];
    if (value === null || value === undefined || value === false || value === "") continue;
    parts.push(`${encode(name)}=${encode(value === true ? "1" : String(value))}`);
  }
  return parts.length === 0 ? path : `${path}?${parts.join("&")}`;
}

export class HttpSource implements Source {
  readonly isEmbedded = false;

  async json<T>(path: string, params?: Params, signal?: AbortSignal): Promise<T> {
    const response = await this.#get(path, params, signal);
    return await response.json() as T;
  }

  async bytes(path: string, params?: Params, signal?: AbortSignal): Promise<ArrayBuffer> {
    const response = await this.#get(path, params, signal);
    return await response.arrayBuffer();
  }

  has(): boolean {
    return true;
  }

  covers(): boolean {
    return true;
  }

  async #get(path: string, params?: Params, signal?: AbortSignal): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(canonical_target(path, params), { signal: signal ?? null, credentials: "same-origin" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new SourceError(0, "The server does not answer. Has `tenscope view` ended?");
    }
    if (response.ok) return response;
    throw new SourceError(response.status, await sentence_of(response));
  }
}

async function sentence_of(response: Response): Promise<string> {
  try {
    const body = await response.json() as { error?: unknown };
    if (typeof body.error === "string") return body.error;
  } catch {
    // The body is no JSON: the status has to do.
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}

/**
 * Answers that lie in the page, in an element of the id `tenscope-answers`: base64 of gzip of
 *   uint32, little-endian: the length of the index;
 *   the index as JSON: {"<canonical target>": [offset, length] or [offset, length, status], ...};
 *   the bodies, to which the offsets are relative.
 */
export class EmbeddedSource implements Source {
  readonly isEmbedded = true;
  readonly #index: Map<string, number[]>;
  readonly #bodies: Uint8Array;

  constructor(index: Map<string, number[]>, bodies: Uint8Array) {
    this.#index = index;
    this.#bodies = bodies;
  }

  static async from_base64(text: string): Promise<EmbeddedSource> {
    const packed = Uint8Array.from(atob(text.replace(/\s+/g, "")), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const all = new Uint8Array(await new Response(stream).arrayBuffer());
    const length = new DataView(all.buffer).getUint32(0, true);
    const index = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + length))) as Record<string, number[]>;
    return new EmbeddedSource(new Map(Object.entries(index)), all.subarray(4 + length));
  }

  json<T>(path: string, params?: Params): Promise<T> {
    if (!this.#index.has(canonical_target(path, params))) {
      const made = path === "/api/find" ? this.#found(params) : path === "/api/series" ? this.#series(params) : null;
      if (made !== null) return made as Promise<T>;
    }
    return this.#find(path, params).then((body) => JSON.parse(new TextDecoder().decode(body)) as T);
  }

  bytes(path: string, params?: Params): Promise<ArrayBuffer> {
    return this.#find(path, params).then((body) => body.slice().buffer as ArrayBuffer);
  }

  has(path: string, params?: Params): boolean {
    const entry = this.#index.get(canonical_target(path, params));
    return entry !== undefined && (entry[2] ?? 200) === 200;
  }

  covers(path: string): boolean {
    return [...this.#index.keys()].some((target) => target === path || target.startsWith(path + "?"));
  }

  /** The targets that begin with `prefix`. */
  targets(prefix: string): string[] {
    return [...this.#index.keys()].filter((target) => target.startsWith(prefix));
  }

  /** Of a tensor whose pictures are in the page: what can be found in them. */
  // deno-lint-ignore require-await -- a failure is a rejected promise
  async #found(params: Params = {}): Promise<Found> {
    const tiles = new Map<string, ArrayBuffer[]>();
    for (const target of this.targets(`/api/tile?event=${params["event"]}&`)) {
      const asked = new URLSearchParams(target.slice(target.indexOf("?")));
      if ((asked.get("side") ?? "a") !== (params["side"] ?? "a")) continue;
      const [offset = 0, length = 0, status = 200] = this.#index.get(target)!;
      if (status !== 200) continue;
      const of = asked.get("of")!;
      tiles.set(of, [...tiles.get(of) ?? [], this.#bodies.slice(offset, offset + length).buffer as ArrayBuffer]);
    }
    return find_in_tiles(tiles, params);
  }

  /** The page holds the lines of all names together. */
  async #series(params: Params = {}): Promise<Series> {
    const all = await this.#find("/api/series", { points: params["points"], stat: params["stat"] });
    const { series } = JSON.parse(new TextDecoder().decode(all)) as Series;
    const wanted = String(params["names"] ?? "").split(",").map(Number);
    return { series: wanted.map((name) => series[name] ?? { a: [] }) };
  }

  // deno-lint-ignore require-await -- a failure is a rejected promise, as with HttpSource
  async #find(path: string, params?: Params): Promise<Uint8Array> {
    const entry = this.#index.get(canonical_target(path, params));
    if (entry === undefined) {
      throw new SourceError(404, "This is not in the exported page. Open the recording itself with `tenscope view`.");
    }
    const [offset = 0, length = 0, status = 200] = entry;
    const body = this.#bodies.subarray(offset, offset + length);
    if (status !== 200) {
      const told = JSON.parse(new TextDecoder().decode(body)) as { error?: string };
      throw new SourceError(status, told.error ?? `The answer is ${status}`);
    }
    return body;
  }
}

/** The page's own source: what it holds, else the server it came from. */
export async function page_source(): Promise<Source> {
  const element = document.getElementById("tenscope-answers");
  const text = element?.textContent?.trim();
  return text ? await EmbeddedSource.from_base64(text) : new HttpSource();
}

function left(): Promise<never> {
  return Promise.reject(new DOMException("The recording was left", "AbortError"));
}

/** A source that adds parameters to each request, as the chosen run of a list does; null: what asks is of the past. */
export class SourceWith implements Source {
  readonly #inner: Source;
  readonly #more: (path: string) => Params | null;

  constructor(inner: Source, more: (path: string) => Params | null) {
    this.#inner = inner;
    this.#more = more;
  }

  get isEmbedded(): boolean {
    return this.#inner.isEmbedded;
  }

  json<T>(path: string, params?: Params, signal?: AbortSignal): Promise<T> {
    const more = this.#more(path);
    return more === null ? left() : this.#inner.json<T>(path, { ...more, ...params }, signal);
  }

  bytes(path: string, params?: Params, signal?: AbortSignal): Promise<ArrayBuffer> {
    const more = this.#more(path);
    return more === null ? left() : this.#inner.bytes(path, { ...more, ...params }, signal);
  }

  has(path: string, params?: Params): boolean {
    return this.#inner.has(path, { ...this.#more(path), ...params });
  }

  covers(path: string): boolean {
    return this.#inner.covers(path);
  }
}
