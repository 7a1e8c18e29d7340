// Values that tell those who read them when they change.
//
//   const n = signal(1);            n() reads and subscribes, n.peek() only reads, n.set(2) writes
//   const twice = computed(() => n() * 2);
//   const stop = effect(() => console.log(twice()));
//
// An effect runs at once, and again after each change of what it read. `scope` collects the effects made within it, so that
// a view that is left can be ended as a whole; an effect ends those made within it before it runs again.

export interface Read<T> {
  (): T;
  peek(): T;
}

export interface Signal<T> extends Read<T> {
  set(value: T): void;
  update(change: (value: T) => T): void;
}

type Cleanup = () => void;

interface Observer {
  run(): void;
  sources: Set<Set<Observer>>;
  /** Computed values come before effects, in the order of their making. */
  order: number;
}

let observer: Observer | null = null;
let owned: Cleanup[] | null = null;
let depth = 0;
let made = 0;
const pending = new Set<Observer>();

function flush(): void {
  if (depth > 0) return;
  depth++;
  try {
    for (let rounds = 0; pending.size > 0; rounds++) {
      if (rounds > 100_000) {
        pending.clear();
        throw new Error("signals: an effect changes what it reads, without end");
      }
      let next: Observer | null = null;
      for (const each of pending) if (next === null || each.order < next.order) next = each;
      pending.delete(next!);
      next!.run();
    }
  } finally {
    depth--;
  }
}

function unsubscribe(target: Observer): void {
  for (const source of target.sources) source.delete(target);
  target.sources.clear();
}

function observe<T>(target: Observer, body: () => T): T {
  const before = observer;
  observer = target;
  try {
    return body();
  } finally {
    observer = before;
  }
}

export function signal<T>(value: T, isEqual: (a: T, b: T) => boolean = Object.is): Signal<T> {
  const observers = new Set<Observer>();
  const read = (() => {
    if (observer !== null) {
      observers.add(observer);
      observer.sources.add(observers);
    }
    return value;
  }) as Signal<T>;
  read.peek = () => value;
  read.set = (next) => {
    if (isEqual(value, next)) return;
    value = next;
    for (const each of observers) pending.add(each);
    flush();
  };
  read.update = (change) => read.set(change(value));
  return read;
}

/** Several writes, of which those who read hear once. */
export function batch<T>(body: () => T): T {
  depth++;
  try {
    return body();
  } finally {
    depth--;
    flush();
  }
}

export function untrack<T>(body: () => T): T {
  const before = observer;
  observer = null;
  try {
    return body();
  } finally {
    observer = before;
  }
}

/** Runs `body` at once and after each change of what it read. A function that it returns runs before the next time, and at the end. */
export function effect(body: () => void | Cleanup): Cleanup {
  let inner: Cleanup[] = [];
  let isEnded = false;
  const endInner = () => {
    const all = inner;
    inner = [];
    for (const each of all.reverse()) untrack(each);
  };
  const self: Observer = {
    sources: new Set(),
    order: made++,
    run() {
      if (isEnded) return;
      endInner();
      unsubscribe(self);
      const before = owned;
      owned = inner;
      try {
        const cleanup = observe(self, body);
        if (typeof cleanup === "function") inner.push(cleanup);
      } finally {
        owned = before;
      }
    },
  };
  const end = () => {
    isEnded = true;
    pending.delete(self);
    unsubscribe(self);
    endInner();
  };
  owned?.push(end);
  depth++;
  try {
    self.run();
  } finally {
    depth--;
    flush();
  }
  return end;
}

export function computed<T>(body: () => T, isEqual: (a: T, b: T) => boolean = Object.is): Read<T> {
  const result = signal<T | undefined>(undefined, (a, b) => a !== undefined && isEqual(a as T, b as T));
  effect(() => result.set(body()));
  return result as Read<T>;
}

/** Runs when the scope or effect around it ends. */
export function onEnd(cleanup: Cleanup): void {
  owned?.push(cleanup);
}

/** Runs `body` and gives its result, and what ends all that was made in it. */
export function scope<T>(body: () => T): [T, Cleanup] {
  const mine: Cleanup[] = [];
  const before = owned;
  owned = mine;
  try {
    const result = untrack(body);
    return [result, () => {
      for (const each of mine.splice(0).reverse()) untrack(each);
    }];
  } finally {
    owned = before;
  }
}
