// The pointer on a pane, and the zoom that keys and buttons share with it.

import { gutter } from "./draw.ts";
import type { TensorModel } from "./model.ts";
import { index_at, place_of } from "./slicing.ts";
import { pan_by, zoom_at } from "./viewport.ts";

// Wheel and pinch zoom, a drag pans, a click pins, a double click comes closer.
export function attach_pointer(model: TensorModel, canvas: HTMLCanvasElement): void {
  const place = (event: MouseEvent): { y: number; x: number } => {
    const box = canvas.getBoundingClientRect();
    const pane = model.pane.peek();
    return {
      y: (event.clientY - box.top - gutter.top) / pane.height,
      x: (event.clientX - box.left - gutter.left) / pane.width,
    };
  };
  const element_at = (event: MouseEvent): { row: number; col: number } | null => {
    const { y, x } = place(event);
    if (y < 0 || x < 0 || y > 1 || x > 1) return null;
    const view = model.view.peek(), extent = model.extent.peek();
    const row = Math.floor(view.row + y * view.rows), col = Math.floor(view.col + x * view.cols);
    return row >= 0 && col >= 0 && row < extent.rows && col < extent.cols ? { row, col } : null;
  };
  const zoom = (factor: number, y: number, x: number): void =>
    model.set_view(zoom_at(model.view.peek(), model.extent.peek(), model.pane.peek(), factor, y, x));

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 30 : event.deltaMode === 2 ? 400 : 1;
    const pane = model.pane.peek(), view = model.view.peek();
    if (event.shiftKey) {
      const by = (event.deltaX || event.deltaY) * unit;
      model.set_view(pan_by(view, model.extent.peek(), 0, by / pane.width * view.cols));
      return;
    }
    const { y, x } = place(event);
    const speed = event.ctrlKey ? 0.01 : 0.0018;
    zoom(Math.exp(-event.deltaY * unit * speed), Math.min(1, Math.max(0, y)), Math.min(1, Math.max(0, x)));
    model.hover.set(element_at(event));
  }, { passive: false });

  const fingers = new Map<number, PointerEvent>();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    fingers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 1) moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) {
      model.hover.set(element_at(event));
      return;
    }
    const others = [...fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
    const pane = model.pane.peek(), view = model.view.peek();
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    if (others.length === 1) {
      const other = others[0]!;
      const apart = (finger: PointerEvent): number =>
        Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      const middle = place(other);
      if (apart(before) > 0) zoom(apart(event) / apart(before), middle.y, middle.x);
    } else if (others.length === 0 && moved > 4) {
      model.hover.set(null);
      canvas.classList.add("tv-dragged");
      model.set_view(pan_by(
        view,
        model.extent.peek(),
        -(event.clientY - before.clientY) / pane.height * view.rows,
        -(event.clientX - before.clientX) / pane.width * view.cols,
      ));
    }
    fingers.set(event.pointerId, event);
  });
  const up = (event: PointerEvent): void => {
    const wasDown = fingers.delete(event.pointerId);
    canvas.classList.remove("tv-dragged");
    if (!wasDown || fingers.size > 0 || event.type === "pointercancel") return;
    if (moved > 4) return;
    const at = element_at(event);
    if (at === null) return;
    const index = index_at(model.picture.peek(), at.row, at.col);
    // A second click on the pinned element lets it go.
    model.pin(model.at.peek()?.join() === index.join() ? null : index);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => model.hover.set(null));
  canvas.addEventListener("dblclick", (event) => {
    event.preventDefault();
    const { y, x } = place(event);
    zoom(event.altKey || event.shiftKey ? 1 / 4 : 4, y, x);
    const at = element_at(event);
    if (at !== null) model.pin(index_at(model.picture.peek(), at.row, at.col));
  });
}

// As close as can be, with the pinned element (else the middle) in the middle.
export function zoom_in(model: TensorModel): void {
  zoom_middle(model, 1e9);
  const at = model.at.peek();
  const place = at === null ? null : place_of(model.picture.peek(), at);
  const view = model.view.peek();
  if (place === null) return;
  const [down, across] = [place[0] + 0.5 - view.row - view.rows / 2, place[1] + 0.5 - view.col - view.cols / 2];
  model.set_view(pan_by(view, model.extent.peek(), down, across));
}

export function zoom_middle(model: TensorModel, factor: number): void {
  const at = model.at.peek();
  const place = at === null ? null : place_of(model.picture.peek(), at);
  const view = model.view.peek();
  let [y, x] = [0.5, 0.5];
  if (place !== null) {
    const [py, px] = [(place[0] + 0.5 - view.row) / view.rows, (place[1] + 0.5 - view.col) / view.cols];
    if (py >= 0 && py <= 1 && px >= 0 && px <= 1) [y, x] = [py, px];
  }
  model.set_view(zoom_at(view, model.extent.peek(), model.pane.peek(), factor, y, x));
}
