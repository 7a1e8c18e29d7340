// Lists and canvases of which only the part that is seen is made.

import { append, type Child, h } from "./jsx.ts";
import { text_scale } from "./paint.ts";
import { effect, onEnd, type Read, scope, signal, untrack } from "./signals.ts";

export interface Range {
  first: number;
  /** Behind the last. */
  end: number;
}

/** The rows that are seen of a list that is scrolled, and a few on both sides. */
export function visible_range(top: number, height: number, rowHeight: number, count: number, more = 4): Range {
  const first = Math.max(0, Math.min(count, Math.floor(top / rowHeight) - more));
  const end = Math.min(count, Math.max(first, Math.ceil((top + height) / rowHeight) + more));
  return { first, end };
}

/** Where to scroll to so that a row is seen; null where it is. */
export function scroll_for(row: number, top: number, height: number, rowHeight: number): number | null {
  if (row * rowHeight < top) return row * rowHeight;
  if ((row + 1) * rowHeight > top + height) return Math.max(0, (row + 1) * rowHeight - height);
  return null;
}

export interface VirtualListProps {
  count: Read<number>;
  rowHeight: number;
  /** One row; called anew for all that is seen when `version` changes. */
  row: (index: number) => Node;
  version: () => unknown;
  class?: string;
  /** A row to bring into view. */
  active?: () => number | null;
  onRange?: (range: Range) => void;
  label?: string;
}

export function VirtualList(props: VirtualListProps): Node {
  const rows = new Map<number, { node: HTMLElement; end: () => void }>();
  let shown: Range = { first: 0, end: 0 };
  const inner = <div class="virtual-inner"></div> as HTMLElement;
  const outer = (
    <div class={`virtual ${props.class ?? ""}`} role="listbox" aria-label={props.label ?? "list"}>{inner}</div>
  ) as HTMLElement;

  const drop = (index: number) => {
    const entry = rows.get(index);
    if (!entry) return;
    entry.end();
    entry.node.remove();
    rows.delete(index);
  };
  const draw = () => {
    const range = visible_range(outer.scrollTop, outer.clientHeight, props.rowHeight, untrack(props.count));
    for (const index of [...rows.keys()]) if (index < range.first || index >= range.end) drop(index);
    for (let index = range.first; index < range.end; index++) {
      if (rows.has(index)) continue;
      const [node, end] = scope(() => props.row(index) as HTMLElement);
      node.classList.add("virtual-row");
      node.style.setProperty("top", `${index * props.rowHeight}px`);
      node.style.setProperty("height", `${props.rowHeight}px`);
      rows.set(index, { node, end });
      inner.appendChild(node);
    }
    if (range.first !== shown.first || range.end !== shown.end) {
      shown = range;
      props.onRange?.(range);
    }
  };
  const redraw = () => {
    for (const index of [...rows.keys()]) drop(index);
    shown = { first: -1, end: -1 };
    draw();
  };
  outer.addEventListener("scroll", draw, { passive: true });
  const observer = new ResizeObserver(draw);
  observer.observe(outer);
  effect(() => {
    inner.style.setProperty("height", `${props.count() * props.rowHeight}px`);
    props.version();
    untrack(redraw);
  });
  if (props.active) {
    // Where a list is opened far down, what is above and below is seen, too.
    let isFirst = true;
    effect(() => {
      const row = props.active!();
      if (row === null || row < 0) return;
      const frame = requestAnimationFrame(() => {
        const top = scroll_for(row, outer.scrollTop, outer.clientHeight, props.rowHeight);
        if (top !== null) outer.scrollTop = isFirst ? row * props.rowHeight - outer.clientHeight / 2 : top;
        isFirst = false;
      });
      return () => cancelAnimationFrame(frame);
    });
  }
  onEnd(() => {
    observer.disconnect();
    for (const index of [...rows.keys()]) drop(index);
  });
  return outer;
}

export interface CanvasProps {
  /** Draws in CSS pixels times `text_scale`; called in the next frame after a change of size or of what `follow` reads. */
  draw: (g: CanvasRenderingContext2D, width: number, height: number) => void;
  follow: () => unknown;
  class?: string;
  label: string;
  ref?: (canvas: HTMLCanvasElement) => void;
  children?: Child;
}

/** A canvas that fills the element around it, sharp on every screen. */
export function Canvas(props: CanvasProps): Node {
  const canvas = (
    <canvas class={props.class ?? "fill"} role="img" aria-label={props.label}>
    </canvas>
  ) as HTMLCanvasElement;
  const size = signal({ width: 0, height: 0 }, (a, b) => a.width === b.width && a.height === b.height);
  const observer = new ResizeObserver((entries) => {
    const box = entries[entries.length - 1]?.contentRect;
    if (box) size.set({ width: box.width, height: box.height });
  });
  observer.observe(canvas);
  onEnd(() => observer.disconnect());
  effect(() => {
    const { width, height } = size();
    props.follow();
    const frame = requestAnimationFrame(() => {
      if (width < 1 || height < 1) return;
      const ratio = globalThis.devicePixelRatio || 1;
      const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
      }
      const g = canvas.getContext("2d");
      if (!g) return;
      const scale = text_scale();
      g.setTransform(ratio * scale, 0, 0, ratio * scale, 0, 0);
      g.clearRect(0, 0, width / scale, height / scale);
      props.draw(g, width / scale, height / scale);
    });
    return () => cancelAnimationFrame(frame);
  });
  props.ref?.(canvas);
  append(canvas, props.children);
  return canvas;
}
