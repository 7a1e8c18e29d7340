// The selectors of step, rank and call, and how the page goes from one to another.

import { h } from "./lib/jsx.ts";
import { computed, type Read } from "./lib/signals.ts";
import { error_text, type State } from "./state.ts";
import type { EventDetail, Events } from "./types.ts";
import { view_of } from "./views.ts";

/** Leads to another step, rank or call: in the tensor view to the event of the same name there. */
export async function choose_place(state: State, to: { step?: number; rank?: number; call?: number }): Promise<void> {
  const stepper = state.stepper.peek();
  if (stepper) return stepper(to);
  const route = state.route.peek();
  if (view_of(state) !== "tensor" || route.event === null) return state.go(to, "replace");
  try {
    const { side, event } = route;
    const now = await state.source.json<EventDetail>("/api/event", { side, event });
    const place = { step: now.step, rank: now.rank, call: now.call, ...to };
    const found = await state.source.json<Events>("/api/events", { side, name: now.name, ...place, count: 1 });
    const next = found.events[0];
    if (next) state.go({ event: next.id, ...place }, "replace");
    else state.notify(`${now.name} was not recorded at step ${place.step}, rank ${place.rank}, call ${place.call}`);
  } catch (error) {
    state.notify(error_text(error), { kind: "bad" });
  }
}

export function StepSelector(props: { state: State; isPlaying: Read<boolean>; toggle: () => void }): Node {
  const { state } = props;
  const place = computed(() => {
    const steps = state.steps();
    const step = state.route().step;
    if (steps.length === 0) return -1;
    if (step === null) return -1;
    let at = steps.indexOf(step);
    if (at < 0) at = steps.findIndex((each) => each >= step);
    return at < 0 ? steps.length - 1 : at;
  });
  return (
    <div class="stepper" role="group" aria-label="Step">
      {() =>
        state.steps().length > 1
          ? [
            <button type="button" class="icon" title="Play (Space)" aria-label="Play the steps" onClick={props.toggle}>
              {() => props.isPlaying() ? "❚❚" : "▶"}
            </button>,
            <button
              type="button"
              class="icon"
              title="The step before ([)"
              aria-label="The step before"
              onClick={() => move_step(state, -1)}
            >
              ‹
            </button>,
            <input
              type="range"
              min="0"
              max={state.steps().length - 1}
              value={() => Math.max(0, place())}
              aria-label="Step"
              onInput={(event) => {
                const step = state.steps.peek()[Number((event.currentTarget as HTMLInputElement).value)];
                if (step !== undefined) choose_place(state, { step });
              }}
            />,
            <button
              type="button"
              class="icon"
              title="The step after (])"
              aria-label="The step after"
              onClick={() => move_step(state, 1)}
            >
              ›
            </button>,
            <label class="step-number">
              step
              <input
                type="text"
                inputmode="numeric"
                class="num"
                value={() => state.route().step ?? ""}
                placeholder="all"
                aria-label="Step number"
                onChange={(event) => {
                  const text = (event.currentTarget as HTMLInputElement).value.trim();
                  if (text === "") state.go({ step: null });
                  else if (/^\d+$/.test(text)) choose_place(state, { step: Number(text) });
                }}
              />
              <span class="muted num">/ {state.steps()[state.steps().length - 1] ?? 0}</span>
            </label>,
          ]
          : null}
      {() =>
        state.ranks().length > 1
          ? (
            <label class="picker">
              rank
              <select
                value={() => state.route().rank ?? ""}
                onChange={(event) => {
                  const value = (event.currentTarget as HTMLSelectElement).value;
                  if (value === "") state.go({ rank: null });
                  else choose_place(state, { rank: Number(value) });
                }}
              >
                <option value="">any</option>
                {state.ranks().map((rank) => <option value={rank}>{rank}</option>)}
              </select>
            </label>
          )
          : null}
      {() =>
        state.calls().length > 1
          ? (
            <label class="picker">
              call
              <select
                value={() => state.route().call ?? ""}
                onChange={(event) => {
                  const value = (event.currentTarget as HTMLSelectElement).value;
                  if (value !== "") choose_place(state, { call: Number(value) });
                }}
              >
                {state.calls().map((call) => <option value={call}>{call}</option>)}
              </select>
            </label>
          )
          : null}
    </div>
  );
}

export function move_step(state: State, by: number): boolean {
  const steps = state.steps.peek();
  const now = state.route.peek().step;
  if (steps.length === 0) return false;
  let at = now === null ? (by > 0 ? -1 : steps.length) : steps.indexOf(now);
  if (now !== null && at < 0) at = steps.findIndex((step) => step >= now);
  const step = steps[at + by];
  if (step === undefined) return false;
  choose_place(state, { step });
  return true;
}
