// One small window beside the pointer that says what is under it.

import { append, type Child, clear, h } from "./jsx.ts";

let box: HTMLElement | null = null;

export function show_tip(x: number, y: number, content: Child): void {
  if (!box) {
    box = <div class="tip" role="tooltip"></div> as HTMLElement;
    document.body.appendChild(box);
  }
  clear(box);
  append(box, content);
  box.classList.add("shown");
  const { width, height } = box.getBoundingClientRect();
  const left = x + 14 + width > innerWidth - 4 ? Math.max(4, x - 14 - width) : x + 14;
  const top = y + 16 + height > innerHeight - 4 ? Math.max(4, y - 10 - height) : y + 16;
  box.style.setProperty("transform", `translate(${Math.round(left)}px, ${Math.round(top)}px)`);
}

export function hide_tip(): void {
  box?.classList.remove("shown");
}

/** Rows of a name and a value. */
export function TipRows(props: { title: Child; rows: [string, Child][] }): Node {
  return (
    <div>
      <div class="tip-title">{props.title}</div>
      <dl class="tip-rows">
        {props.rows.filter(([, value]) => value !== null && value !== "" && value !== undefined).map((
          [name, value],
        ) => [
          <dt>{name}</dt>,
          <dd>{value}</dd>,
        ])}
      </dl>
    </div>
  );
}
