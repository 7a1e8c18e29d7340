// Answers that do not change, by what was asked; the oldest are forgotten.
export class Answers<T> {
  readonly #kept = new Map<string, Promise<T>>();
  readonly #size: number;

  constructor(size: number) {
    this.#size = size;
  }

  // A request that `signal` ends is forgotten at once, so that the same question can be asked again.
  get(key: string, ask: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const found = this.#kept.get(key);
    if (found) {
      this.#kept.delete(key);
      this.#kept.set(key, found);
      return found;
    }
    const promise = ask();
    this.#kept.set(key, promise);
    const forget = (): void => {
      if (this.#kept.get(key) === promise) this.#kept.delete(key);
    };
    signal?.addEventListener("abort", forget);
    promise.then(() => signal?.removeEventListener("abort", forget), forget);
    for (const old of this.#kept.keys()) {
      if (this.#kept.size <= this.#size) break;
      this.#kept.delete(old);
    }
    return promise;
  }

  clear(): void {
    this.#kept.clear();
  }
}
