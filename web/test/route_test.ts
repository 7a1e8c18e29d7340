/// <reference lib="deno.ns" />
import { type Address, apply_patch, format_route, kEmptyRoute, parse_route, Router } from "../src/route.ts";
import { equal } from "./assert.ts";

class FakeAddress implements Address {
  entries = [""];
  at = 0;
  listeners: (() => void)[] = [];
  readonly location: { hash: string };
  constructor(hash: string) {
    this.entries = [hash];
    const entry = () => this.entries[this.at]!;
    this.location = {
      get hash() {
        return entry();
      },
    } as { hash: string };
  }
  history = {
    pushState: (_data: unknown, _unused: string, url: string) => {
      this.entries.splice(this.at + 1, Infinity, url);
      this.at++;
    },
    replaceState: (_data: unknown, _unused: string, url: string) => {
      this.entries[this.at] = url;
    },
  };
  addEventListener(_type: string, listener: () => void): void {
    this.listeners.push(listener);
  }
  back(): void {
    this.at--;
    for (const listener of this.listeners) listener();
  }
}

Deno.test("a route is its address and back", () => {
  const route = {
    ...kEmptyRoute,
    view: "tensor",
    run: "a b&c",
    name: "blocks.0/größe?#%+x",
    side: "b" as const,
    event: 17,
    step: 0,
    rank: 3,
    call: 1,
    params: { of: "a=b", slice: "0,:,3,:" },
  };
  equal(parse_route(format_route(route)), route);
  equal(
    format_route({ ...kEmptyRoute, view: "tensor", event: 5, params: { slice: "0,:,:" } }),
    "#/tensor?event=5&slice=0,:,:",
  );
});

Deno.test("an address that nobody wrote is no failure", () => {
  equal(parse_route(""), kEmptyRoute);
  equal(parse_route("#"), kEmptyRoute);
  equal(parse_route("#/table?event=x&&=5&step=1e9&side=c").event, null);
  equal(parse_route("#/table?step=1e9").step, null);
  equal(parse_route("#/table?filter=%E0%A4%A").params["filter"], "%E0%A4%A");
});

Deno.test("free parameters belong to a view", () => {
  const table = apply_patch({ ...kEmptyRoute, view: "table" }, { params: { filter: "x", sort: "name", down: true } });
  equal(table.params, { filter: "x", sort: "name", down: "1" });
  equal(apply_patch(table, { params: { sort: null, down: false } }).params, { filter: "x" });
  equal(apply_patch(table, { view: "tensor", event: 5 }).params, {});
  equal(apply_patch(table, { view: "tensor" }, new Map([["tensor", { slice: "0" }]])).params, { slice: "0" });
});

Deno.test("Back undoes what was pushed, and what is replaced leaves no trace", () => {
  const address = new FakeAddress("#/answer");
  const router = new Router(address);
  router.go({ view: "table", params: { filter: "w" } });
  router.go({ params: { filter: "we" } }, "replace");
  router.go({ view: "tensor", event: 5 });
  equal(address.entries, ["#/answer", "#/table?filter=we", "#/tensor?event=5"]);
  address.back();
  equal([router.route().view, router.route().params], ["table", { filter: "we" }]);
  address.back();
  equal(router.route().view, "answer");
});

Deno.test("the same place is not pushed twice, and a view has what it had when it is opened again", () => {
  const address = new FakeAddress("#/table?filter=w");
  const router = new Router(address);
  router.go({ view: "table" });
  equal(address.entries.length, 1);
  router.go({ view: "timeline" });
  router.go({ view: "table" });
  equal(router.route().params, { filter: "w" });
  router.open("#/table?sort=name");
  equal(router.route().params, { sort: "name" });
  equal(router.href({ view: "tensor", event: 3 }), "#/tensor?event=3");
});
