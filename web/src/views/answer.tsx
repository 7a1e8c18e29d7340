// What the page opens on: what is wrong, where it starts, why, and a click to each tensor.

import { type Child, h } from "../lib/jsx.ts";
import { computed, effect, type Signal, signal } from "../lib/signals.ts";
import { num, verdict_class } from "../lib/paint.ts";
import { count_text, number_text, plural } from "../lib/text.ts";
import type { State } from "../state.ts";
import type { Answer, Place, PlaceRef } from "../types.ts";
import { Empty, Failure, ProgressBar } from "../parts.tsx";
import { CodeOfModule, is_told_by_code, short_site } from "./code.tsx";
import { Numbers, Picture } from "./glance.tsx";
import { Strip } from "./strip.tsx";

export function AnswerView(state: State): Node {
  effect(() => {
    const answer = state.answer();
    state.status.set({
      command: answer?.command,
      python: answer?.python,
      hint: answer && answer.places.length > 0
        ? "Enter opens the tensor, n and p go through the places"
        : "? shows the keys",
    });
  });
  const at = computed(() => Math.max(0, Number(state.route().params["place"] ?? 0) || 0));
  // The slice that the picture shows, in which the worst element is; null: the usual one.
  const slice = signal<string | null>(null);
  const move = (by: number) => {
    const count = state.answer.peek()?.places.length ?? 0;
    const to = Math.min(count - 1, Math.max(0, at.peek() + by));
    state.go({ params: { place: to === 0 ? null : to } }, "replace");
  };
  state.keys.view({
    "Enter": ["open the tensor", () => {
      const place = state.answer.peek()?.places[at.peek()];
      if (place) open_place(state, place, slice.peek());
    }],
    "n": ["the next place", () => move(1)],
    "p": ["the place before", () => move(-1)],
    "o": ["the last tensor that agreed", () => {
      const place = state.answer.peek()?.places[at.peek()]?.last_agreeing;
      if (place) open_place(state, place);
    }],
  });
  // The strip's height is known by the timeline, which comes at the same time: what is below it should not move.
  const isLate = signal(false);
  effect(() => {
    if (state.answer() === null) return undefined;
    const timer = setTimeout(() => isLate.set(true), 400);
    return () => clearTimeout(timer);
  });
  const isComplete = computed(() =>
    state.answer()?.of === "files" || isLate() || state.timeline() !== null || state.timeline.error() !== null
  );
  return (
    <div class="answer scroll">
      {() => {
        const error = state.answer.error();
        const answer = state.answer();
        if (error !== null && answer === null) {
          return (
            <Failure title="The answer could not be worked out" text={error}>
              <button type="button" onClick={() => location.reload()}>Try again</button>
            </Failure>
          );
        }
        return answer === null || !isComplete()
          ? <Working state={state} />
          : <Report state={state} answer={answer} at={at()} slice={slice} />;
      }}
    </div>
  );
}

function Working(props: { state: State }): Node {
  const { state } = props;
  return (
    <div class="answer-inner">
      <div class="answer-head">
        <h1 class="headline quiet">
          {() => state.hasTwo() ? "Comparing…" : "Looking for trouble…"}
        </h1>
        <ProgressBar
          done={state.answer.progress}
          text={() => {
            if (!state.hasTwo()) return "Tensors looked at";
            // What is left is not counted in tensors, and takes its time in long runs.
            return (state.answer.progress() ?? 0) < 0.99 ? "Tensors compared" : "Finding where they part";
          }}
        />
      </div>
      <div class="skeleton">
        {[38, 70, 52, 61, 45].map((width) => <div class="bone" style={{ width: `${width}%` }}></div>)}
      </div>
    </div>
  );
}

export function place_patch(place: PlaceRef, side: "a" | "b", slice: string | null = null) {
  return {
    view: "tensor",
    side,
    event: side === "a" ? place.event_a : place.event_b,
    name: place.name,
    step: place.step,
    rank: place.rank,
    call: place.call,
    ...(slice === null ? {} : { params: { slice, at: null, zoom: null, t: null, fold: null } }),
  } as const;
}

function open_place(state: State, place: PlaceRef, slice: string | null = null): void {
  if (place.event_a === null && place.event_b === null) return;
  state.go(place_patch(place, place.event_a === null ? "b" : "a", slice));
}

function Report(props: { state: State; answer: Answer; at: number; slice: Signal<string | null> }): Node {
  const { state, answer, at } = props;
  const place = answer.places[at] ?? answer.places[0];
  const tone = verdict_class(answer.verdict);
  const others = answer.places.length;
  const hasStrip = computed(() => state.timeline()?.modules.length !== 0);
  // A list of one place, and nothing beside it, would only take the room of the place itself.
  const isAlone = others === 1 && answer.origin_count <= 1 && answer.renamed.length === 0 &&
    answer.unmatched.length === 0 && !state.source.isEmbedded &&
    !state.session.peek()?.sides.some((side) => side.problems.length > 0);
  return (
    <div class="answer-inner">
      <div class={`answer-head ${tone}`}>
        <div class="verdict-line">
          <span class={`chip big ${tone}`}>{answer.verdict}</span>
          <span class="muted">{answer.coverage}</span>
        </div>
        <h1 class="headline">{headline_of(state, answer)}</h1>
        {answer.of === "diff" ? <Coverage answer={answer} /> : null}
      </div>
      {answer.of === "files" ? null : () => hasStrip() ? <Strip state={state} place={place ?? null} /> : null}
      <div class={isAlone ? "answer-columns one-column" : "answer-columns"}>
        <div class="answer-main">
          {place
            ? <PlaceCard state={state} place={place} answer={answer} slice={props.slice} />
            : (
              <Empty title={empty_title(answer)}>
                {answer.verdict !== "nothing"
                  ? <Ways state={state} />
                  : state.hasTwo.peek()
                  ? "No tensor of one side has a partner on the other. Give the modules' names with --map, or look at each side alone."
                  : [
                    "Tensors and numbers come into a recording by ",
                    <code>tenscope run</code>,
                    ", ",
                    <code>tenscope.trace(model)</code>,
                    " or ",
                    <code>run.record(name, value)</code>,
                    ".",
                  ]}
              </Empty>
            )}
          {place ? null : notes_of(answer)}
          {answer.of === "check" || answer.of === "diff" ? <Numbers state={state} /> : null}
          {answer.settings.length > 0
            ? (
              <Section title="Settings that differ">
                <ul class="plain">{answer.settings.map((text) => <li>{text}</li>)}</ul>
              </Section>
            )
            : null}
          {place ? notes_of(answer) : null}
        </div>
        <div class="answer-side" hidden={isAlone}>
          {others > 0
            ? (
              <Section
                title={answer.of === "check"
                  ? "Findings"
                  : answer.of === "files"
                  ? "Tensors that differ"
                  : "Places that start a difference"}
                count={answer.origin_count > others ? `${others} of ${answer.origin_count}` : String(others)}
              >
                <ol class="places">
                  {answer.places.map((each, i) => (
                    <li>
                      <a
                        class={each === place ? "place on" : "place"}
                        href={state.href({ params: { place: i === 0 ? null : i } })}
                        onDblClick={() => open_place(state, each)}
                      >
                        <span class="place-number num">{i + 1}</span>
                        <span class="place-text">
                          <span class="place-name">
                            {answer.of === "check" ? each.title : each.module || each.tensor || each.name}
                          </span>
                          <span class="muted">
                            {[
                              answer.of === "check" ? each.tensor || each.name : each.class,
                              answer.of === "files" ? "" : `step ${each.step}`,
                              each.phase,
                              each.rank ? `rank ${each.rank}` : "",
                              each.tensors > 1 ? plural(each.tensors, "tensor") : "",
                            ].filter(Boolean).join(" · ")}
                          </span>
                        </span>
                        {each.rel_l2 !== null && each.rel_l2 !== undefined
                          ? (
                            <span class="num place-error" title="relative difference, Euclidean">
                              {number_text(num(each.rel_l2), 2)}
                            </span>
                          )
                          : null}
                      </a>
                    </li>
                  ))}
                </ol>
              </Section>
            )
            : null}
          {answer.renamed.length > 0
            ? (
              <Section title="Renamed" count={String(answer.renamed.length)}>
                <table class="small">
                  {answer.renamed.slice(0, 50).map(([a, b]) => (
                    <tr>
                      <td class="mono">{a}</td>
                      <td class="muted">⇄</td>
                      <td class="mono">{b}</td>
                    </tr>
                  ))}
                </table>
              </Section>
            )
            : null}
          {answer.unmatched.length > 0
            ? (
              <Section title="On one side only" count={String(answer.unmatched.length)}>
                <table class="small">
                  {answer.unmatched.slice(0, 50).map((each) => (
                    <tr>
                      <td>
                        <span class={`side-letter side-${each.side}`}>{each.side.toUpperCase()}</span>
                      </td>
                      <td class="mono">{each.name ?? each.module}</td>
                      <td class="muted">{each.class}</td>
                      <td class="muted num">{plural(each.events, "value")}</td>
                    </tr>
                  ))}
                </table>
              </Section>
            )
            : null}
          {() =>
            state.exportNote()
              ? (
                <Section title="About this page">
                  <p class="muted">{state.exportNote()}</p>
                </Section>
              )
              : null}
          {state.session.peek()?.sides.some((side) => side.problems.length > 0)
            ? (
              <Section title="About the recordings">
                <ul class="plain">
                  {state.session.peek()!.sides.flatMap((side) =>
                    side.problems.map((text) => <li>{side.label}: {text}</li>)
                  )}
                </ul>
              </Section>
            )
            : null}
        </div>
      </div>
    </div>
  );
}

const kGoodTitles: Record<string, string> = {
  equal: "All that both have is equal, bit for bit",
  noise: "Nothing but rounding noise",
  healthy: "tenscope check finds nothing",
  unhealthy: "tenscope check finds nothing in what is there",
  unknown: "Not enough was kept to say more",
};

function headline_of(state: State, answer: Answer): string {
  if (answer.verdict !== "healthy") return answer.headline;
  const hasFailed = state.session.peek()?.sides.some((side) => side.state === "failed");
  return hasFailed ? "The values look healthy, but the program failed" : "Nothing looks wrong";
}

function empty_title(answer: Answer): string {
  if (answer.verdict === "nothing") {
    return answer.of === "check" ? "There is nothing to check" : "Nothing could be compared";
  }
  return kGoodTitles[answer.verdict] ?? "There is nothing to show";
}

function notes_of({ notes }: Answer): Child {
  if (notes.length === 0) return null;
  return (
    <Section title="Notes">
      <ul class="plain">{notes.map((text) => <li>{text}</li>)}</ul>
    </Section>
  );
}

/** Where to go on from a recording that nothing is wrong with. */
function Ways(props: { state: State }): Node {
  const { state } = props;
  const session = state.session.peek();
  const to = (view: string, text: string) => <a href={state.href({ view })}>{text}</a>;
  return (
    <span>
      {to("timeline", "The timeline")} has the size of every value at every step, {to("table", "the table")}{" "}
      all names with their statistics
      {session?.has_changes ? [", ", to("lines", "the lines"), " what watch saw of each variable"] : null}
      {session?.has_calls ? [", ", to("calls", "the calls"), " what took how long"] : null}.
    </span>
  );
}

function Section(props: { title: string; count?: string; children?: Child }): Node {
  return (
    <section class="section">
      <h2>
        {props.title}
        {props.count ? <span class="count num">{props.count}</span> : null}
      </h2>
      {props.children}
    </section>
  );
}

function PlaceCard(props: { state: State; place: Place; answer: Answer; slice: Signal<string | null> }): Node {
  const { state, place, answer } = props;
  const last = place.last_agreeing;
  const two = state.hasTwo.peek();
  const isThere = place.event_a !== null || place.event_b !== null;
  props.slice.set(null);
  const picture = isThere ? <Picture state={state} place={place} answer={answer} slice={props.slice} /> : null;
  return (
    <section class={`card ${answer.of === "files" ? "" : verdict_class(answer.verdict)}`}>
      <header class="card-head">
        <span class="card-title">{place.title}</span>
        <span class="muted">
          {[
            place.phase,
            answer.of === "files" ? "" : `step ${place.step}`,
            place.call ? `call ${place.call}` : "",
            place.rank ? `rank ${place.rank}` : "",
          ]
            .filter(Boolean).join(" · ")}
        </span>
        {place.site && !place.code?.lines.length
          ? (
            <button
              type="button"
              class="site mono"
              title="Copy the place in the source"
              onClick={() => state.copy(place.site!, place.site!)}
            >
              {short_site(place.site)}
            </button>
          )
          : null}
      </header>
      <div class="card-name">
        <span class="mono">{place.tensor || place.name}</span>
        {place.class ? <span class="muted">{place.class}</span> : null}
      </div>
      <div class="card-links">
        {place.event_a !== null
          ? (
            <a class="button primary" href={() => state.href(place_patch(place, "a", props.slice()))}>
              {two && place.event_b !== null ? "Look at both, side by side" : "Look at the tensor"}
              <kbd>Enter</kbd>
            </a>
          )
          : null}
        {place.event_b !== null && place.event_a === null
          ? (
            <a class="button primary" href={() => state.href(place_patch(place, "b", props.slice()))}>
              Look at the second run's tensor<kbd>Enter</kbd>
            </a>
          )
          : null}
        {last && (last.event_a !== null || last.event_b !== null)
          ? (
            <a class="button" href={state.href(place_patch(last, last.event_a === null ? "b" : "a"))} title={last.name}>
              The last that agreed<kbd>O</kbd>
            </a>
          )
          : null}
        {answer.of !== "files"
          ? (
            <a
              class="button"
              href={state.href({ view: "timeline", step: place.step, params: { module: place.module || null } })}
            >
              In the timeline
            </a>
          )
          : null}
      </div>
      <div class="card-body">
        <div class="card-facts">
          <dl class="evidence">
            {place.rows.filter((row) => !is_told_by_code(place, row)).map(([name, text]) => [
              <dt>{name}</dt>,
              <dd>
                {last && name.startsWith("last agree")
                  ? <a href={state.href(place_patch(last, last.event_a === null ? "b" : "a"))}>{text}</a>
                  : text}
              </dd>,
            ])}
            {last && !place.rows.some(([name]) => name.startsWith("last agree"))
              ? [
                <dt>last agreeing</dt>,
                <dd>
                  <a href={state.href(place_patch(last, last.event_a === null ? "b" : "a"))}>
                    {last.name}, step {last.step}
                  </a>
                </dd>,
              ]
              : null}
          </dl>
          {place.code ? null : picture}
        </div>
        {place.code
          ? (
            <div class="card-beside">
              <CodeOfModule state={state} code={place.code} name={place.class || place.module} />
              {picture}
            </div>
          )
          : null}
      </div>
      {place.commands.length > 0
        ? (
          <div class="commands">
            {place.commands.map((command) => (
              <button
                type="button"
                class="command mono"
                title="Copy"
                onClick={() => state.copy(command, "the command")}
              >
                <span class="prompt">$</span> {command}
              </button>
            ))}
          </div>
        )
        : null}
    </section>
  );
}

function Coverage(props: { answer: Answer }): Node {
  const { counts } = props.answer;
  const parts: [string, string, number][] = [
    ["bit-equal", "equal", counts.bit_equal],
    ["same values", "same", counts.same_values],
    ["noise", "noise", counts.noise],
    ["unknown", "unknown", counts.unknown],
    ["nothing comes of it", "idle", counts.idle],
    [counts.consequences === 1 ? "follows" : "follow", "carries", counts.consequences],
    [counts.origins === 1 ? "starts a difference" : "start a difference", "starts", counts.origins],
  ];
  const total = Math.max(1, parts.reduce((sum, [, , n]) => sum + n, 0));
  return (
    <div class="coverage">
      <div class="coverage-bar" role="img" aria-label="What was compared">
        {parts.filter(([, , n]) => n > 0).map(([word, tone, n]) => (
          <div class={`tone-bar ${tone}`} style={{ "flex-grow": n / total }} title={`${count_text(n)} ${word}`}></div>
        ))}
      </div>
      <div class="legend">
        {parts.filter(([, , n]) => n > 0).map(([word, tone, n]) => (
          <span class="legend-item">
            <span class={`swatch ${tone}`}></span>
            <span class="num">{count_text(n)}</span> {word}
          </span>
        ))}
      </div>
    </div>
  );
}
