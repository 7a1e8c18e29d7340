/// <reference lib="deno.ns" />
import {
  canonical_target,
  EmbeddedSource,
  encode,
  HttpSource,
  type Params,
  SourceError,
  SourceWith,
} from "../src/source.ts";
import type { Found, Series } from "../src/types.ts";
import { equal, fails } from "./assert.ts";

Deno.test("a target has its parameters in order, and none without a value", () => {
  equal(canonical_target("/api/session"), "/api/session");
  equal(
    canonical_target("/api/tile", { w: 512, event: 5, side: "b", t: false, fold: undefined, slice: null, of: "" }),
    "/api/tile?event=5&side=b&w=512",
  );
  equal(canonical_target("/api/tile", { t: true, event: 0 }), "/api/tile?event=0&t=1");
});

Deno.test("all but unreserved characters are percent-encoded", () => {
  equal(encode("a-b_c.d~e"), "a-b_c.d~e");
  equal(encode("0,:,3"), "0%2C%3A%2C3");
  equal(encode("a b+c&d=e"), "a%20b%2Bc%26d%3De");
  equal(encode("!'()*"), "%21%27%28%29%2A");
  equal(encode("größe→"), "gr%C3%B6%C3%9Fe%E2%86%92");
  equal(encode("\ud800"), "%EF%BF%BD");
  equal(canonical_target("/api/events", { name: "blocks.0/x*" }), "/api/events?name=blocks.0%2Fx%2A");
});

async function embedded(entries: Record<string, [string | Uint8Array, number?]>): Promise<string> {
  const index: Record<string, number[]> = {};
  const bodies: Uint8Array[] = [];
  let offset = 0;
  for (const [target, [body, status]] of Object.entries(entries)) {
    const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
    index[target] = status === undefined ? [offset, bytes.length] : [offset, bytes.length, status];
    bodies.push(bytes);
    offset += bytes.length;
  }
  const head = new TextEncoder().encode(JSON.stringify(index));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, head.length, true);
  const whole = new Blob([length, head, ...bodies] as BlobPart[]).stream().pipeThrough(new CompressionStream("gzip"));
  const packed = new Uint8Array(await new Response(whole).arrayBuffer());
  return btoa(String.fromCharCode(...packed)).replace(/(.{76})/g, "$1\n");
}

Deno.test("answers that lie in the page are found by their target", async () => {
  const source = await EmbeddedSource.from_base64(
    await embedded({
      "/api/session": ['{"title": "größe"}'],
      "/api/tile?event=5&side=b": [new Uint8Array([1, 2, 255])],
      "/api/event?event=6": ['{"error": "Its bytes were not kept."}', 404],
    }),
  );
  equal(source.isEmbedded, true);
  equal(await source.json("/api/session"), { title: "größe" });
  equal(new Uint8Array(await source.bytes("/api/tile", { side: "b", event: 5 })), new Uint8Array([1, 2, 255]));
  equal(source.has("/api/tile", { event: 5, side: "b" }), true);
  equal(source.has("/api/tile", { event: 6, side: "b" }), false);
  equal(source.has("/api/event", { event: 6 }), false);
  equal([source.covers("/api/tile"), source.covers("/api/session"), source.covers("/api/ti")], [true, true, false]);
  equal(source.targets("/api/tile"), ["/api/tile?event=5&side=b"]);
  const told = await fails(() => source.json("/api/event", { event: 6 })) as SourceError;
  equal([told.status, told.message], [404, "Its bytes were not kept."]);
  const absent = await fails(() => source.json("/api/names")) as SourceError;
  equal(absent.status, 404);
});

Deno.test("a source with more adds its parameters to each request", async () => {
  const source = await EmbeddedSource.from_base64(await embedded({ "/api/session?against=b&run=a": ["1"] }));
  const more = new SourceWith(source, () => ({ run: "a", against: "b" }));
  equal(await more.json("/api/session"), 1);
  equal(more.has("/api/session"), true);
  equal(new SourceWith(source, () => ({ run: "a" })).has("/api/session"), false);
});

Deno.test("what the server says of a failure is the error's message", async () => {
  const before = globalThis.fetch;
  const asked: string[] = [];
  try {
    globalThis.fetch = (target) => {
      asked.push(String(target));
      return Promise.resolve(
        String(target).includes("event=1")
          ? Response.json({ error: "There is no event 1." }, { status: 404 })
          : new Response("oops", { status: 500 }),
      );
    };
    const source = new HttpSource();
    const told = await fails(() => source.json("/api/event", { side: "a", event: 1 })) as SourceError;
    equal([told.status, told.message], [404, "There is no event 1."]);
    equal(asked, ["/api/event?event=1&side=a"]);
    const plain = await fails(() => source.json("/api/event", { event: 2 })) as SourceError;
    equal(plain.status, 500);
    globalThis.fetch = () => Promise.reject(new TypeError("refused"));
    const gone = await fails(() => source.bytes("/api/tile")) as SourceError;
    equal(gone.status, 0);
  } finally {
    globalThis.fetch = before;
  }
});

Deno.test("an embedded source finds the next NaN and difference in the pictures it holds", async () => {
  const values = [1, NaN, 3, 4, 5, 6];
  const tile = (slice: string, flags: number[]): string => {
    const header = JSON.stringify({
      rows: [0, 2],
      cols: [0, 3],
      of_rows: 2,
      of_cols: 3,
      height: 2,
      width: 3,
      exact: true,
      planes: ["value", "flags"],
      axes: [1, 2],
      shape: [4, 2, 3],
      slice,
      dtype: "float32",
    });
    const padded = header.padEnd(Math.ceil(header.length / 8) * 8);
    const bytes = new Uint8Array(8 + padded.length + 24 + 6);
    bytes.set(new TextEncoder().encode("TST1"));
    new DataView(bytes.buffer).setUint32(4, padded.length, true);
    bytes.set(new TextEncoder().encode(padded), 8);
    bytes.set(new Uint8Array(new Float32Array(values).buffer), 8 + padded.length);
    bytes.set(flags, 8 + padded.length + 24);
    return String.fromCharCode(...bytes);
  };
  const index = new Map<string, number[]>();
  let all = "";
  const add = (target: string, body: string): void => {
    index.set(target, [all.length, body.length]);
    all += body;
  };
  add("/api/tile?event=7&h=512&of=a&w=512", tile("0,:,:", [0, 1, 0, 0, 0, 0]));
  add("/api/tile?event=7&h=512&of=diff&w=512", tile("0,:,:", [0, 0, 0, 0, 8, 0]));
  add("/api/tile?event=7&h=512&of=diff&slice=3%2C%3A%2C%3A&w=512", tile("3,:,:", [8, 0, 0, 0, 0, 0]));
  add("/api/series?points=100&stat=l2", JSON.stringify({ series: [{ a: [[0, 1]] }, { a: [[0, 2]] }, { a: [] }] }));
  add("/api/find?event=7&what=worst", JSON.stringify({ index: [3, 0, 0], count: 1 }));
  const source = new EmbeddedSource(index, Uint8Array.from(all, (c) => c.charCodeAt(0)));
  const find = (more: Params) => source.json<Found>("/api/find", { event: 7, ...more });
  equal((await find({ what: "worst" })).index, [3, 0, 0]);
  equal(await find({ what: "bad" }), { index: [0, 0, 1], count: 1, within: "slices" });
  equal((await find({ what: "differs" })).index, [0, 1, 1]);
  equal(await find({ what: "differs", from: "0,1,1" }), { index: [3, 0, 0], count: 2, within: "slices" });
  equal((await find({ what: "differs", from: "3,0,0" })).index, [0, 1, 1]);
  equal((await find({ what: "differs", from: "3,0,0", back: true })).index, [0, 1, 1]);
  equal((await find({ what: "differs", back: true })).index, [3, 0, 0]);
  equal((await fails(() => find({ what: "differs", event: 8 })) as SourceError).status, 404);
  const lines = await source.json<Series>("/api/series", { stat: "l2", names: "1,0", points: 100 });
  equal(lines.series, [{ a: [[0, 2]] }, { a: [[0, 1]] }]);
});
