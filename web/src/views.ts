// The views: which there are, which of them this session offers, and how one is opened.

import type { RoutePatch } from "./route.ts";
import type { State } from "./state.ts";
import { AnswerView, place_patch } from "./views/answer.tsx";
import { CallsView } from "./views/calls.tsx";
import { LinesView } from "./views/lines.tsx";
import { ModulesView } from "./views/modules.tsx";
import { RunsView } from "./views/runs.tsx";
import { TableView } from "./views/table.tsx";
import { TimelineView } from "./views/timeline.tsx";
import { TensorView } from "./tensor/view.tsx";

interface ViewEntry {
  id: string;
  title: string;
  make: (state: State) => Node;
  isOffered: (state: State) => boolean;
}

const has_run = (state: State) => (state.session()?.sides.length ?? 0) > 0;
// A file by itself has no answer: its tensors are what there is to see.
export const is_file_alone = (state: State) => state.session()?.kind === "files" && state.session()!.sides.length === 1;
const of_runs = (state: State) => has_run(state) && state.session()!.kind !== "files";

export const kViews: ViewEntry[] = [
  { id: "runs", title: "Runs", make: RunsView, isOffered: (state) => state.session()?.kind === "list" },
  { id: "answer", title: "Answer", make: AnswerView, isOffered: (state) => has_run(state) && !is_file_alone(state) },
  {
    id: "timeline",
    title: "Timeline",
    make: TimelineView,
    isOffered: (state) => of_runs(state) && state.source.covers("/api/timeline"),
  },
  {
    id: "modules",
    title: "Modules",
    make: ModulesView,
    isOffered: (state) => of_runs(state) && state.session()!.has_modules,
  },
  { id: "table", title: "Table", make: TableView, isOffered: has_run },
  { id: "tensor", title: "Tensor", make: TensorView, isOffered: has_run },
  {
    id: "lines",
    title: "Lines",
    make: LinesView,
    isOffered: (state) => of_runs(state) && state.session()!.has_changes && state.source.covers("/api/variables"),
  },
  {
    id: "calls",
    title: "Calls",
    make: CallsView,
    isOffered: (state) => of_runs(state) && state.session()!.has_calls && state.source.covers("/api/calls"),
  },
];

export function view_of(state: State): string {
  const { view } = state.route();
  const session = state.session();
  if (session?.kind === "list" && session.sides.length === 0) return "runs";
  return kViews.some((entry) => entry.id === view) ? view : "answer";
}

export function open_view(state: State, id: string): void {
  const { event, name } = state.route.peek();
  if (id === "runs") state.choose(null, null);
  else if (id === "tensor" && event === null && name === null) state.go({ ...first_tensor(state), view: id });
  else state.go({ view: id });
}

/** What the tensor view shows before anything was chosen: what the answer is about, else the first tensor. */
function first_tensor(state: State): RoutePatch {
  const place = state.answer.peek()?.places[0];
  if (place && (place.event_a !== null || place.event_b !== null)) {
    return place_patch(place, place.event_a === null ? "b" : "a");
  }
  const names = state.names.peek();
  const first = names?.kind.indexOf("tensor") ?? -1;
  return first < 0 ? {} : { name: names!.name[first]!, side: (names!.first[first] ?? null) === null ? "b" : "a" };
}
