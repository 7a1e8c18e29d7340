/// <reference lib="deno.ns" />
import {
  beyond_tolerance,
  cell_of,
  cell_range,
  cell_value,
  decode_tile,
  facts_at,
  type Tile,
} from "../src/tensor/tile.ts";
import {
  default_slice,
  format_slice,
  index_at,
  parse_slice,
  type Picture,
  picture_axes,
  picture_size,
  place_of,
  role_of,
  set_role,
  show_index,
  SliceError,
} from "../src/tensor/slicing.ts";
import { fit_number, format_change, format_count, format_number, format_percent } from "../src/tensor/format.ts";
import { from_unit, limit_of, make_scale, ticks_of, to_unit } from "../src/tensor/scale.ts";
import {
  clamp_view,
  detail_range,
  fit_all,
  format_view,
  is_whole,
  kLargestCell,
  needs_detail,
  pan_by,
  parse_view,
  reveal,
  zoom_at,
} from "../src/tensor/viewport.ts";

function same(found: unknown, wanted: unknown): void {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`found ${a}, wanted ${b}`);
}

function near(found: number, wanted: number, within = 1e-9): void {
  if (!(Math.abs(found - wanted) <= within)) throw new Error(`found ${found}, wanted ${wanted}`);
}

function fails(run: () => unknown): void {
  try {
    run();
  } catch (error) {
    if (error instanceof SliceError || error instanceof Error) return;
  }
  throw new Error("this should have failed");
}

function tile_bytes(header: Record<string, unknown>, planes: (Float32Array | Uint8Array)[]): ArrayBuffer {
  let text = JSON.stringify(header);
  while ((8 + text.length) % 8 !== 0) text += " ";
  const head = new TextEncoder().encode(text);
  const size = 8 + head.length + planes.reduce((all, plane) => all + plane.byteLength, 0);
  const bytes = new Uint8Array(size);
  bytes.set(new TextEncoder().encode("TST1"));
  new DataView(bytes.buffer).setUint32(4, head.length, true);
  bytes.set(head, 8);
  let offset = 8 + head.length;
  for (const plane of planes) {
    bytes.set(new Uint8Array(plane.buffer, plane.byteOffset, plane.byteLength), offset);
    offset += plane.byteLength;
  }
  return bytes.buffer;
}

const kHeader = {
  rows: [0, 4],
  cols: [0, 6],
  of_rows: 4,
  of_cols: 6,
  height: 2,
  width: 3,
  exact: false,
  planes: ["min", "max", "mean", "flags"],
  axes: [0, 1],
  shape: [4, 6],
  slice: ":,:",
  dtype: "float32",
  scale: { min: -3, max: "inf", abs: 4, p999: 3.5, nan: 1, pos_inf: 1, neg_inf: 0, zero: 2 },
};

Deno.test("a reduced tile is decoded", () => {
  const tile = decode_tile(tile_bytes(kHeader, [
    new Float32Array([-3, 0, 1, 2, 3, 4]),
    new Float32Array([2, 1, 5, 6, 7, 8]),
    new Float32Array([0, 0.5, 2, 3, 4, 5]),
    new Uint8Array([1, 0, 2, 0, 0, 8]),
  ]));
  same([tile.height, tile.width, tile.exact, tile.scale?.max, tile.scale?.p999], [2, 3, false, null, 3.5]);
  same(tile.scale?.max === Infinity, true);
  same([cell_value(tile, 0, "peak"), cell_value(tile, 0, "min"), cell_value(tile, 0, "max")], [-3, -3, 2]);
  same(cell_value(tile, 2, "peak"), 5);
  same(cell_value(tile, 1, "mean"), 0.5);
  const facts = facts_at(tile, 3, 5, "peak");
  same([facts?.rows, facts?.cols, facts?.flags, facts?.value], [[2, 4], [4, 6], 8, 8]);
  same(facts_at(tile, 4, 0, "peak"), null);
});

Deno.test("an exact tile has one plane for all", () => {
  const tile = decode_tile(tile_bytes({ ...kHeader, exact: true, planes: ["value", "flags"] }, [
    new Float32Array([1, 2, 3, 4, 5, 6]),
    new Uint8Array(6),
  ]));
  same([tile.min[4], tile.max[4], tile.mean[4]], [5, 5, 5]);
});

Deno.test("a tile of nothing is decoded, a broken one is refused", () => {
  const none = decode_tile(tile_bytes(
    { ...kHeader, height: 0, width: 3, rows: [0, 0] },
    []
      .concat([new Float32Array(0), new Float32Array(0), new Float32Array(0), new Uint8Array(0)] as never),
  ));
  same(none.flags.length, 0);
  fails(() => decode_tile(new ArrayBuffer(4)));
  fails(() => decode_tile(tile_bytes(kHeader, [new Float32Array(6)])));
});

Deno.test("cells partition the elements of an axis", () => {
  for (const [size, cells] of [[4096, 512], [1000, 512], [7, 7], [513, 512], [5, 2]] as [number, number][]) {
    let next = 10;
    for (let cell = 0; cell < cells; ++cell) {
      const range = cell_range([10, 10 + size], cells, cell);
      same(range[0], next);
      for (let element = range[0]; element < range[1]; ++element) same(cell_of([10, 10 + size], cells, element), cell);
      next = range[1];
    }
    same(next, 10 + size);
  }
  same([cell_of([2, 5], 3, 1), cell_of([2, 5], 3, 5)], [-1, -1]);
});

function cell(exact: boolean, low: number, high: number, flags: number): Tile {
  return {
    ...decode_tile(tile_bytes({ ...kHeader, height: 0, width: 0 }, [])),
    exact,
    min: new Float32Array([low]),
    max: new Float32Array([high]),
    flags: new Uint8Array([flags]),
  };
}

Deno.test("tolerance: exact cells are judged, reduced ones may be in doubt", () => {
  same(beyond_tolerance(cell(true, 2, 2, 0), cell(true, 0.1, 0.1, 8), 0, 0.1, 0), 0);
  same(beyond_tolerance(cell(true, 2, 2, 0), cell(true, -0.3, -0.3, 8), 0, 0.1, 0), 2);
  same(beyond_tolerance(cell(true, 2, 2, 0), cell(true, NaN, NaN, 9), 0, 10, 10), 2);
  same(beyond_tolerance(cell(true, 2, 2, 0), cell(true, NaN, NaN, 1), 0, 0, 0), 0);
  same(beyond_tolerance(cell(false, 1, 4, 0), cell(false, 0, 0.2, 8), 0, 0.1, 0), 1);
  same(beyond_tolerance(cell(false, 1, 4, 0), cell(false, 0, 0.5, 8), 0, 0.1, 0), 2);
  same(beyond_tolerance(cell(false, 1, 4, 0), cell(false, 0, 0.05, 8), 0, 0.1, 0), 0);
  same(beyond_tolerance(cell(false, -1, 4, 0), cell(false, 0, 0.05, 8), 0, 0.1, 0.01), 1);
});

Deno.test("slices are read as NumPy reads them", () => {
  const shape = [2, 16, 64];
  const round = (text: string): string => format_slice(parse_slice(text, shape), shape);
  same(round("0,:,3:7"), "0,:,3:7");
  same(round("-1"), "1,:,:");
  same(round("..., ::2"), ":,:,::2");
  same(round("0,...,5"), "0,:,5");
  same(round("0,::-1,-4:"), "0,::-1,60:");
  same(round("0,10:2:-3,:"), "0,10:1:-3,:");
  same(round("0,3:3,:"), "0,3:3,:");
  same(parse_slice("0,10:1:-3,:", shape)[1], { kind: "range", start: 10, step: -3, count: 3 });
  same(parse_slice("", []), []);
  for (const text of ["2", "a", "0,0,0,0", "...,...", "::0", "1:2:3:4", "0,,1"]) fails(() => parse_slice(text, shape));
});

Deno.test("default slice: the last two axes", () => {
  same(format_slice(default_slice([2, 3, 4, 5]), [2, 3, 4, 5]), "0,0,:,:");
  same(format_slice(default_slice([7]), [7]), ":");
  same(default_slice([]), []);
});

function picture(shape: number[], text: string, isTransposed = false, isFolded = false): Picture {
  return { shape, parts: parse_slice(text, shape), isTransposed, isFolded };
}

Deno.test("places and indices are each other's inverse", () => {
  const shape = [3, 4, 5];
  const pictures = [
    picture(shape, "1,:,:"),
    picture(shape, "1,:,:", true),
    picture(shape, ":,2,::2"),
    picture(shape, "::-1,1:3,4", true),
    picture(shape, "2,:,0"),
    picture(shape, "2,:,0", true),
    picture(shape, "2,3,0"),
    picture(shape, ":", false, true),
    picture(shape, ":", true, true),
    picture([6], ":"),
    picture([], ""),
  ];
  for (const one of pictures) {
    const [rows, cols] = picture_size(one);
    const seen = new Set<string>();
    for (let row = 0; row < rows; ++row) {
      for (let col = 0; col < cols; ++col) {
        const index = index_at(one, row, col);
        seen.add(index.join());
        same(place_of(one, index), [row, col]);
      }
    }
    same(seen.size, rows * cols);
  }
  same(place_of(pictures[0]!, [0, 1, 1]), null);
  same(place_of(pictures[2]!, [0, 2, 1]), null);
  same(place_of(pictures[0]!, [1, 4, 0]), null);
  same(picture_axes(pictures[1]!), [2, 1]);
  same(picture_axes(pictures[4]!), [-1, 1]);
  same(picture_axes(pictures[5]!), [1, -1]);
  same(index_at(pictures[7]!, 6, 3), [1, 2, 3]);
});

Deno.test("roles of axes are exchanged", () => {
  const shape = [3, 4, 5];
  const first = set_role(picture(shape, "1,:,:"), 0, "rows");
  same([format_slice(first.parts, shape), first.isTransposed], [":,0,:", false]);
  const second = set_role(picture(shape, "1,:,:"), 1, "cols");
  same([format_slice(second.parts, shape), second.isTransposed], ["1,:,:", true]);
  const third = set_role(picture(shape, "1,:,:"), 1, "index");
  same([format_slice(third.parts, shape), third.isTransposed], ["1,0,:", false]);
  const fourth = set_role({ ...picture(shape, "1,0,:") }, 0, "rows");
  same([format_slice(fourth.parts, shape), role_of({ shape, isFolded: false, ...fourth }, 0)], [":,0,:", "rows"]);
  const fifth = set_role(picture(shape, "1,:,:"), 2, "index");
  same([format_slice(fifth.parts, shape), fifth.isTransposed], ["1,:,0", true]);
  same(role_of({ shape, isFolded: false, ...fifth }, 1), "rows");
});

Deno.test("a slice is moved to an element", () => {
  const shape = [3, 4, 5];
  same(format_slice(show_index(parse_slice("0,:,1:3", shape), shape, [2, 1, 2]), shape), "2,:,1:3");
  same(format_slice(show_index(parse_slice("0,:,1:3", shape), shape, [2, 1, 4]), shape), "2,:,:");
});

Deno.test("numbers are short and honest", () => {
  const cases: [number, string][] = [
    [0, "0"],
    [-0, "-0"],
    [NaN, "NaN"],
    [-Infinity, "-Inf"],
    [0.1, "0.1"],
    [1234567, "1.235e6"],
    [-0.00001234, "-1.234e-5"],
    [3.14159, "3.142"],
    [100000.5, "1.000e5".replace(".000", "")],
    [1e-45, "1e-45"],
    [42, "42"],
    [999999.9, "1e6"],
  ];
  for (const [value, text] of cases) same(format_number(value), text);
  same(format_count(1234567), "1,234,567");
  same([format_percent(1, 3), format_percent(0, 3), format_percent(1, 1e9)], ["33.3 %", "0 %", "< 0.01 %"]);
  same(format_percent(999999, 1000000), "> 99.99 %");
  same([format_change(1, 1), format_change(2, 3), format_change(0, 3), format_change(1, NaN)], [
    "=",
    "+50 %",
    "+3",
    "changed",
  ]);
  same([fit_number(3.14159265, 6), fit_number(-1.5e-20, 4), fit_number(NaN, 3)], ["3.1416", "", "NaN"]);
});

Deno.test("scales go there and back", () => {
  for (const mode of ["linear", "symlog"] as const) {
    const diverging = make_scale(5, mode, false), sequential = make_scale(5, mode, true);
    near(to_unit(diverging, 0), 0.5);
    near(to_unit(sequential, 0), 0);
    same([to_unit(diverging, 9), to_unit(diverging, -9), to_unit(sequential, 9)], [1, 0, 1]);
    for (const value of [-4, -0.01, 0.003, 2, 5]) {
      near(from_unit(diverging, to_unit(diverging, value)), value, 1e-9);
      if (value > 0) near(from_unit(sequential, to_unit(sequential, value)), value, 1e-9);
    }
  }
  if (!(to_unit(make_scale(5, "symlog", false), 0.01) > 0.6)) throw new Error("symlog does not open up small values");
});

Deno.test("the limit is the quantile, or the largest where the quantile is 0", () => {
  const one = { min: 0, max: 8, abs: 8, p999: 3, nan: 0, pos_inf: 0, neg_inf: 0, zero: 0 };
  same(limit_of([one, null]), 3);
  same(limit_of([one, { ...one, p999: 4 }]), 4);
  same(limit_of([{ ...one, p999: 0 }]), 8);
  same(limit_of([{ ...one, p999: NaN, abs: NaN }]), 0);
  same(make_scale(0, "linear", false).limit, 1);
});

Deno.test("ticks are round, in order and within the bar", () => {
  same(ticks_of(make_scale(3.2, "linear", false), 6).map((tick) => tick.text), ["-2", "0", "2"]);
  for (const limit of [1e-30, 0.7, 3.2, 1e20]) {
    for (const mode of ["linear", "symlog"] as const) {
      const ticks = ticks_of(make_scale(limit, mode, true), 5);
      for (let k = 1; k < ticks.length; ++k) {
        if (!(ticks[k]!.unit > ticks[k - 1]!.unit && ticks[k]!.unit <= 1)) {
          throw new Error(`ticks of ${limit}, ${mode}`);
        }
      }
      if (ticks.length < 2) throw new Error(`too few ticks of ${limit}, ${mode}`);
    }
  }
});

const kPane = { height: 400, width: 600 };

Deno.test("the whole picture fits and is centred", () => {
  const large = fit_all({ rows: 4096, cols: 4096 }, kPane);
  same([large.row, large.rows, large.col, large.cols], [0, 4096, 0, 4096]);
  const small = fit_all({ rows: 2, cols: 2 }, kPane);
  near(kPane.height / small.rows, kLargestCell.height);
  near(small.row + small.rows / 2, 1);
  const line = fit_all({ rows: 1, cols: 5000 }, kPane);
  near(line.cols, 5000);
});

Deno.test("zoom keeps what is under the pointer and ends at the element", () => {
  const extent = { rows: 4096, cols: 2048 };
  let view = fit_all(extent, kPane);
  for (let k = 0; k < 60; ++k) {
    const row = view.row + 0.3 * view.rows, col = view.col + 0.8 * view.cols;
    view = zoom_at(view, extent, kPane, 1.3, 0.3, 0.8);
    near(view.row + 0.3 * view.rows, row, 1e-6);
    near(view.col + 0.8 * view.cols, col, 1e-6);
  }
  near(kPane.height / view.rows, kLargestCell.height);
  near(kPane.width / view.cols, kLargestCell.width);
  for (let k = 0; k < 60; ++k) view = zoom_at(view, extent, kPane, 1 / 1.3, 0.5, 0.5);
  same(is_whole(view, extent, kPane), true);
});

Deno.test("panning stops at the edges, revealing moves only where it must", () => {
  const extent = { rows: 1000, cols: 1000 };
  const view = { row: 10, col: 10, rows: 100, cols: 100 };
  same(pan_by(view, extent, -50, 2000), { row: 0, col: 900, rows: 100, cols: 100 });
  same(reveal(view, extent, 50, 50), view);
  same(reveal(view, extent, 500, 0), { row: 450.5, col: 0, rows: 100, cols: 100 });
  same(parse_view(format_view({ row: 1.25, col: 0, rows: 10, cols: 20.5 })), {
    row: 1.25,
    col: 0,
    rows: 10,
    cols: 20.5,
  });
  same([parse_view("x"), parse_view("1:1,2:3")], [null, null]);
  const clamped = clamp_view({ row: 0, col: 0, rows: 1e9, cols: 1e-9 }, extent, kPane);
  if (!(clamped.rows <= 1000 && clamped.cols > 1)) throw new Error("a wild viewport was taken as it is");
});

Deno.test("details are asked for on a grid, and only where the overview is too coarse", () => {
  const [first, last] = detail_range(1000.4, 300, 4096);
  if (!(first <= 1000 && last >= 1301 && last - first < 450)) throw new Error(`${first}:${last}`);
  same(detail_range(1001.9, 300, 4096), [first, last]);
  same(detail_range(4000, 96, 4096)[1], 4096);
  same(needs_detail(4096, 512, 4096, 512), false);
  same(needs_detail(4096, 512, 1024, 512), true);
  same(needs_detail(4096, 512, 8, 512), true);
  same(needs_detail(400, 400, 8, 512), false);
});
