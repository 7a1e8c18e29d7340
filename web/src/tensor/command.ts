// The present slice in other words: a command and a Python expression.

import { format_part, open_axes, type Part, type Picture } from "./slicing.ts";

export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function is_all(picture: Picture): boolean {
  return picture.parts.every((part, axis) =>
    part.kind === "range" && part.step === 1 && part.count === picture.shape[axis]
  );
}

function slice_of(parts: readonly Part[], shape: readonly number[], glue: string): string {
  return parts.map((part, axis) => format_part(part, shape[axis]!)).join(glue);
}

// `tenscope show RUN NAME --step 3` with the slice; other commands stay as they are.
export function command_of(command: string, picture: Picture): string {
  if (!command.startsWith("tenscope show ") || picture.isFolded || is_all(picture)) return command;
  return `${command} --slice ${quote(slice_of(picture.parts, picture.shape, ","))}`;
}

// `tenscope.open("RUN")["name", 3]` with the slice.
export function python_of(python: string, picture: Picture): string {
  if (!python.endsWith("]")) return python;
  let text = python;
  if (picture.isFolded) {
    if (picture.shape.length > 2) text += `.reshape(-1, ${picture.shape.at(-1)})`;
  } else if (!is_all(picture)) text += `[${slice_of(picture.parts, picture.shape, ", ")}]`;
  const isFlat = picture.isFolded ? picture.shape.length < 2 : open_axes(picture.parts).length < 2;
  return picture.isTransposed && !isFlat ? `${text}.T` : text;
}
