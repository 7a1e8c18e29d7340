// The call tree of a step with its durations: time to the right, calls within calls downwards.

import { h } from "../lib/jsx.ts";
import { computed, effect, onEnd, signal } from "../lib/signals.ts";
import { Canvas } from "../lib/virtual.tsx";
import { paints, text_scale } from "../lib/paint.ts";
import { hide_tip, show_tip, TipRows } from "../lib/tip.tsx";
import { count_text, seconds_text } from "../lib/text.ts";
import { color_at, ink_on, ramp, to_css } from "../lib/colors.ts";
import { error_text, type State } from "../state.ts";
import type { CallEntry, Calls, EventDetail } from "../types.ts";
import { Empty, Failure, Skeleton } from "../parts.tsx";

const kRow = 22;
const kAxis = 24;
const kTones = ramp(["#7fa6c9", "#8fb8a8", "#c9c08a", "#d3a387", "#b79bc4", "#7fa6c9"]);

/** The same name has the same colour everywhere. */
function tone_of(text: string): number {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash >>> 0) / 4294967296;
}

export function end_of(call: CallEntry): number {
  return call.start + (call.duration ?? 0);
}

/** The event of what a call gave: its output, else the last that was recorded of it. */
export function given_by(began: Pick<EventDetail, "id" | "kind" | "same_module">): number | null {
  if (began.kind !== "enter" && began.kind !== "exit") return began.id;
  const output = began.same_module.find((each) => /(^|\.)output(\.|$)/.test(each.name));
  return output?.id ?? began.same_module.at(-1)?.id ?? null;
}

export function CallsView(state: State): Node {
  const side = computed(() => state.route().side);
  const rank = computed(() => state.route().rank ?? state.ranks()[0] ?? 0);
  const step = computed(() => state.route().step ?? state.answer.peek()?.places[0]?.step ?? state.steps()[0] ?? 0);
  const calls = signal<Calls | null>(null);
  const failure = signal<string | null>(null);
  const isLoading = signal(true);
  effect(() => {
    const params = { side: side(), rank: rank(), step: step() };
    state.revision();
    const abort = new AbortController();
    isLoading.set(true);
    state.source.json<Calls>("/api/calls", params, abort.signal).then((answer) => {
      failure.set(null);
      calls.set(answer);
      isLoading.set(false);
    }, (error) => {
      if (abort.signal.aborted) return;
      failure.set(error_text(error));
      isLoading.set(false);
    });
    return () => abort.abort();
  });
  const whole = computed<[number, number]>(() => {
    let [from, to] = [Infinity, -Infinity];
    for (const call of calls()?.calls ?? []) {
      from = Math.min(from, call.start);
      to = Math.max(to, end_of(call));
    }
    return to > from ? [from, to] : [0, 1];
  });
  const range = computed<[number, number]>(() => {
    const [from, to] = (state.route().params["range"] ?? "").split(":").map(Number);
    if (from !== undefined && to !== undefined && to > from) return [whole()[0] + from, whole()[0] + to];
    return whole();
  });
  const hovered = signal<CallEntry | null>(null);
  const selected = signal<CallEntry | null>(null);
  const set_range = (from: number, to: number, mode: "push" | "replace" = "replace") => {
    const [w0, w1] = whole.peek();
    const isAll = from <= w0 && to >= w1;
    state.go({
      params: {
        range: isAll ? null : `${(Math.max(w0, from) - w0).toPrecision(9)}:${(Math.min(w1, to) - w0).toPrecision(9)}`,
      },
    }, mode);
  };
  const scrollTop = signal(0);
  let canvas: HTMLCanvasElement | null = null;

  const find = (event: MouseEvent): CallEntry | null => {
    const [x, y] = [event.offsetX / text_scale(), event.offsetY / text_scale()];
    const depth = Math.floor((y - kAxis + scrollTop.peek()) / kRow);
    const [from, to] = range.peek();
    const width = (canvas?.clientWidth ?? 1) / text_scale();
    const time = from + x / width * (to - from);
    const slack = (to - from) / width;
    for (const call of calls.peek()?.calls ?? []) {
      if (call.depth === depth && time >= call.start && time <= Math.max(end_of(call), call.start + slack)) return call;
    }
    return null;
  };
  const draw = (g: CanvasRenderingContext2D, width: number, height: number) => {
    const p = paints(state.theme.peek());
    const [from, to] = range.peek();
    const scale = width / (to - from);
    g.textBaseline = "middle";
    // Drawn ends per depth: what is narrower than a pixel is drawn once.
    const drawn: number[] = [];
    for (const call of calls.peek()?.calls ?? []) {
      const y = kAxis + call.depth * kRow - scrollTop.peek();
      const end = end_of(call);
      if (end < from || call.start > to || y > height || y < kAxis - kRow) continue;
      const x0 = Math.max(0, (call.start - from) * scale);
      const x1 = Math.min(width, (end - from) * scale);
      if (x1 < (drawn[call.depth] ?? -1)) continue;
      const wide = Math.max(0.75, x1 - x0 - (x1 - x0 > 3 ? 1 : 0));
      drawn[call.depth] = Math.floor(x0 + wide);
      const rgb = color_at(kTones, tone_of(call.class || call.name));
      g.globalAlpha = state.theme.peek() === "dark" ? 0.82 : 1;
      g.fillStyle = to_css(rgb);
      g.fillRect(x0, y + 1, wide, kRow - 2);
      g.globalAlpha = 1;
      if (call.bad || call.exception) {
        g.fillStyle = call.exception ? p.starts : p.bad;
        g.fillRect(x0, y + kRow - 5, wide, 4);
      }
      if (call === hovered.peek() || call === selected.peek()) {
        g.strokeStyle = p.ink;
        g.lineWidth = 2;
        g.strokeRect(x0 + 1, y + 2, Math.max(1, wide - 2), kRow - 4);
      }
      if (wide > 22) {
        g.save();
        g.beginPath();
        g.rect(x0, y, wide - 4, kRow);
        g.clip();
        g.fillStyle = ink_on(rgb);
        g.font = `12px ${p.font}`;
        // Where the whole name has no room, its last part is what tells calls apart.
        const isShort = g.measureText(call.name).width > wide - 10;
        const text = isShort ? call.name.split(".").slice(-1)[0]! : call.name;
        const used = g.measureText(text).width;
        // Half a letter says nothing.
        if (used <= wide - 8) g.fillText(text, x0 + 6, y + kRow / 2 + 0.5);
        if (wide - used > 80) {
          g.globalAlpha = 0.6;
          g.fillText(seconds_text(call.duration), x0 + 14 + used, y + kRow / 2 + 0.5);
          g.globalAlpha = 1;
        }
        g.restore();
      }
    }
    g.fillStyle = p.panel;
    g.fillRect(0, 0, width, kAxis);
    g.strokeStyle = p.line;
    g.fillStyle = p.muted;
    g.font = `11px ${p.font}`;
    const tick = nice_tick((to - from) / Math.max(2, width / 110));
    for (
      let t = Math.ceil((from - whole.peek()[0]) / tick) * tick;
      t <= to - whole.peek()[0] + tick * 1e-6;
      t += tick
    ) {
      const x = (t + whole.peek()[0] - from) * scale;
      g.fillText(seconds_text(Math.max(0, t)) || "0", x + 4, kAxis / 2);
      g.beginPath();
      g.moveTo(x + 0.5, 0);
      g.lineTo(x + 0.5, kAxis);
      g.stroke();
    }
    g.beginPath();
    g.moveTo(0, kAxis - 0.5);
    g.lineTo(width, kAxis - 0.5);
    g.stroke();
  };
  const zoom = (by: number, at = 0.5) => {
    const [from, to] = range.peek();
    const center = from + (to - from) * at;
    set_range(center - (center - from) / by, center + (to - center) / by);
  };
  const pan = (by: number) => {
    const [from, to] = range.peek();
    const [w0, w1] = whole.peek();
    const shift = Math.max(w0 - from, Math.min(w1 - to, (to - from) * by));
    set_range(from + shift, to + shift);
  };
  const into = (call: CallEntry) => {
    selected.set(call);
    set_range(call.start, end_of(call), "push");
  };
  /** What a call gave is recorded beside its beginning. */
  const open = async (call: CallEntry | null): Promise<void> => {
    if (!call || call.event === null || call.event === undefined) return;
    const asked = side.peek();
    try {
      const began = await state.source.json<EventDetail>("/api/event", { side: asked, event: call.event });
      const given = given_by(began);
      if (given === null) state.notify(`Nothing that ${call.name} gave was recorded`);
      else state.go({ view: "tensor", side: asked, event: given, name: null, call: null, step: step.peek() });
    } catch (error) {
      state.notify(error_text(error), { kind: "bad" });
    }
  };
  state.keys.view({
    "w": ["zoom in", () => zoom(1.5)],
    "s": ["zoom out", () => zoom(1 / 1.5)],
    "ArrowLeft": ["earlier", () => pan(-0.25)],
    "ArrowRight": ["later", () => pan(0.25)],
    "0": ["the whole step", () => state.go({ params: { range: null } })],
    "Escape": ["the whole step", () => state.go({ params: { range: null } })],
    "Enter": ["open what the chosen call gave", () => open(selected.peek())],
  });
  state.status.set({ hint: "Click zooms to a call, the wheel zooms, a drag moves, Esc shows all" });
  const attach = (element: HTMLCanvasElement) => {
    canvas = element;
    let held: { x: number; y: number; range: [number, number]; top: number } | null = null;
    let isMoved = false;
    element.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, range: range.peek(), top: scrollTop.peek() };
      isMoved = false;
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointerup", () => held = null);
    element.addEventListener("pointermove", (event) => {
      if (held) {
        const dx = event.clientX - held.x;
        if (Math.abs(dx) + Math.abs(event.clientY - held.y) > 4) isMoved = true;
        if (!isMoved) return;
        const [from, to] = held.range;
        const shift = -dx / element.clientWidth * (to - from);
        const [w0, w1] = whole.peek();
        const kept = Math.max(w0 - from, Math.min(w1 - to, shift));
        set_range(from + kept, to + kept);
        scrollTop.set(clamp_top(held.top - (event.clientY - held.y) / text_scale(), element.clientHeight));
        return hide_tip();
      }
      const call = find(event);
      hovered.set(call);
      element.classList.toggle("pointing", call !== null);
      if (!call) return hide_tip();
      const total = whole.peek()[1] - whole.peek()[0];
      show_tip(
        event.clientX,
        event.clientY,
        <TipRows
          title={<span class="mono">{call.name}</span>}
          rows={[
            ["class", call.class],
            ["takes", call.duration === null ? "not ended" : seconds_text(call.duration)],
            ["part", call.duration === null ? "" : `${(call.duration / total * 100).toFixed(1)} % of the step`],
            ["begins", seconds_text(call.start - whole.peek()[0]) || "0"],
            ["exception", call.exception ? <span class="bad-text">{call.exception}</span> : ""],
            ["NaN, Inf", call.bad ? <span class="bad-text">in what it gives</span> : ""],
          ]}
        />,
      );
    });
    element.addEventListener("pointerleave", () => {
      hovered.set(null);
      hide_tip();
    });
    element.addEventListener("click", (event) => {
      if (isMoved) return;
      const call = find(event);
      if (!call) return;
      if (selected.peek() === call) open(call);
      else into(call);
    });
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) scrollTop.set(clamp_top(scrollTop.peek() + event.deltaY, element.clientHeight));
      else zoom(Math.exp(-event.deltaY * 0.002), event.offsetX / element.clientWidth);
    }, { passive: false });
  };
  const clamp_top = (top: number, height: number) => {
    const deepest = (calls.peek()?.calls ?? []).reduce((most, call) => Math.max(most, call.depth), 0);
    return Math.max(0, Math.min(top, (deepest + 1) * kRow + kAxis - height / text_scale()));
  };
  onEnd(hide_tip);
  return (
    <div class="column">
      <div class="toolbar">
        <span>
          Step <b class="num">{step}</b>
          {() => state.ranks().length > 1 ? ` on rank ${rank()}` : ""}
        </span>
        {() =>
          state.hasTwo()
            ? (
              <div class="choice" role="radiogroup" aria-label="Side">
                {(["a", "b"] as const).map((each, i) => (
                  <button
                    type="button"
                    role="radio"
                    aria-checked={() => String(side() === each)}
                    class={() => side() === each ? "on" : ""}
                    onClick={() => state.go({ side: each, params: { range: null } }, "replace")}
                  >
                    {state.session()?.sides[i]?.label ?? each}
                  </button>
                ))}
              </div>
            )
            : null}
        <span class="muted num">
          {() => calls() ? `${count_text(calls()!.calls.length)} calls, ${seconds_text(whole()[1] - whole()[0])}` : ""}
          {() => (calls()?.left_out ?? 0) > 0 ? `; ${count_text(calls()!.left_out)} more are left out` : ""}
        </span>
        <span class="grow"></span>
        {() => {
          const call = selected();
          return call && call.event !== null
            ? (
              <button type="button" onClick={() => open(call)}>
                Look at what <span class="mono">{call.name}</span> gave
              </button>
            )
            : null;
        }}
        <button type="button" onClick={() => state.go({ params: { range: null } })}>The whole step</button>
      </div>
      {() => {
        if (failure() !== null) return <Failure title="The calls could not be read" text={failure()!} />;
        if (calls() === null) return <Skeleton rows={8} />;
        if (calls()!.calls.length === 0 && !isLoading()) {
          return (
            <Empty title={`No calls were recorded at step ${step()}`}>
              Choose another step, or another rank.
            </Empty>
          );
        }
        return null;
      }}
      <div class="fill-rest icicle" hidden={() => calls()?.calls.length === 0}>
        <Canvas
          label="Calls over time"
          follow={() => [calls(), range(), hovered(), selected(), scrollTop(), state.theme()]}
          draw={draw}
          ref={attach}
        />
      </div>
    </div>
  );
}

function nice_tick(least: number): number {
  const ten = 10 ** Math.floor(Math.log10(least));
  for (const each of [1, 2, 5, 10]) if (each * ten >= least) return each * ten;
  return 10 * ten;
}
