/// <reference lib="deno.ns" />
import {
  color_at,
  css_at,
  from_oklab,
  ink_of,
  ink_on,
  kDiverging,
  kDivergingDark,
  kHeat,
  kHeatDark,
  kSequential,
  log_place,
  parse_hex,
  ramp,
  type Rgb,
  to_oklab,
} from "../src/lib/colors.ts";
import { check, close, equal } from "./assert.ts";

const lightness = (table: Uint8Array, i: number) => to_oklab([table[i * 3]!, table[i * 3 + 1]!, table[i * 3 + 2]!])[0];

Deno.test("OKLab and back is the same colour", () => {
  for (const rgb of [[0, 0, 0], [255, 255, 255], [12, 200, 99], [255, 0, 0], [1, 2, 3]] as Rgb[]) {
    equal(from_oklab(to_oklab(rgb)), rgb);
  }
  close(to_oklab([255, 255, 255])[0], 1, 1e-4);
});

Deno.test("a ramp begins and ends with its points", () => {
  const table = ramp(["#102030", "#405060"]);
  equal([color_at(table, 0), color_at(table, 1)], [[16, 32, 48], [64, 80, 96]]);
  equal([css_at(table, 0), css_at(table, 9), css_at(table, NaN)], [
    "rgb(16, 32, 48)",
    "rgb(64, 80, 96)",
    "rgb(16, 32, 48)",
  ]);
  equal(color_at(table, -3), [16, 32, 48]);
  equal(color_at(table, 7), [64, 80, 96]);
  equal(color_at(table, NaN), [16, 32, 48]);
  equal(parse_hex("#ff8001"), [255, 128, 1]);
});

Deno.test("the sequential map becomes lighter all the way, so that it reads without colours", () => {
  for (let i = 1; i < 256; i++) check(lightness(kSequential, i) > lightness(kSequential, i - 1) - 0.002, `at ${i}`);
  check(lightness(kSequential, 255) - lightness(kSequential, 0) > 0.5, "its range is too small");
});

Deno.test("diverging maps have their extreme in the middle, and ends of equal weight", () => {
  for (let i = 1; i < 128; i++) {
    check(lightness(kDiverging, i) > lightness(kDiverging, i - 1) - 0.004, `light, left, ${i}`);
    check(lightness(kDiverging, 255 - i) > lightness(kDiverging, 256 - i) - 0.004, `light, right, ${i}`);
    check(lightness(kDivergingDark, i) < lightness(kDivergingDark, i - 1) + 0.004, `dark, left, ${i}`);
    check(lightness(kDivergingDark, 255 - i) < lightness(kDivergingDark, 256 - i) + 0.004, `dark, right, ${i}`);
  }
  close(lightness(kDiverging, 0), lightness(kDiverging, 255), 0.05);
  close(lightness(kDivergingDark, 0), lightness(kDivergingDark, 255), 0.05);
  // Blue and red differ in OKLab's b axis, which all kinds of red-green blindness keep.
  const [left, right] = [to_oklab(color_at(kDiverging, 0.2)), to_oklab(color_at(kDiverging, 0.8))];
  check(right[2] - left[2] > 0.1, "blue and red are too near");
});

Deno.test("the heat maps leave the page's grey in one direction", () => {
  for (let i = 1; i < 256; i++) check(lightness(kHeat, i) < lightness(kHeat, i - 1) + 0.004, `light ${i}`);
  check(lightness(kHeatDark, 255) > lightness(kHeatDark, 0) + 0.3, "dark");
});

Deno.test("ink can be read on what it stands on", () => {
  equal(ink_on([255, 255, 255]), "#000");
  equal(ink_on([20, 20, 60]), "#fff");
});

Deno.test("places on a logarithmic scale", () => {
  close(log_place(1e-4, 1e-8, 1), 0.5, 1e-12);
  equal([log_place(0, 1e-8, 1), log_place(NaN, 1e-8, 1), log_place(-1, 1e-8, 1)], [0, 0, 0]);
  equal([log_place(5, 1e-8, 1), log_place(Infinity, 1e-8, 1)], [1, 1]);
});

Deno.test("ink is read on any way to write a colour", () => {
  for (
    const [css, rgb] of [["#fff", [255, 255, 255]], ["#102030", [16, 32, 48]], ["rgb(240, 220, 60)", [240, 220, 60]]]
  ) {
    equal(ink_of(css as string), ink_on(rgb as unknown as Rgb));
  }
  equal(ink_of("#ecdcae"), "#000");
  equal(ink_of("#b3262b"), "#fff");
});
