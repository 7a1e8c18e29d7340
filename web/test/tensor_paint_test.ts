/// <reference lib="deno.ns" />
import { paint_marks, paint_tile, palette_of, reduce_tile, reduce_words, reduction } from "../src/tensor/paint.ts";
import { make_scale, to_unit } from "../src/tensor/scale.ts";
import { cell_value, type CellMode, type Tile } from "../src/tensor/tile.ts";
import { common_bins, symlog_axis } from "../src/tensor/charts.tsx";
import { command_of, python_of, quote } from "../src/tensor/command.ts";
import { parse_slice, type Picture } from "../src/tensor/slicing.ts";
import { from_slider, slider_of } from "../src/tensor/controls.tsx";
import { arrange } from "../src/tensor/heat.tsx";
import { is_spiky } from "../src/tensor/inspector.tsx";

function same(found: unknown, wanted: unknown): void {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`found ${a}, wanted ${b}`);
}

function tile_of(height: number, width: number, exact: boolean, value: (at: number) => number, spread = 0): Tile {
  const cells = height * width;
  const make = (by: number) => Float32Array.from({ length: cells }, (_, at) => value(at) + by);
  const flags = Uint8Array.from({ length: cells }, (_, at) => {
    const one = value(at);
    return Number.isNaN(one) ? 1 : one === Infinity ? 2 : one === -Infinity ? 4 : 0;
  });
  const min = make(-spread);
  return {
    rows: [0, height],
    cols: [0, width],
    ofRows: height,
    ofCols: width,
    height,
    width,
    exact,
    axes: [0, 1],
    shape: [height, width],
    slice: ":,:",
    dtype: "float32",
    scale: null,
    min,
    max: exact ? min : make(spread),
    mean: exact ? min : make(0),
    flags,
  };
}

Deno.test("each cell has the colour of its value, in all modes", () => {
  const tile = tile_of(16, 16, false, (at) => Math.sin(at) * 3, 0.5);
  for (const isSequential of [false, true]) {
    const palette = palette_of(isSequential, "light");
    for (const mode of ["peak", "min", "max", "mean"] as CellMode[]) {
      for (const kind of ["linear", "symlog"] as const) {
        const scale = make_scale(2.5, kind, isSequential);
        const out = new Uint32Array(256);
        paint_tile(tile, mode, scale, palette, out);
        for (let at = 0; at < 256; ++at) {
          const exact = to_unit(scale, cell_value(tile, at, mode)) * 255;
          const near = [-1, 0, 1].map((by) => palette.words[Math.max(0, Math.min(255, Math.round(exact) + by))]!);
          if (!near.includes(out[at]!)) throw new Error(`cell ${at} of ${mode}, ${kind}`);
        }
      }
    }
  }
});

Deno.test("NaN and infinities have colours of their own", () => {
  const tile = tile_of(1, 4, true, (at) => [NaN, Infinity, -Infinity, 1][at]!);
  const out = new Uint32Array(4);
  const palette = palette_of(false, "dark");
  paint_tile(tile, "peak", make_scale(1, "linear", false), palette, out);
  same([...out], [palette.nan, palette.posInf, palette.negInf, palette.words[255]]);
  for (const isSequential of [false, true]) {
    for (const theme of ["light", "dark"] as const) {
      const { words, nan, posInf, negInf } = palette_of(isSequential, theme);
      same([nan, posInf, negInf].map((sign) => words.includes(sign)), [false, false, false]);
    }
  }
});

Deno.test("reducing loses no outlier, no NaN and no mark", () => {
  const tile = tile_of(101, 67, true, (at) => (at === 5000 ? -99 : at === 6001 ? NaN : at === 17 ? Infinity : 1));
  const small = reduce_tile(tile, 4, 8);
  same([small.height, small.width, small.exact], [26, 9, false]);
  const place = (at: number) => (Math.floor(at / 67) >> 2) * 9 + ((at % 67) >> 3);
  same([small.min[place(5000)], small.max[place(5000)]], [-99, 1]);
  same([small.flags[place(6001)], small.flags[place(17)], small.max[place(17)]], [1, 2, 1]);
  same(small.flags.filter((flag) => flag !== 0).length, 2);
  const words = new Uint32Array(101 * 67);
  words[5000] = 0xff000001;
  words[5001] = 0x80000001;
  const few = reduce_words(words, 67, 101, 4, 8);
  same([few[place(5000)], few.filter((word) => word !== 0).length], [0xff000001, 1]);
  same([reduction(512, 512), reduction(512, 511), reduction(512, 100), reduction(3, 100)], [1, 2, 8, 1]);
});

Deno.test("marks are counted", () => {
  const a = tile_of(1, 4, true, () => 2), diff = tile_of(1, 4, true, (at) => at / 10);
  diff.flags.fill(8);
  const out = new Uint32Array(4);
  same(paint_marks(a, diff, 0.06, 0, 9, 5, out), [2, 0]);
  same([...out], [0, 0, 9, 9]);
});

Deno.test("two histograms get common bins and keep their counts", () => {
  const rest = { nan: 0, pos_inf: 0, neg_inf: 0, zero: 0, subnormal: 0 };
  const a = { edges: [-2, -1, 0, 1, 2], counts: [1, 2, 3, 4], ...rest };
  const b = { edges: [-1, -0.5, 0, 0.5, 1, 2, 4], counts: [1, 1, 1, 1, 1, 7], ...rest };
  const [one, two] = common_bins(a, b);
  same(one.edges, [-2, -1, 0, 1, 2, 4]);
  same([one.counts, two.counts], [[1, 2, 3, 4, 0], [0, 2, 2, 1, 7]]);
  const far = { edges: [1, 1.1, 1.2, 1.3, 2], counts: [1, 2, 3, 4], ...rest };
  same(common_bins(a, far)[1].edges.length >= 3, true);
  same(common_bins({ ...far, edges: [1, 1.15, 1.25, 1.35, 2] }, far)[1], far);
  const axis = symlog_axis(one.edges);
  same([axis(-2), axis(4)], [0, 1]);
  if (!(axis(-1) < axis(0) && axis(0) < axis(1))) throw new Error("the axis is not in order");
});

Deno.test("a slice is copied as a command and as Python", () => {
  const shape = [2, 16, 64];
  const picture = (text: string, more: Partial<Picture> = {}): Picture => ({
    shape,
    parts: parse_slice(text, shape),
    isTransposed: false,
    isFolded: false,
    ...more,
  });
  const [command, python] = ["tenscope show RUN q --step 3", 'tenscope.open("RUN")["q", 3]'];
  same(command_of(command, picture("0,:,3")), "tenscope show RUN q --step 3 --slice 0,:,3");
  same(command_of(command, picture(":,:,:")), command);
  same(command_of("tenscope diff a b", picture("0,:,3")), "tenscope diff a b");
  same(python_of(python, picture("0,:,3")), `${python}[0, :, 3]`);
  same(python_of(python, picture("0,:,:", { isTransposed: true })), `${python}[0, :, :].T`);
  same(python_of(python, picture("0,:,:", { isFolded: true })), `${python}.reshape(-1, 64)`);
  same(python_of('tenscope.load("a.npy")', picture("0,:,:")), 'tenscope.load("a.npy")');
  same([quote("0,:,3:7"), quote("a b"), quote("it's")], ["0,:,3:7", "'a b'", `'it'\\''s'`]);
});

Deno.test("the tolerance's slider goes over powers of ten and ends at 0", () => {
  same([from_slider(slider_of(0)), from_slider(slider_of(1e-5)), from_slider(slider_of(0.25))], [0, 1e-5, 0.25]);
});

Deno.test("panes of long rows are stacked, others stand side by side", () => {
  const size = { width: 960, height: 480 }, room = { left: 38, top: 17 };
  same(arrange(3, size, { rows: 1, cols: 300 }, room), 1);
  same(arrange(3, size, { rows: 512, cols: 512 }, room), 3);
  // Three are not put on four places.
  same(arrange(3, { width: 3000, height: 1950 }, { rows: 48, cols: 96 }, room), 1);
  same(arrange(1, size, { rows: 5, cols: 5 }, room), 1);
  same(arrange(3, { width: 0, height: 0 }, { rows: 5, cols: 5 }, room), 3);
});

Deno.test("a profile is logarithmic where one spike hides the rest", () => {
  same(is_spiky([1, 1, 2, 1, 1, 900]), true);
  same([is_spiky([1, 2, 3, 4, 5, 6]), is_spiky([0, 0, 0, 0, 0, 900]), is_spiky([NaN, 1])], [false, false, false]);
});
