/// <reference lib="deno.ns" />
import { FuzzyIndex, match_places, name_filter } from "../src/lib/fuzzy.ts";
import { check, equal } from "./assert.ts";

const names = [
  "blocks.0.attn.qkv.weight",
  "blocks.3.attn.output",
  "blocks.13.attn.output",
  "head.weight",
  "OptimizerState",
  "wte.output",
];
const best = (query: string) => new FuzzyIndex(names).search(query).map((match) => names[match.index]);

Deno.test("letters in their order find a name, the best first", () => {
  equal(best("b3at out")[0], "blocks.3.attn.output");
  equal(best("head")[0], "head.weight");
  equal(best("os")[0], "OptimizerState");
  equal(best("weight head"), ["head.weight"]);
  equal(best("zzz"), []);
});

Deno.test("an empty query gives the first ones, and no more than asked for", () => {
  equal(best(""), names);
  equal(new FuzzyIndex(names).search("", 2).map((match) => match.index), [0, 1]);
  equal(new FuzzyIndex(names).search("output", 1).length, 1);
});

Deno.test("of equal matches the earlier comes first", () => {
  equal(new FuzzyIndex(["x.aa", "x.ab", "x.ac"]).search("x").map((match) => match.index), [0, 1, 2]);
});

Deno.test("the letters that matched are marked", () => {
  equal(match_places("blocks.3.attn", "b3"), [0, 7]);
  equal(match_places("head.weight", "weight"), [5, 6, 7, 8, 9, 10]);
});

Deno.test("a filter is a glob or words", () => {
  equal(names.filter(name_filter("blocks.*.output")), ["blocks.3.attn.output", "blocks.13.attn.output"]);
  equal(names.filter(name_filter("blocks.?.attn.*")), ["blocks.0.attn.qkv.weight", "blocks.3.attn.output"]);
  equal(names.filter(name_filter("ATTN  out")), ["blocks.3.attn.output", "blocks.13.attn.output"]);
  equal(names.filter(name_filter("a.b(")), []);
  equal(names.filter(name_filter("  ")), names);
});

Deno.test("a hundred thousand names are searched", () => {
  const many = Array.from({ length: 100_000 }, (_, i) => `model.layers.${i % 997}.mlp.experts.${i}.down_proj.weight`);
  const index = new FuzzyIndex(many);
  const start = performance.now();
  const found = index.search("lay 996 exp down");
  const ms = performance.now() - start;
  check(found.length === 50, `${found.length} found`);
  check(many[found[0]!.index]!.includes("996"), many[found[0]!.index]!);
  // Ten times what it takes, so that a busy machine does not fail it.
  check(ms < 1000, `${ms} ms`);
});
