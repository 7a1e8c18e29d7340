// A typed JSX factory that makes DOM nodes. What is given as a function (or a signal) follows what it reads:
//
//   <p class={() => (isBad() ? "bad" : "")} onClick={go}>{count} of {total}</p>
//
// Texts become text nodes, never HTML. Styles are given as an object and set through CSSOM, as the page's policy demands.

import { effect } from "./signals.ts";

export type Child = Node | string | number | boolean | null | undefined | Child[] | (() => Child);

type Attribute = string | number | boolean | null | undefined;
type Reactive<T> = T | (() => T);
type Styles = Record<string, Reactive<string | number | null>>;

type Listeners = {
  [K in keyof HTMLElementEventMap as `on${Capitalize<K>}`]?: (
    event: HTMLElementEventMap[K] & { currentTarget: HTMLElement },
  ) => void;
};

// Names of DOM events are in lower case; their listeners here are written onPointerDown or onPointerdown alike.
interface CamelListeners {
  onKeyDown?: (event: KeyboardEvent) => void;
  onKeyUp?: (event: KeyboardEvent) => void;
  onPointerDown?: (event: PointerEvent) => void;
  onPointerMove?: (event: PointerEvent) => void;
  onPointerUp?: (event: PointerEvent) => void;
  onPointerLeave?: (event: PointerEvent) => void;
  onPointerEnter?: (event: PointerEvent) => void;
  onDblClick?: (event: MouseEvent) => void;
  onContextMenu?: (event: MouseEvent) => void;
}

export type Props<E extends Node = HTMLElement> = Listeners & CamelListeners & {
  class?: Reactive<string>;
  style?: Styles;
  ref?: (element: E) => void;
  /** Properties rather than attributes. */
  value?: Reactive<string | number>;
  checked?: Reactive<boolean>;
  children?: Child | Child[];
} & { [attribute: string]: unknown };

type Component<P> = (props: P) => Node;

const kSvg = "http://www.w3.org/2000/svg";
const kSvgTags = new Set(["svg", "path", "line", "rect", "circle", "polyline", "polygon", "g", "text", "title"]);
const kProperties = new Set(["value", "checked", "disabled", "hidden", "selected", "indeterminate", "scrollTop"]);

function set_attribute(element: Element, name: string, value: Attribute): void {
  if (kProperties.has(name) && name in element) {
    (element as unknown as Record<string, unknown>)[name] = value ?? (name === "value" ? "" : false);
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name === "className" ? "class" : name, value === true ? "" : String(value));
  }
}

function follow<T>(value: Reactive<T>, use: (value: T) => void): void {
  if (typeof value === "function") effect(() => use((value as () => T)()));
  else use(value);
}

function set_styles(element: HTMLElement | SVGElement, styles: Styles): void {
  for (const [name, value] of Object.entries(styles)) {
    follow(value, (now) => element.style.setProperty(name, now === null ? "" : String(now)));
  }
}

/** Adds children; those that are functions are replaced whenever what they read changes. */
export function append(parent: Node, child: Child): void {
  if (child === null || child === undefined || typeof child === "boolean") return;
  if (Array.isArray(child)) {
    for (const each of child) append(parent, each);
  } else if (child instanceof Node) {
    parent.appendChild(child);
  } else if (typeof child === "function") {
    const end = document.createTextNode("");
    parent.appendChild(end);
    let nodes: ChildNode[] = [];
    effect(() => {
      const fresh = document.createDocumentFragment();
      append(fresh, child());
      for (const old of nodes) old.remove();
      nodes = [...fresh.childNodes];
      end.parentNode?.insertBefore(fresh, end);
    });
  } else {
    parent.appendChild(document.createTextNode(String(child)));
  }
}

export function h<P>(tag: string | Component<P>, props: (P & Props) | null, ...children: Child[]): Node {
  if (typeof tag === "function") return tag({ ...props, children } as P);
  const element = kSvgTags.has(tag) ? document.createElementNS(kSvg, tag) : document.createElement(tag);
  // Children come first: the value of a select is set after its options.
  append(element, children);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "ref") (value as (element: Node) => void)(element);
    else if (name === "style") set_styles(element as HTMLElement, value as Styles);
    else if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2).toLowerCase(), value as EventListener);
    } else if (name !== "children") follow(value as Reactive<Attribute>, (now) => set_attribute(element, name, now));
  }
  return element;
}

export function Fragment(props: { children?: Child }): Node {
  const fragment = document.createDocumentFragment();
  append(fragment, props.children);
  return fragment;
}

export function clear(element: Node): void {
  while (element.firstChild) element.removeChild(element.firstChild);
}

export declare namespace h {
  namespace JSX {
    type Element = Node;
    interface ElementChildrenAttribute {
      children: unknown;
    }
    type IntrinsicElements =
      & { [K in keyof HTMLElementTagNameMap]: Props<HTMLElementTagNameMap[K]> }
      & {
        [K in "svg" | "path" | "line" | "rect" | "circle" | "polyline" | "polygon" | "g" | "text"]: Props<SVGElement>;
      };
  }
}
