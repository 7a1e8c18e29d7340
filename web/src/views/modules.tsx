// The modules as a table with columns, or as nested boxes in which repeats are folded into one.

import { h } from "../lib/jsx.ts";
import { computed, effect, type Signal, signal } from "../lib/signals.ts";
import { VirtualList } from "../lib/virtual.tsx";
import { num } from "../lib/paint.ts";
import { name_filter } from "../lib/fuzzy.ts";
import { count_text, number_text, seconds_text, shape_text } from "../lib/text.ts";
import { css_at, kSequential } from "../lib/colors.ts";
import { module_key, type State } from "../state.ts";
import { type ModuleNode, Verdict } from "../types.ts";
import { Caret, Choice, Empty, Failure, LegendItem, Skeleton } from "../parts.tsx";
import { NanMark, node_class, open_module, type Standing, standings, tree_rows } from "./tree.tsx";

type Shape = "tree" | "graph";
type ColorBy = "diff" | "nan" | "time";

export function ModulesView(state: State): Node {
  const shape = computed<Shape>(() => state.route().params["as"] === "graph" ? "graph" : "tree");
  const by = computed<ColorBy>(() => {
    const chosen = state.route().params["by"];
    return chosen === "nan" || chosen === "time" || chosen === "diff" ? chosen : state.hasTwo() ? "diff" : "nan";
  });
  const filter = computed(() => state.route().params["filter"] ?? "");
  const standing = standings(state);
  state.status.set({ hint: "g changes between the tree and the boxes; a click opens what a module gives" });
  // Once, the module in which it starts is brought into view.
  let isPlaced = false;
  const active = signal<number | null>(null);
  effect(() => {
    const place = state.answer()?.places[0], modules = state.modules();
    if (isPlaced || !place || !modules) return;
    isPlaced = true;
    if (active.peek() !== null || filter.peek() !== "") return;
    const rows = tree_rows(modules.nodes, state.collapsed.peek(), null);
    const row = rows.findIndex(({ node }) => node.root === place.root && node.path === place.module);
    if (row >= 0) active.set(row);
  });
  let input: HTMLInputElement | null = null;
  state.keys.view({
    "g": [
      "the tree, or nested boxes",
      () => state.go({ params: { as: shape.peek() === "graph" ? null : "graph" } }, "replace"),
    ],
    "f": ["filter", () => input?.focus()],
    "e": ["unfold all", () => state.collapsed.set(new Set())],
    "w": ["fold all", () => fold_all(state)],
  });
  state.actions([
    { title: "Unfold all modules", key: "E", run: () => state.collapsed.set(new Set()) },
    { title: "Fold all modules", key: "W", run: () => fold_all(state) },
  ]);
  return (
    <div class="column">
      <div class="toolbar">
        <Choice<Shape>
          label="Drawn as"
          options={[["tree", "Tree"], ["graph", "Boxes"]]}
          value={shape}
          onChoose={(value) => state.go({ params: { as: value === "tree" ? null : value } }, "replace")}
        />
        {() => (
          <Choice<ColorBy>
            label="Colour by"
            options={state.hasTwo()
              ? [["diff", "Difference"], ["nan", "NaN"], ["time", "Time"]]
              : [["nan", "NaN"], ["time", "Time"]]}
            value={by}
            onChoose={(value) => state.go({ params: { by: value } }, "replace")}
          />
        )}
        <input
          type="search"
          placeholder="Filter modules"
          aria-label="Filter modules"
          value={filter}
          ref={(element) => input = element}
          onInput={(event) =>
            state.go({ params: { filter: (event.currentTarget as HTMLInputElement).value } }, "replace")}
        />
        <button type="button" onClick={() => state.collapsed.set(new Set())}>Unfold all</button>
        <button type="button" onClick={() => fold_all(state)}>Fold all</button>
        <span class="grow"></span>
        {() => <Legend by={by()} />}
      </div>
      {() => {
        const modules = state.modules();
        if (modules === null) {
          return state.modules.error() !== null
            ? <Failure title="There are no modules" text={state.modules.error()!} />
            : <Skeleton rows={14} progress={state.modules.progress} />;
        }
        if (modules.nodes.length === 0) {
          return (
            <Empty title="No modules were recorded">
              They are recorded where a model is traced: see tenscope.trace. The table has every tensor by its name.
            </Empty>
          );
        }
        return shape() === "graph"
          ? <Graph state={state} nodes={modules.nodes} by={by()} filter={filter()} standing={standing()} />
          : (
            <Tree
              state={state}
              nodes={modules.nodes}
              by={by()}
              filter={filter()}
              standing={standing()}
              active={active}
            />
          );
      }}
    </div>
  );
}

function fold_all(state: State): void {
  const nodes = state.modules.peek()?.nodes ?? [];
  state.collapsed.set(
    new Set(nodes.filter((node) => node.parent >= 0).map((node) => module_key(node.root, node.path))),
  );
}

function Legend(props: { by: ColorBy }): Node {
  if (props.by === "time") {
    return (
      <span class="legend">
        <span class="legend-item">
          short<span class="swatch ramp-size"></span>long
        </span>
      </span>
    );
  }
  if (props.by === "nan") {
    return (
      <span class="legend">
        <LegendItem swatch="equal" text="finite" />
        <LegendItem swatch="nonfinite" text="NaN or Inf" />
        <LegendItem swatch="nonfinite-elsewhere" text="at another step" />
      </span>
    );
  }
  return (
    <span class="legend">
      <LegendItem swatch="equal" text="equal" />
      <LegendItem swatch="noise" text="noise" />
      <LegendItem swatch="carries" text="passes it on" />
      <LegendItem swatch="adds-3" text="adds to it" />
      <LegendItem swatch="starts" text="starts it" />
      <LegendItem swatch="alone" text="one side only" />
    </span>
  );
}

/** A class, or a colour of its own, for a node. */
function tone(
  node: ModuleNode,
  by: ColorBy,
  longest: number,
  standing: Standing | undefined,
): { class: string; color: string | null } {
  if (by === "time") {
    const time = node.duration_s ?? 0;
    return { class: "", color: time > 0 && longest > 0 ? css_at(kSequential, Math.sqrt(time / longest)) : null };
  }
  if (by === "nan") {
    if (node.nonfinite === "none") return { class: "equal", color: null };
    return { class: standing === undefined || standing.bad > 0 ? "nonfinite" : "nonfinite-elsewhere", color: null };
  }
  return { class: node_class(node, standing), color: null };
}

function Tone(props: { of: { class: string; color: string | null }; class: string }): Node {
  return (
    <span class={`${props.class} ${props.of.class}`} style={props.of.color ? { background: props.of.color } : {}}>
    </span>
  );
}

function marks(node: ModuleNode, standing: Standing | undefined): Node[] {
  const list: Node[] = [];
  if (node.nonfinite !== "none") list.push(<NanMark node={node} standing={standing} />);
  if (node.renamed) list.push(<span class="mark" title="its name in the other run">⇄ {node.renamed}</span>);
  if (node.side === "a") list.push(<span class="mark">− missing in B</span>);
  if (node.side === "b") list.push(<span class="mark">+ only in B</span>);
  return list;
}

const kColumns =
  "minmax(260px, 36rem) minmax(90px, 0.7fr) 60px 84px 84px 82px 64px minmax(100px, 0.7fr) minmax(100px, 0.7fr)";

interface TreeProps {
  state: State;
  nodes: ModuleNode[];
  by: ColorBy;
  filter: string;
  standing: ReadonlyMap<string, Standing>;
  /** The row that is chosen; it stays so when the rows are made anew. */
  active: Signal<number | null>;
}

function Tree(props: TreeProps): Node {
  const { state, nodes, by, filter, standing } = props;
  const two = state.hasTwo.peek();
  const columns = two ? kColumns : kColumns.replace("82px 64px", "0 0");
  const longest = nodes.reduce((most, node) => Math.max(most, node.duration_s ?? 0), 0);
  const rows = computed(() => tree_rows(nodes, state.collapsed(), filter.trim() === "" ? null : name_filter(filter)));
  const active = props.active;
  const move = (to: number) =>
    active.update((now) => Math.max(0, Math.min(rows.peek().length - 1, now === null ? 0 : now + to)));
  const current = () => active.peek() === null ? null : rows.peek()[active.peek()!]?.node ?? null;
  state.keys.view({
    "ArrowDown": ["the next module", () => move(1)],
    "ArrowUp": ["the module before", () => move(-1)],
    "j": ["the next module", () => move(1)],
    "k": ["the module before", () => move(-1)],
    "ArrowLeft": ["fold", () => {
      const node = current();
      if (node && !state.collapsed.peek().has(module_key(node.root, node.path))) {
        state.toggle([module_key(node.root, node.path)]);
      }
    }],
    "ArrowRight": ["unfold", () => {
      const node = current();
      if (node && state.collapsed.peek().has(module_key(node.root, node.path))) {
        state.toggle([module_key(node.root, node.path)]);
      }
    }],
    "Enter": ["open what it gives", () => {
      const node = current();
      if (node) open_module(state, node.root, node.path);
    }],
  });
  return (
    <div class="column">
      <div class="grid-head" style={{ "grid-template-columns": columns }}>
        <span>module</span>
        <span>class</span>
        <span class="right">calls</span>
        <span class="right">time</span>
        <span class="right">own time</span>
        <span class="right">{two ? "error" : ""}</span>
        <span class="right">{two ? "adds" : ""}</span>
        <span>inputs</span>
        <span>outputs</span>
      </div>
      <VirtualList
        count={computed(() => rows().length)}
        rowHeight={26}
        class="grid-body"
        label="Modules"
        version={() => [rows(), active()]}
        active={active}
        row={(index) => {
          const { node, depth, hasMore } = rows.peek()[index]!;
          const key = module_key(node.root, node.path);
          const now = standing.get(key);
          const [error, adds] = now ? [now.error, now.adds] : [num(node.error), num(node.adds)];
          return (
            <div
              class={`grid-row ${active.peek() === index ? "on" : ""}`}
              style={{ "grid-template-columns": columns }}
              role="option"
              title={node.path}
              onClick={() => open_module(state, node.root, node.path)}
            >
              <span class="module-cell">
                <Tone of={tone(node, by, longest, standing.get(key))} class="swatch" />
                <span class="indent" style={{ width: `${depth * 14}px` }}></span>
                {hasMore ? <Caret state={state} of={key} /> : <span class="caret-space"></span>}
                <span class="mono">{node.name || node.root}</span>
                {marks(node, now)}
              </span>
              <span class="muted">{node.class}</span>
              <span class="num right">{count_text(node.calls)}</span>
              <span class="num right">{seconds_text(node.duration_s)}</span>
              <span class="num right muted">{seconds_text(node.own_s)}</span>
              <span class={`num right ${error > 0 ? "" : "faint"}`}>
                {Number.isNaN(error) ? "" : number_text(error, 3)}
              </span>
              <span class={`num right ${adds > 0 ? "" : "faint"}`}>
                {Number.isNaN(adds) || !two ? "" : `${Math.round(adds * 100)} %`}
              </span>
              <span class="muted num">{node.inputs.map(shape_text).join(", ")}</span>
              <span class="muted num">{node.outputs.map(shape_text).join(", ")}</span>
            </div>
          );
        }}
      />
    </div>
  );
}

/** How much a node wants to be seen, for a box that stands for several. */
function severity(node: ModuleNode, standing: Standing | undefined): number {
  const bad = node.nonfinite !== "none" ? 0.5 : 0;
  if (!standing || standing.verdict < 0) return bad;
  const order = [1, 2, 3, 4, 5, 8, 7][standing.verdict] ?? 0;
  return order + bad + (standing.verdict === Verdict.follows ? standing.adds || 0 : 0);
}

function Graph(
  props: { state: State; nodes: ModuleNode[]; by: ColorBy; filter: string; standing: ReadonlyMap<string, Standing> },
): Node {
  const { state, nodes, by, filter, standing } = props;
  const longest = nodes.reduce((most, node) => Math.max(most, node.duration_s ?? 0), 0);
  const children = new Map<number, ModuleNode[]>();
  for (const node of nodes) {
    const list = children.get(node.parent);
    if (list) list.push(node);
    else children.set(node.parent, [node]);
  }
  const of = (node: ModuleNode) => standing.get(module_key(node.root, node.path));
  const paint = (node: ModuleNode) => tone(node, by, longest, of(node));
  const weigh = (node: ModuleNode) => severity(node, of(node));
  // The worst of all that is in a node, so that a closed box tells what is inside.
  const worst = new Map<number, ModuleNode>();
  for (const node of [...nodes].reverse()) {
    const mine = [node, ...(children.get(node.id) ?? []).map((child) => worst.get(child.id)!)];
    worst.set(node.id, mine.reduce((a, b) => weigh(b) > weigh(a) ? b : a));
  }
  const matches = filter.trim() === "" ? null : name_filter(filter);
  // Boxes that were opened or closed by hand; without that two levels are open, and repeats folded.
  const opened = signal<ReadonlyMap<string, boolean>>(new Map());
  const set_open = (key: string, isOpen: boolean) => opened.update((map) => new Map([...map, [key, isOpen]]));

  const box = (node: ModuleNode, depth: number): Node => {
    const inside = children.get(node.id) ?? [];
    // What leads to a place that starts a difference is open, too.
    const isOpen = () =>
      opened().get(`n${node.id}`) ?? (depth < 2 || (of(worst.get(node.id)!)?.verdict === Verdict.starts));
    const isFlat = inside.length > 1 && inside.every((child) => !children.has(child.id));
    return (
      <div class="box" title={node.path}>
        <div
          class="box-head"
          onClick={() =>
            inside.length > 0 ? set_open(`n${node.id}`, !isOpen()) : open_module(state, node.root, node.path)}
        >
          {() => <Tone of={paint(isOpen() || by === "time" ? node : worst.get(node.id)!)} class="box-tone" />}
          <span class="box-name">{node.name || node.root}</span>
          <span class="box-class">{node.class}</span>
          {marks(node, standing.get(module_key(node.root, node.path)))}
          <button
            type="button"
            class="link"
            title="Look at what it gives"
            onClick={(event) => {
              event.stopPropagation();
              open_module(state, node.root, node.path);
            }}
          >
            {(of(node)?.error ?? num(node.error)) > 0
              ? number_text(of(node)?.error ?? num(node.error), 2)
              : by === "time"
              ? seconds_text(node.duration_s)
              : "→"}
          </button>
          <span class="box-shape num">{node.outputs.map(shape_text).join(", ")}</span>
        </div>
        {() =>
          inside.length > 0 && isOpen()
            ? <div class={`box-body ${isFlat ? "box-row" : ""}`}>{chain(inside, depth + 1)}</div>
            : null}
      </div>
    );
  };

  /** Children below each other; those of one structure that follow each other as one box. */
  const chain = (list: readonly ModuleNode[], depth: number): Node[] => {
    const made: Node[] = [];
    for (let at = 0; at < list.length;) {
      const node = list[at]!;
      let end = at + 1;
      while (node.fold !== null && list[end]?.fold === node.fold) end++;
      if (made.length > 0) made.push(<div class="box-link"></div>);
      made.push(end - at > 1 ? fold(list.slice(at, end), depth) : box(node, depth));
      at = end;
    }
    return made;
  };

  const fold = (list: readonly ModuleNode[], depth: number): Node => {
    const key = `f${list[0]!.id}`;
    const shown = () => opened().get(key) ?? false;
    // The one that is drawn for all: the worst, so that what is off is seen.
    const first = [...list].sort((a, b) => weigh(worst.get(b.id)!) - weigh(worst.get(a.id)!))[0]!;
    const chosen = signal(first);
    return (
      <div>
        {() =>
          shown()
            ? [
              <button type="button" class="link" onClick={() => set_open(key, false)}>Fold {list[0]!.fold}</button>,
              <div>{list.map((node, i) => [i > 0 ? <div class="box-link"></div> : null, box(node, depth)])}</div>,
            ]
            : (
              <div class="box folded">
                <div class="box-head" onClick={() => set_open(key, true)}>
                  <Tone of={paint(worst.get(first.id)!)} class="box-tone" />
                  <span class="box-name times">{list[0]!.fold}</span>
                  <span class="box-class">{list[0]!.class}</span>
                  <span class="box-shape">unfold</span>
                </div>
                <div class="fold-cells">
                  {list.map((node) => {
                    const painted = paint(by === "time" ? node : worst.get(node.id)!);
                    return (
                      <button
                        type="button"
                        class={() => `${painted.class} ${chosen() === node ? "chosen" : ""}`}
                        style={painted.color ? { background: painted.color } : {}}
                        title={node.path}
                        aria-label={node.path}
                        onClick={() => chosen.set(node)}
                      >
                      </button>
                    );
                  })}
                </div>
                <div class="box-body">{() => box(chosen(), depth)}</div>
              </div>
            )}
      </div>
    );
  };
  const top = matches
    ? nodes.filter((node) => matches(`${node.path} ${node.class}`)).slice(0, 300)
    : children.get(-1) ?? [];
  return <div class="graph">{chain(top, 0)}</div>;
}
