// Answers that follow what is shown: asked a moment after it has settled, the old one stays until the new is there.

import type { Params } from "../source.ts";
import { computed, effect, type Read, signal } from "../lib/signals.ts";
import { is_abort, sentence, type TensorModel } from "./model.ts";

export interface Followed<T> {
  value: T | null;
  problem: string | null;
}

export function follow<T>(
  model: TensorModel,
  wanted: () => [path: string, params: Params] | null,
  delay = 120,
): Read<Followed<T>> {
  const result = signal<Followed<T>>({ value: null, problem: null });
  const key = computed(() => JSON.stringify(wanted()));
  effect(() => {
    const asked = JSON.parse(key()) as [string, Params] | null;
    if (asked === null || !model.app.source.has(asked[0], asked[1])) {
      result.set({ value: null, problem: null });
      return;
    }
    const stop = new AbortController();
    const timer = setTimeout(() => {
      model.app.source.json<T>(asked[0], asked[1], stop.signal)
        .then((value) => {
          if (!stop.signal.aborted) result.set({ value, problem: null });
        }).catch((error) => {
          if (!stop.signal.aborted && !is_abort(error)) result.set({ value: null, problem: sentence(error) });
        });
    }, delay);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  });
  return result;
}
