/// <reference lib="deno.ns" />
import { batch, computed, effect, onEnd, scope, signal, untrack } from "../src/lib/signals.ts";
import { equal } from "./assert.ts";

Deno.test("an effect runs at once and after each change, and not for an equal value", () => {
  const n = signal(1);
  const seen: number[] = [];
  const end = effect(() => void seen.push(n()));
  n.set(2);
  n.set(2);
  n.update((now) => now + 1);
  end();
  n.set(9);
  equal(seen, [1, 2, 3]);
});

Deno.test("a computed value is never seen half changed", () => {
  const n = signal(1);
  const twice = computed(() => n() * 2);
  const next = computed(() => twice() + 1);
  const seen: string[] = [];
  effect(() => void seen.push(`${n()} ${twice()} ${next()}`));
  n.set(5);
  equal(seen[0], "1 2 3");
  equal(seen.at(-1), "5 10 11");
  equal(seen.includes("5 2 3"), false);
});

Deno.test("a computed value that stays the same wakes nobody", () => {
  const n = signal(1);
  const isOdd = computed(() => n() % 2 === 1);
  let runs = 0;
  effect(() => {
    isOdd();
    runs++;
  });
  n.set(3);
  n.set(5);
  equal(runs, 1);
  n.set(6);
  equal(runs, 2);
});

Deno.test("several writes in a batch are one change", () => {
  const [a, b] = [signal(1), signal(2)];
  const seen: number[] = [];
  effect(() => void seen.push(a() + b()));
  batch(() => {
    a.set(10);
    b.set(20);
  });
  equal(seen, [3, 30]);
});

Deno.test("only what was read last counts", () => {
  const [which, a, b] = [signal("a"), signal(1), signal(2)];
  let runs = 0;
  effect(() => {
    runs++;
    if (which() === "a") a();
    else b();
  });
  which.set("b");
  a.set(100);
  equal(runs, 2);
  b.set(100);
  equal(runs, 3);
});

Deno.test("what is read untracked, or peeked at, is not followed", () => {
  const n = signal(1);
  let runs = 0;
  effect(() => {
    runs++;
    untrack(n);
    n.peek();
  });
  n.set(2);
  equal(runs, 1);
});

Deno.test("an effect ends those made within it before it runs again, and cleans up", () => {
  const [outer, inner] = [signal(0), signal(0)];
  const log: string[] = [];
  effect(() => {
    const at = outer();
    effect(() => {
      log.push(`inner ${at} ${inner()}`);
    });
    return () => log.push(`clean ${at}`);
  });
  outer.set(1);
  inner.set(1);
  equal(log, ["inner 0 0", "clean 0", "inner 1 0", "inner 1 1"]);
});

Deno.test("a scope ends all that was made in it", () => {
  const n = signal(0);
  const log: string[] = [];
  const [result, end] = scope(() => {
    effect(() => void log.push(`saw ${n()}`));
    onEnd(() => log.push("ended"));
    return 42;
  });
  n.set(1);
  end();
  n.set(2);
  equal(result, 42);
  equal(log, ["saw 0", "saw 1", "ended"]);
});

Deno.test("an effect that changes what it reads without end is stopped", () => {
  const n = signal(0);
  let message = "";
  try {
    effect(() => n.set(n() + 1));
  } catch (error) {
    message = (error as Error).message;
  }
  equal(message.includes("without end"), true);
});
