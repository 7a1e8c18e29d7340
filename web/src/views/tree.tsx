// The module tree beside the view: folded and unfolded by a click, coloured by what each module adds, or by NaN.

import { h } from "../lib/jsx.ts";
import { computed, type Read, signal } from "../lib/signals.ts";
import { VirtualList } from "../lib/virtual.tsx";
import { num } from "../lib/paint.ts";
import { cell_side, is_worse, step_place } from "../lib/matrix.ts";
import { name_filter } from "../lib/fuzzy.ts";
import { number_text } from "../lib/text.ts";
import { module_key, parents_of, type State } from "../state.ts";
import { type ModuleNode, Phase, Verdict } from "../types.ts";
import { Caret, Skeleton } from "../parts.tsx";

export interface TreeRow {
  node: ModuleNode;
  depth: number;
  hasMore: boolean;
}

/** The rows of a tree of which some nodes are folded; with a filter those that match, and what they lie in. */
export function tree_rows(
  nodes: readonly ModuleNode[],
  folded: ReadonlySet<string>,
  matches: ((name: string) => boolean) | null,
): TreeRow[] {
  const depths = new Map<number, number>();
  const hidden = new Set<number>();
  const parents = parents_of(nodes);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  let wanted: Set<number> | null = null;
  if (matches) {
    wanted = new Set();
    for (const node of nodes) {
      if (!matches(`${node.path} ${node.class} ${node.renamed ?? ""}`)) continue;
      for (let at: ModuleNode | undefined = node; at && !wanted.has(at.id); at = byId.get(at.parent)) wanted.add(at.id);
    }
  }
  const rows: TreeRow[] = [];
  for (const node of nodes) {
    const depth = node.parent < 0 ? 0 : (depths.get(node.parent) ?? 0) + 1;
    depths.set(node.id, depth);
    const isHidden = wanted
      ? !wanted.has(node.id)
      : hidden.has(node.parent) || (node.parent >= 0 && folded.has(key_of(byId.get(node.parent))));
    if (isHidden) {
      hidden.add(node.id);
      continue;
    }
    rows.push({ node, depth, hasMore: parents.has(node.id) });
  }
  return rows;
}

function key_of(node: ModuleNode | undefined): string {
  return node ? module_key(node.root, node.path) : "";
}

/** How a module stands at the step that is looked at. */
export interface Standing {
  verdict: number;
  adds: number;
  error: number;
  bad: number;
}

/** By root and path; empty as long as the timeline is not there. The step is the chosen one, else that of the first place. */
export function standings(state: State): Read<ReadonlyMap<string, Standing>> {
  return computed(() => {
    const timeline = state.timeline();
    const map = new Map<string, Standing>();
    if (!timeline) return map;
    const wanted = state.route().step ?? state.answer()?.places[0]?.step ?? null;
    const at = wanted === null ? -1 : timeline.steps.findLastIndex((step) => step <= wanted);
    const best = new Int32Array(timeline.modules.length).fill(-1);
    const bad = new Float64Array(timeline.modules.length);
    const { cells } = timeline;
    for (let i = 0; i < cells.module.length; i++) {
      if (at >= 0 && cells.step[i] !== at) continue;
      const module = cells.module[i]!;
      bad[module]! += cells.bad[i]!;
      if (cells.phase[i] === Phase.parameters) continue;
      const before = best[module]!;
      // What the module gives forward tells how it stands, unless something starts in its backward.
      const rank = (cell: number) =>
        cells.verdict[cell] === Verdict.starts ? 2 : cells.phase[cell] === Phase.forward ? 1 : 0;
      const isBetter = before < 0 || rank(i) > rank(before) || (rank(i) === rank(before) && is_worse(cells, i, before));
      if (isBetter) best[module] = i;
    }
    best.forEach((i, module) => {
      if (i < 0 && bad[module] === 0) return;
      const { root, path } = timeline.modules[module]!;
      map.set(module_key(root, path), {
        verdict: i < 0 ? Verdict.none : cells.verdict[i]!,
        adds: i < 0 ? NaN : num(cells.adds[i]),
        error: i < 0 ? NaN : num(cells.error[i]),
        bad: bad[module]!,
      });
    });
    return map;
  });
}

/** The class that colours a module: how much it adds to the difference, or NaN. */
export function node_class(node: ModuleNode, standing: Standing | undefined): string {
  if (node.side !== "both") return "alone";
  if (standing && standing.verdict >= 0) {
    if (standing.verdict === Verdict.starts) return "starts";
    if (standing.verdict === Verdict.follows) return adds_class(standing.adds);
    return ["equal", "same", "noise", "unknown", "", "", "alone"][standing.verdict] ?? "none";
  }
  if (standing) return standing.bad > 0 ? "nonfinite" : "none";
  switch (node.diff) {
    case "equal":
      return "equal";
    case "bits":
      return "noise";
    case "later":
    case "differs":
      return adds_class(num(node.adds));
    case "alone":
      return "alone";
    default:
      return node.nonfinite !== "none" ? "nonfinite" : "none";
  }
}

/** Strong where it is at the step that is looked at, faint where it comes at another. */
export function NanMark(props: { node: ModuleNode; standing: Standing | undefined }): Node {
  const isNow = props.standing === undefined || props.standing.bad > 0;
  return (
    <span
      class={isNow ? "mark nan" : "mark nan elsewhere"}
      title={`NaN or Inf in its ${props.node.nonfinite}${isNow ? "" : ", at another step"}`}
    >
      NaN
    </span>
  );
}

function adds_class(adds: number): string {
  return adds > 0.5 ? "adds-3" : adds > 0.15 ? "adds-2" : adds > 0.02 ? "adds-1" : "carries";
}

/** Leads to what a module gives at the step that is looked at, or to its names. */
export function open_module(state: State, root: string, path: string, phase = 0): void {
  const timeline = state.timeline.peek();
  const step = state.route.peek().step ?? state.answer.peek()?.places[0]?.step ?? null;
  if (timeline) {
    const module = timeline.modules.findIndex((each) => each.path === path && each.root === root);
    const at = step === null ? -1 : step_place(timeline, step);
    const { cells } = timeline;
    let found = -1;
    for (let i = 0; i < cells.module.length; i++) {
      if (cells.module[i] !== module || cells.event[i] === null) continue;
      if (found < 0) found = i;
      if (cells.phase[i] === phase && (step === null || cells.step[i] === at)) {
        found = i;
        break;
      }
    }
    if (found >= 0) {
      state.go({
        view: "tensor",
        side: cell_side(timeline, found),
        event: cells.event[found]!,
        step: timeline.steps[cells.step[found]!] ?? null,
        name: null,
        call: null,
        rank: null,
      });
      return;
    }
  }
  state.go({ view: "table", params: { module: path, filter: null } });
}

export function ModuleTree(props: { state: State }): Node {
  const { state } = props;
  const filter = signal("");
  const rows = computed(() => {
    const text = filter().trim();
    return tree_rows(state.modules()?.nodes ?? [], state.collapsed(), text === "" ? null : name_filter(text));
  });
  const isFlagged = computed(() => {
    const place = state.answer()?.places[0];
    return place && state.answer()?.of !== "files" ? module_key(place.root, place.module) : null;
  });
  const current = computed(() => state.route().params["module"] ?? null);
  const standing = standings(state);
  const active = signal<number | null>(null);
  const open = (node: ModuleNode) => {
    const view = state.route.peek().view;
    if (view === "timeline" || view === "table") state.go({ params: { module: node.path } }, "replace");
    else open_module(state, node.root, node.path);
  };
  const press = (event: KeyboardEvent) => {
    const last = rows.peek().length - 1;
    const now = active.peek();
    const row = now === null ? undefined : rows.peek()[now];
    const key = row ? module_key(row.node.root, row.node.path) : "";
    if (event.key === "ArrowDown") active.set(Math.min(last, (now ?? -1) + 1));
    else if (event.key === "ArrowUp") active.set(Math.max(0, (now ?? 1) - 1));
    else if (event.key === "ArrowLeft" && row && !state.collapsed.peek().has(key)) state.toggle([key]);
    else if (event.key === "ArrowRight" && row && state.collapsed.peek().has(key)) state.toggle([key]);
    else if (event.key === "Enter" && row) open(row.node);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="tree" tabindex="0" aria-label="Modules" onKeyDown={press}>
      <div class="tree-head">
        <input
          type="search"
          placeholder="Filter modules"
          aria-label="Filter modules"
          onInput={(event) => filter.set((event.currentTarget as HTMLInputElement).value)}
        />
      </div>
      {() => state.modules() === null && state.modules.error() === null ? <Skeleton rows={12} /> : null}
      {() => state.modules.error() ? <p class="muted pad">{state.modules.error()}</p> : null}
      <VirtualList
        count={computed(() => rows().length)}
        rowHeight={24}
        version={() => [rows(), isFlagged(), current(), standing(), active()]}
        active={active}
        label="Modules"
        row={(index) => {
          const { node, depth, hasMore } = rows.peek()[index]!;
          const key = module_key(node.root, node.path);
          const error = standing.peek().get(key)?.error ?? num(node.error);
          const marks = [
            node.nonfinite !== "none" ? <NanMark node={node} standing={standing.peek().get(key)} /> : null,
            node.renamed ? <span class="mark" title={`called ${node.renamed} in the other run`}>⇄</span> : null,
            node.side === "a" ? <span class="mark" title="only in the first run">−</span> : null,
            node.side === "b" ? <span class="mark" title="only in the second run">+</span> : null,
            isFlagged.peek() === key ? <span class="mark flag" title="it starts here">⚑</span> : null,
          ];
          return (
            <div
              class={`tree-row ${
                (current.peek() === node.path && node.path !== "") || active.peek() === index ? "on" : ""
              }`}
              role="option"
              title={`${node.path || node.root} (${node.class})${error > 0 ? `\nerror ${number_text(error)}` : ""}`}
              onClick={() => open(node)}
            >
              <span class={`tone ${node_class(node, standing.peek().get(key))}`}></span>
              <span style={{ width: `${depth * 12}px` }} class="indent"></span>
              {hasMore ? <Caret state={state} of={key} /> : <span class="caret-space"></span>}
              <span class="tree-name">{node.name || node.root}</span>
              <span class="tree-class">{node.class}</span>
              {marks}
            </div>
          );
        }}
      />
    </div>
  );
}
