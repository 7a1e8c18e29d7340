// The state behind `App`: the session, shared answers, and what a running recording tells.

import { batch, computed, effect, onEnd, type Read, type Signal, signal, untrack } from "./lib/signals.ts";
import { type Params, type Source, SourceError, SourceWith } from "./source.ts";
import type { Answer, EventDetail, Live, ModuleNode, Modules, Names, Session, Timeline } from "./types.ts";
import { type RoutePatch, Router } from "./route.ts";
import { Keys } from "./keys.ts";
import type { Action, App, NotifyOptions, Status } from "./app.ts";

/** An answer that several views share: asked for when it is first read, and again when the recording has more. */
export interface Shared<T> extends Read<T | null> {
  readonly error: Read<string | null>;
  /** How far it is, 0..1; null where that is not known. */
  readonly progress: Read<number | null>;
}

export interface Toast extends NotifyOptions {
  id: number;
  text: string;
}

const kPollMs = 500;
const kRefreshMs = 1000;
/** So long without a NaN, and the next one is told of again. */
const kQuietMs = 15_000;

function sleep(ms: number, abort?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    abort?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(abort.reason);
    }, { once: true });
  });
}

export function error_text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export class State implements App {
  readonly #router: Router;
  readonly source: Source;
  readonly #own: Source;
  readonly session = signal<Session | null>(null);
  readonly sessionError = signal<string | null>(null);
  readonly revision = signal(0);
  readonly live = signal<Live | null>(null);
  readonly isPaused = signal(false);
  readonly isLost = signal(false);
  /** Of an exported page: what is in it, and what is not. */
  readonly exportNote = signal<string | null>(null);
  readonly theme: Signal<"light" | "dark">;
  readonly status = signal<Status>({});
  readonly stepper: App["stepper"] = signal(null);
  readonly toasts = signal<readonly Toast[]>([]);
  readonly keys = new Keys();
  readonly viewActions = signal<readonly Action[]>([]);
  /** Modules whose inside is not shown, as root and path. */
  readonly collapsed = signal<ReadonlySet<string>>(new Set());

  readonly answer: Shared<Answer>;
  readonly timeline: Shared<Timeline>;
  readonly modules: Shared<Modules>;
  readonly names: Shared<Names>;

  /** What is looked at, as a text that changes with it. */
  readonly subject: Read<string>;
  readonly steps: Read<readonly number[]>;
  readonly ranks: Read<readonly number[]>;
  /** Calls of the tensor that is looked at, where there are several. */
  readonly calls = signal<readonly number[]>([]);
  readonly isRunning: Read<boolean>;
  readonly hasTwo: Read<boolean>;

  #toast = 0;
  #badToast = 0;
  #badCount = 0;
  #lastBad = 0;
  #firstBad: Live["bad"][number] | null = null;
  /** Those of the answer before: the latest are told again and again. */
  #toldBad: ReadonlySet<string> = new Set();

  constructor(source: Source, router: Router, theme: Signal<"light" | "dark">) {
    this.#own = source;
    this.#router = router;
    this.theme = theme;
    this.subject = computed(() => `${router.route().run ?? ""}\n${router.route().against ?? ""}`);
    // Of a list, only a chosen run can be asked about: without one, who asks belongs to a view that was left.
    let isList = false;
    effect(() => {
      isList ||= router.route().run !== null || this.session()?.kind === "list";
    });
    this.source = new SourceWith(source, (path) => {
      const { run, against } = router.route.peek();
      return run === null && isList && path !== "/api/session" ? null : { run, against };
    });
    this.steps = computed(() => {
      const sides = this.session()?.sides ?? [];
      if (sides.length < 2) return sides[0]?.steps ?? [];
      return [...new Set(sides.flatMap((side) => side.steps))].sort((a, b) => a - b);
    }, same_list);
    this.ranks = computed(
      () => [...new Set((this.session()?.sides ?? []).flatMap((side) => side.ranks))].sort((a, b) => a - b),
      same_list,
    );
    this.isRunning = computed(() => (this.session()?.sides ?? []).some((side) => side.state === "running"));
    this.hasTwo = computed(() => (this.session()?.sides.length ?? 0) > 1);
    this.answer = this.#shared<Answer>("/api/answer");
    this.timeline = this.#shared<Timeline>("/api/timeline");
    this.modules = this.#shared<Modules>("/api/modules");
    this.names = this.#shared<Names>("/api/names");
    if (source.isEmbedded && source.has("/api/export")) {
      source.json<{ note: string }>("/api/export").then((told) => this.exportNote.set(told.note), () => undefined);
    }
    effect(() => {
      this.subject();
      untrack(() => this.#open());
    });
    effect(() => {
      const { view, side, event } = router.route();
      if (view !== "tensor" || event === null) {
        this.calls.set([]);
        return undefined;
      }
      const abort = new AbortController();
      this.source.json<EventDetail>("/api/event", { side, event }, abort.signal).then(
        (detail) => this.calls.set([...new Set(detail.calls.map((each) => each.call))].sort((a, b) => a - b)),
        () => this.calls.set([]),
      );
      return () => abort.abort();
    });
    effect(() => {
      if (this.isRunning() && !this.isPaused() && !source.isEmbedded) return this.#watch();
      return undefined;
    });
  }

  get route() {
    return this.#router.route;
  }

  go(patch: RoutePatch, mode: "push" | "replace" = "push"): void {
    this.#router.go(patch, mode);
  }

  href(patch: RoutePatch): string {
    return this.#router.href(patch);
  }

  /** Another run, or two: everything else of the address begins anew. */
  choose(run: string | null, against: string | null): void {
    this.go({
      view: run === null ? "runs" : "answer",
      run,
      against,
      side: "a",
      event: null,
      name: null,
      step: null,
      rank: null,
      call: null,
    });
  }

  runs<T>(): Promise<T> {
    return this.#own.json<T>("/api/runs");
  }

  notify(text: string, options: NotifyOptions = {}): void {
    const id = ++this.#toast;
    this.toasts.update((list) => [...list.filter((toast) => toast.text !== text).slice(-3), { id, text, ...options }]);
    setTimeout(() => this.dismiss(id), options.kind === "bad" ? 12_000 : 4_000);
  }

  dismiss(id: number): void {
    this.toasts.update((list) => list.filter((toast) => toast.id !== id));
  }

  actions(list: Action[]): void {
    this.viewActions.update((all) => [...all, ...list]);
    onEnd(() => this.viewActions.update((all) => all.filter((action) => !list.includes(action))));
  }

  copy(text: string, what: string): void {
    const done = () => this.notify(`Copied ${what}`);
    const byHand = () => {
      // Without a secure context there is no clipboard; a selection does it.
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "offscreen";
      document.body.appendChild(area);
      area.select();
      const isCopied = document.execCommand("copy");
      area.remove();
      if (isCopied) done();
      else this.notify(text);
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
    else byHand();
  }

  async ready<T extends { state?: string }>(
    path: string,
    params?: Params,
    options: { signal?: AbortSignal; progress?: (done: number | null) => void } = {},
  ): Promise<T> {
    for (let wait = 60;; wait = Math.min(kPollMs, wait * 1.5)) {
      const answer = await this.source.json<T & { done?: number }>(path, params, options.signal);
      if (answer.state !== "working") return answer;
      options.progress?.(answer.done ?? null);
      await sleep(wait, options.signal);
    }
  }

  toggle(keys: readonly string[]): void {
    this.collapsed.update((set) => {
      const next = new Set(set);
      const isAll = keys.every((key) => next.has(key));
      for (const key of keys) isAll ? next.delete(key) : next.add(key);
      return next;
    });
  }

  async #open(): Promise<void> {
    const subject = this.subject.peek();
    batch(() => {
      this.session.set(null);
      this.sessionError.set(null);
      this.live.set(null);
    });
    this.#toldBad = new Set();
    try {
      for (let isReady = false; !isReady;) {
        const session = await this.source.json<Session>("/api/session");
        if (subject !== this.subject.peek()) return;
        batch(() => {
          this.revision.set(session.revision);
          this.session.set(session);
        });
        isReady = session.is_ready !== false;
        if (!isReady) await sleep(200);
      }
    } catch (error) {
      if (subject === this.subject.peek()) this.sessionError.set(error_text(error));
    }
  }

  /** One note for a stretch of NaN, which leads to the first of them; the next only after a while without any. */
  #tell_bad(live: Live): void {
    const now = Date.now();
    if (live.bad.length === 0) return;
    const key_of = (bad: Live["bad"][number]) => `${bad.side} ${bad.event}`;
    const fresh = live.bad.filter((bad) => !this.#toldBad.has(key_of(bad)));
    this.#toldBad = new Set(live.bad.map(key_of));
    if (fresh.length === 0) return;
    const first = fresh.reduce((a, b) => b.step < a.step || (b.step === a.step && b.event < a.event) ? b : a);
    if (now - this.#lastBad > kQuietMs) this.#badCount = 0;
    this.#lastBad = now;
    if (this.#badCount === 0) this.#firstBad = first;
    const isShown = this.#badCount === 0 || this.toasts.peek().some((toast) => toast.id === this.#badToast);
    this.#badCount += fresh.length;
    if (!isShown || !this.#firstBad) return;
    const { name, step, side, event } = this.#firstBad;
    const more = this.#badCount > 1 ? `, and ${this.#badCount - 1} more` : "";
    const toast: Toast = {
      id: this.#badToast,
      text: `NaN or Inf in ${name}, step ${step}${more}`,
      kind: "bad",
      link: { view: "tensor", side, event, name, step, rank: null, call: null },
      linkText: "Look at it",
    };
    if (this.#badCount === fresh.length) {
      toast.id = this.#badToast = ++this.#toast;
      setTimeout(() => this.dismiss(toast.id), 20_000);
    }
    this.toasts.update((list) => [...list.filter((each) => each.id !== toast.id), toast]);
  }

  /** Asks /api/live while the page is seen. */
  #watch(): () => void {
    const abort = new AbortController();
    let seen = untrack(this.revision);
    let refreshed = 0;
    const look = async () => {
      while (!abort.signal.aborted) {
        await sleep(kPollMs, abort.signal);
        if (document.hidden) continue;
        let live: Live;
        try {
          live = await this.source.json<Live>("/api/live", { revision: seen }, abort.signal);
          this.isLost.set(false);
        } catch (error) {
          if (!abort.signal.aborted) this.isLost.set(error instanceof SourceError && error.status === 0);
          continue;
        }
        this.#tell_bad(live);
        const before = this.live.peek();
        this.live.set(live);
        live.sides.forEach((side, i) => {
          const was = before?.sides[i]?.state ?? this.session.peek()?.sides[i]?.state;
          if (was !== undefined && was !== side.state) {
            this.notify(
              `The recording ${this.session.peek()?.sides[i]?.label ?? ""} is now: ${side.state_text || side.state}`,
              {
                kind: side.state === "closed" ? "good" : "bad",
              },
            );
          }
        });
        const isOver = live.sides.every((side) => side.state !== "running");
        if (isOver || (live.revision !== seen && Date.now() - refreshed > kRefreshMs)) {
          refreshed = Date.now();
          seen = live.revision;
          try {
            const session = await this.source.json<Session>("/api/session", {}, abort.signal);
            batch(() => {
              this.revision.set(Math.max(live.revision, session.revision));
              this.session.set(session);
            });
          } catch {
            // The next round tries again.
          }
        }
      }
    };
    look().catch(() => undefined);
    return () => abort.abort();
  }

  #shared<T extends { state?: string }>(path: string): Shared<T> {
    const value = signal<T | null>(null);
    const error = signal<string | null>(null);
    const progress = signal<number | null>(null);
    const isWanted = signal(false);
    let subject = "";
    let lastMs = 0;
    let finished = 0;
    effect(() => {
      const session = this.session();
      this.revision();
      if (!isWanted() || session === null || session.sides.length === 0) {
        if (session === null) value.set(null);
        return undefined;
      }
      const abort = new AbortController();
      const load = async (): Promise<void> => {
        const now = this.subject.peek();
        if (now !== subject) {
          value.set(null);
          subject = now;
        } else if (value.peek() !== null) {
          // What takes long is not asked for all the time.
          await sleep(Math.max(0, finished + 4 * lastMs - Date.now()), abort.signal);
        }
        const start = Date.now();
        const answer = await this.ready<T>(path, {}, { signal: abort.signal, progress: (done) => progress.set(done) });
        lastMs = Date.now() - start;
        finished = Date.now();
        batch(() => {
          error.set(null);
          progress.set(null);
          value.set(answer);
        });
        // The verdicts follow when the comparison is done.
        if ((answer as { judged?: boolean }).judged === false && session.sides.length > 1) {
          await sleep(kPollMs, abort.signal);
          await load();
        }
      };
      load().catch((failure) => {
        if (!abort.signal.aborted) error.set(error_text(failure));
      });
      return () => abort.abort();
    });
    const read = () => {
      if (!isWanted.peek()) queueMicrotask(() => isWanted.set(true));
      return value();
    };
    return Object.assign(read, { peek: value.peek, error, progress });
  }
}

function same_list(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((value, i) => value === b[i]);
}

export function module_key(root: string, path: string): string {
  return `${root}:${path}`;
}

/** Which of the nodes have others in them. */
export function parents_of(nodes: readonly ModuleNode[]): Set<number> {
  return new Set(nodes.map((node) => node.parent));
}
