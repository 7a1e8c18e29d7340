// The next NaN or difference in the pictures that an exported page holds: what /api/find says of the whole tensor.

import { type Params, SourceError } from "./source.ts";
import { index_at, parse_slice } from "./tensor/slicing.ts";
import { decode_tile, kDiffers, kNan, kNegInf, kPosInf, type Tile } from "./tensor/tile.ts";
import type { Found } from "./types.ts";

type Has = (cell: number) => boolean;

function before(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((one, axis) => one !== b[axis]);
  return at >= 0 && a[at]! < b[at]!;
}

/** The indices of a picture's cells, each by its first element. */
function indices(tile: Tile, has: Has): number[][] {
  const picture = {
    shape: tile.shape,
    parts: parse_slice(tile.slice, tile.shape),
    isTransposed: false,
    isFolded: false,
  };
  const found: number[][] = [];
  for (let cell = 0; cell < tile.height * tile.width; cell++) {
    if (!has(cell)) continue;
    const row = Math.floor(cell / tile.width), col = cell % tile.width;
    found.push(index_at(
      picture,
      tile.rows[0] + Math.floor(row * (tile.rows[1] - tile.rows[0]) / tile.height),
      tile.cols[0] + Math.floor(col * (tile.cols[1] - tile.cols[0]) / tile.width),
    ));
  }
  return found;
}

/** `tiles` has the pictures of one tensor by what they are of, those of one slice at one place of each list. */
export function find_in_tiles(tiles: ReadonlyMap<string, readonly ArrayBuffer[]>, params: Params): Found {
  const what = params["what"];
  const of = (name: string): Tile[] => (tiles.get(name) ?? []).map(decode_tile);
  const shown = what === "bad" ? of("a") : what === "differs" ? of("diff") : what === "mismatch" ? of("a") : [];
  const others = what === "mismatch" ? of("b") : [];
  if (shown.length === 0 || (what === "mismatch" && [...shown, ...others].some((tile) => !tile.exact))) {
    throw new SourceError(404, "This page does not hold enough to tell. Open the recording with `tenscope view`.");
  }
  const places = shown.flatMap((tile, k) => {
    const flags = what === "differs" ? kDiffers : kNan | kPosInf | kNegInf;
    if (what !== "mismatch") return indices(tile, (cell) => (tile.flags[cell]! & flags) !== 0);
    const [rtol, atol] = [Number(params["rtol"] ?? 1e-5), Number(params["atol"] ?? 1e-8)];
    const [a, b] = [tile, others[k]];
    return b === undefined ? [] : indices(a, (cell) => {
      const isBad = [a, b].map((one) => one.flags[cell]!);
      if (isBad[0] || isBad[1]) return isBad[0] !== isBad[1];
      return Math.abs(b.max[cell]! - a.max[cell]!) > atol + rtol * Math.abs(a.max[cell]!);
    });
  }).sort((x, y) => before(x, y) ? -1 : 1);
  const from = typeof params["from"] === "string" ? params["from"].split(",").map(Number) : null;
  const next = params["back"]
    ? places.findLast((place) => from === null || before(place, from)) ?? places.at(-1)
    : places.find((place) => from === null || before(from, place)) ?? places[0];
  return {
    index: next ?? null,
    count: places.length,
    within: shown.every((tile) => tile.exact) ? "slices" : "cells",
  };
}
