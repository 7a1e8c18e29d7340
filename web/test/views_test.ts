/// <reference lib="deno.ns" />
import { scroll_for, visible_range } from "../src/lib/virtual.tsx";
import { build_matrix, nest, step_place, step_text } from "../src/lib/matrix.ts";
import { ago_text, bytes_text, number_text, seconds_text, shape_text } from "../src/lib/text.ts";
import { key_name } from "../src/keys.ts";
import { strip_layout } from "../src/views/strip.tsx";
import { table_order } from "../src/views/table.tsx";
import { given_by } from "../src/views/calls.tsx";
import { key_ranges } from "../src/palette.tsx";
import { read_patch } from "../src/views/code.tsx";
import { node_class, type Standing, tree_rows } from "../src/views/tree.tsx";
import { numbers_of } from "../src/views/glance.tsx";
import { change_text, is_bad } from "../src/views/lines.tsx";
import { spark_path, spread_steps } from "../src/parts.tsx";
import { type ModuleNode, type Names, type Timeline, to_number } from "../src/types.ts";
import { equal } from "./assert.ts";

Deno.test("the rows that are seen, and a few more", () => {
  equal(visible_range(0, 100, 20, 1000, 2), { first: 0, end: 7 });
  equal(visible_range(210, 100, 20, 1000, 2), { first: 8, end: 18 });
  equal(visible_range(19_900, 100, 20, 1000, 2), { first: 993, end: 1000 });
  equal(visible_range(500, 100, 20, 0), { first: 0, end: 0 });
  // Scrolled beyond what is left after a filter.
  equal(visible_range(5000, 100, 20, 3, 2), { first: 3, end: 3 });
});

Deno.test("a row is scrolled to where it is not seen", () => {
  equal(scroll_for(3, 0, 100, 20), null);
  equal(scroll_for(5, 0, 100, 20), 20);
  equal(scroll_for(2, 100, 100, 20), 40);
});

function timeline(cells: [number, number, number, number, number][], steps: number, modules: number): Timeline {
  const column = <K extends number>(at: K) => cells.map((cell) => cell[at]!);
  return {
    state: "ready",
    steps: Array.from({ length: steps }, (_, i) => i),
    modules: Array.from(
      { length: modules },
      (_, i) => ({ root: "M#0", path: `m${i}`, class: "", depth: 1, renamed: null, side: "both" }),
    ),
    cells: {
      module: column(0),
      step: column(1),
      phase: column(2),
      verdict: column(3),
      error: column(4),
      adds: cells.map(() => 0),
      size: cells.map(() => 1),
      bad: cells.map(() => 0),
      event: cells.map((_, i) => i),
    },
    left_out: 0,
  };
}

Deno.test("a matrix holds the worst cell of each place", () => {
  const of = timeline(
    [[0, 0, 0, 2, 1e-7], [0, 0, 1, 4, 1e-3], [0, 1, 0, 4, 0.5], [0, 1, 1, 5, 0.1], [1, 3, 0, 0, 0]],
    4,
    2,
  );
  const all = build_matrix(of, Int32Array.of(0, 1), 2, null, 100);
  equal([all.columns, all.bin], [4, 1]);
  equal([...all.at], [1, 3, -1, -1, -1, -1, -1, 4]);
  equal([...build_matrix(of, Int32Array.of(0, 1), 2, 0, 100).at], [0, 2, -1, -1, -1, -1, -1, 4]);
  const two = build_matrix(of, Int32Array.of(-1, 0), 1, null, 2);
  equal([two.columns, two.bin, [...two.at]], [2, 2, [-1, 4]]);
});

Deno.test("modules stand over what is in them, and a list of modules that was never called leaves no gap", () => {
  const modules = ["", "t", "blocks.0", "blocks.0.a", "blocks.0.b", "blocks.01", "h"].map((path) => ({
    root: "M#0",
    path,
  }));
  equal(nest(modules).map(({ level, hasMore }) => `${level}${hasMore ? "+" : ""}`), [
    "0+",
    "1",
    "1+",
    "2",
    "2",
    "1",
    "1",
  ]);
  equal(nest([{ root: "A#0", path: "" }, { root: "B#0", path: "" }]).map((each) => each.level), [0, 0]);
  const { cells, leaves, levels } = strip_layout(modules, 6);
  equal([leaves, levels], [5, 2]);
  equal(cells.map(({ module, x0, x1, isLeaf }) => [module, x0, x1, isLeaf]), [
    [0, 0, 5, false],
    [1, 0, 1, true],
    [2, 1, 3, false],
    [3, 1, 2, true],
    [4, 2, 3, true],
    [5, 3, 4, true],
    [6, 4, 5, true],
  ]);
  equal(strip_layout([], 3).leaves, 0);
});

Deno.test("numbers that JSON lacks, and large integers, are texts", () => {
  equal([1.5, "nan", "inf", "-inf", "19", null, ""].map(to_number), [1.5, NaN, Infinity, -Infinity, 19, NaN, NaN]);
});

const names: Names = {
  state: "ready",
  name: ["b.weight", "a.output", "ab.output", "a.x"],
  module: ["b", "a", "ab", "a"],
  io: ["param", "output", "output", "value"],
  phase: [2, 0, 0, 0],
  kind: ["tensor", "tensor", "tensor", "number"],
  dtype: ["float32", "float32", "float16", ""],
  shape: [[2, 3], [4], [4], []],
  events: [1, 5, 5, 9],
  bad: [0, 0, 3, 0],
  verdict: [0, 5, 6, 3],
  error: [0, 0.5, null, "nan"],
  first: [1, 2, null, 4],
  last: [1, 2, null, 4],
  first_b: [1, 2, 3, 4],
};
const none = { text: "", module: "", only: "" };

Deno.test("a table is filtered and sorted", () => {
  equal([...table_order(names, none, "order", false)], [0, 1, 2, 3]);
  equal([...table_order(names, { ...none, module: "a" }, "order", false)], [1, 3]);
  equal([...table_order(names, { ...none, text: "*.output" }, "order", false)], [1, 2]);
  equal([...table_order(names, { ...none, only: "bad" }, "order", false)], [2]);
  equal([...table_order(names, { ...none, only: "differ" }, "order", false)], [1, 2, 3]);
  equal([...table_order(names, none, "name", false)], [1, 3, 2, 0]);
  equal([...table_order(names, none, "verdict", true)], [1, 2, 3, 0]);
  equal([...table_order(names, none, "error", true)].slice(0, 2), [1, 0]);
});

Deno.test("a folded module hides what is in it, at any depth, and a filter shows what matches and what it lies in", () => {
  const node = (id: number, parent: number, path: string) =>
    ({ id, parent, path, root: "M#0", name: path, class: "C", renamed: null }) as unknown as ModuleNode;
  const nodes = [node(0, -1, ""), node(1, 0, "a"), node(2, 1, "a.b"), node(3, 2, "a.b.c"), node(4, 0, "d")];
  const shown = (folded: string[], filter: ((name: string) => boolean) | null = null) =>
    tree_rows(nodes, new Set(folded), filter).map((row) => `${row.node.id}:${row.depth}`);
  equal(shown([]), ["0:0", "1:1", "2:2", "3:3", "4:1"]);
  equal(shown(["M#0:a"]), ["0:0", "1:1", "4:1"]);
  equal(shown(["M#0:a"], (name) => name.includes("b.c")), ["0:0", "1:1", "2:2", "3:3"]);
  equal(tree_rows(nodes, new Set(), null).map((row) => row.hasMore), [true, true, true, false, false]);
});

Deno.test("keys have one name each", () => {
  const press = (key: string, more: Partial<KeyboardEvent> = {}) =>
    key_name({ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...more });
  equal(press("k", { ctrlKey: true }), "Ctrl+K");
  equal(press("k", { metaKey: true }), "Ctrl+K");
  equal(press("?", { shiftKey: true }), "?");
  equal(press("J", { shiftKey: true }), "Shift+J");
  equal(press(" "), "Space");
  equal(press("ArrowLeft", { shiftKey: true }), "Shift+ArrowLeft");
  equal(press("j"), "j");
});

Deno.test("numbers, times and sizes as texts", () => {
  equal([0, 1, -3, 0.031, 3.1e-7, 123456.7, 1e10, 1.5, 2 / 3].map((x) => number_text(x)), [
    "0",
    "1",
    "-3",
    "0.031",
    "3.1e-7",
    "1.23e5",
    "1e10",
    "1.5",
    "0.6667",
  ]);
  equal([NaN, Infinity, -Infinity].map((x) => number_text(x)), ["NaN", "+Inf", "-Inf"]);
  equal([0, 3e-9, 2.5e-5, 0.0123, 4.2, 75, 7300].map(seconds_text), [
    "0",
    "3.00 ns",
    "25.0 µs",
    "12.3 ms",
    "4.20 s",
    "1 min 15 s",
    "2 h 1 min",
  ]);
  equal([12, 1234, 99_700, 5.1e9].map(bytes_text), ["12 B", "1.2 KB", "100 KB", "5.1 GB"]);
  equal([shape_text([2, 3]), shape_text([]), shape_text("2x16x64"), shape_text(null)], [
    "2×3",
    "scalar",
    "2×16×64",
    "",
  ]);
  equal([ago_text(100, 110), ago_text(100, 400), ago_text(0, 30 * 86400)], ["just now", "5 minutes ago", "1970-01-01"]);
});

Deno.test("a watched value is told in a line, and a NaN is seen", () => {
  equal([change_text({ value: 0.5 }), change_text({ value: "nan" }), change_text({ value: "text" })], [
    "0.5",
    "NaN",
    "text",
  ]);
  equal([is_bad({ value: "nan" }), is_bad({ value: "inf" }), is_bad({ value: 1 }), is_bad({ value: "text" })], [
    true,
    true,
    false,
    false,
  ]);
});

Deno.test("a line is broken at what is not finite", () => {
  const { line, bad } = spark_path([[0, 0], [1, 1], [2, NaN], [3, 1], [4, 0]], 100, 20);
  equal(line.split("M").length - 1, 2);
  equal(bad, [50]);
});

Deno.test("a step is found, and named, where several are put together", () => {
  const alone = { steps: [0, 3, 9], steps_together: 1 };
  equal([0, 3, 9, 4].map((step) => step_place(alone, step)), [0, 1, 2, -1]);
  equal(step_text(alone, 1), "3");
  equal(step_text(alone, 1, 2), "3 (2 steps together)");
  const together = { steps: [10, 20, 30], steps_together: 10 };
  equal([9, 10, 19, 20, 99].map((step) => step_place(together, step)), [-1, 0, 0, 1, 2]);
  equal(step_text(together, 2), "30 (10 steps together)");
  equal(step_text(together, 2, 3), "30 (30 steps together)");
});

Deno.test("what a call gave is its output, not its beginning", () => {
  const same_module = [{ id: 5, name: "m.input.0" }, { id: 9, name: "m.output" }, { id: 11, name: "m.note" }];
  equal(given_by({ id: 3, kind: "enter", same_module }), 9);
  equal(given_by({ id: 3, kind: "enter", same_module: [{ id: 8, name: "output.0" }] }), 8);
  equal(given_by({ id: 3, kind: "enter", same_module: [{ id: 5, name: "m.throughput" }] }), 5);
  equal(given_by({ id: 3, kind: "enter", same_module: [] }), null);
  equal(given_by({ id: 3, kind: "value", same_module }), 3);
});

Deno.test("a patch has the numbers of both files, and what changed within a line", () => {
  const lines = read_patch([
    "--- model.py",
    "+++ model.py",
    "@@ -10,4 +10,4 @@",
    " def forward(self, x):",
    "-    scores = q @ k / WIDTH**0.5",
    "+    scores = q @ k / HEAD**0.5",
    "     return scores",
    "@@ -30 +30,2 @@",
    "-a = 1",
    "+completely(different)",
    "+--- not a file",
  ]);
  equal(lines.map((line) => [line.kind, line.a, line.b]), [
    ["gap", null, null],
    ["same", 10, 10],
    ["removed", 11, null],
    ["added", null, 11],
    ["same", 12, 12],
    ["gap", null, null],
    ["removed", 30, null],
    ["added", null, 30],
    ["added", null, 31],
  ]);
  equal(lines.map((line) => line.changed && line.text.slice(...line.changed)).filter(Boolean), ["WIDTH", "HEAD"]);
  equal(lines.at(-1)!.text, "--- not a file");
});

Deno.test("keys that follow each other are told by the first and the last", () => {
  equal(key_ranges(["1", "2", "3", "4", "Alt+1", "Alt+2", "Alt+3"]), ["1", "…", "4", "Alt+1", "…", "Alt+3"]);
  equal(key_ranges(["Ctrl+k", "/"]), ["Ctrl+k", "/"]);
  equal(key_ranges(["1", "2"]), ["1", "2"]);
});

Deno.test("several values of a step stand behind each other, those of one step where they are", () => {
  equal(spread_steps([[0, 5], [1, 6], [3, 7]]), [[0, 5], [1, 6], [3, 7]]);
  equal(spread_steps([[0, 1], [0, 2], [4, 3], [4, 4]]), [[0, 1], [2, 2], [4, 3], [4.5, 4]]);
  equal(spread_steps([]), []);
});

Deno.test("losses come first among the numbers that have a line", () => {
  const names = {
    name: ["lr", "weight", "train_loss", "once", "accuracy"],
    kind: ["number", "tensor", "number", "number", "number"],
    events: [4, 4, 4, 1, 2],
  } as unknown as Names;
  equal(numbers_of(names, 8), [2, 0, 4]);
  equal(numbers_of(names, 1), [2]);
});

Deno.test("a module is coloured by NaN only at the step that has one", () => {
  const node = { side: "both", nonfinite: "output", diff: "unknown" } as unknown as ModuleNode;
  const standing = (bad: number): Standing => ({ verdict: -1, adds: NaN, error: NaN, bad });
  equal(node_class(node, standing(3)), "nonfinite");
  equal(node_class(node, standing(0)), "none");
  equal(node_class(node, undefined), "nonfinite");
});
