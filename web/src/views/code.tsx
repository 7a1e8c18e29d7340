// The code of the module that is blamed: what changed in its source, line by line, and in its attributes.

import { type Child, h } from "../lib/jsx.ts";
import { plural } from "../lib/text.ts";
import type { State } from "../state.ts";
import type { Place, PlaceCode } from "../types.ts";

export interface PatchLine {
  kind: "same" | "removed" | "added" | "gap";
  a: number | null;
  b: number | null;
  text: string;
  /** The part that differs from the line in its place. */
  changed: [begin: number, end: number] | null;
}

/** The lines of a unified diff, with the numbers that they have in each file. */
export function read_patch(lines: readonly string[]): PatchLine[] {
  const result: PatchLine[] = [];
  let a = 0, b = 0;
  for (const line of lines) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (hunk) {
      a = Number(hunk[1]);
      b = Number(hunk[2]);
      result.push({ kind: "gap", a: null, b: null, text: "⋯", changed: null });
    } else if (a === 0 && b === 0) {
      continue; // the names of the files
    } else if (line.startsWith("-")) {
      result.push({ kind: "removed", a: a++, b: null, text: line.slice(1), changed: null });
    } else if (line.startsWith("+")) {
      result.push({ kind: "added", a: null, b: b++, text: line.slice(1), changed: null });
    } else if (!line.startsWith("\\")) {
      result.push({ kind: "same", a: a++, b: b++, text: line.slice(1), changed: null });
    }
  }
  // What all lines are indented by takes room and says nothing.
  const indents = result.filter((line) => line.text.trim() !== "" && line.kind !== "gap").map((line) =>
    line.text.search(/\S/)
  );
  const indent = indents.length > 0 ? Math.min(...indents) : 0;
  for (const line of result) if (line.kind !== "gap") line.text = line.text.slice(indent);
  mark_changes(result);
  return result;
}

/** As many lines added as removed before them are changed ones: what they begin and end with alike is no change. */
function mark_changes(lines: PatchLine[]): void {
  for (let i = 0; i < lines.length;) {
    let removed = i;
    while (lines[removed]?.kind === "removed") removed++;
    let added = removed;
    while (lines[added]?.kind === "added") added++;
    const count = removed - i;
    if (count > 0 && added - removed === count) {
      for (let k = 0; k < count; k++) mark_pair(lines[i + k]!, lines[removed + k]!);
    }
    i = Math.max(i + 1, added);
  }
}

function mark_pair(a: PatchLine, b: PatchLine): void {
  const x = a.text, y = b.text;
  const shorter = Math.min(x.length, y.length);
  let begin = 0, end = 0;
  while (begin < shorter && x[begin] === y[begin]) begin++;
  while (end < shorter - begin && x[x.length - 1 - end] === y[y.length - 1 - end]) end++;
  const alike = x.slice(0, begin).trim().length + x.slice(x.length - end).trim().length;
  if (2 * alike < Math.min(x.trim().length, y.trim().length)) return; // another line altogether
  // Whole words: half a number says little.
  const isWord = (c: string | undefined): boolean => c !== undefined && /[\w.]/.test(c);
  if (isWord(x[begin]) || isWord(y[begin])) { while (begin > 0 && isWord(x[begin - 1])) begin--; }
  if (isWord(x[x.length - end - 1]) || isWord(y[y.length - end - 1])) {
    while (end > 0 && isWord(x[x.length - end])) end--;
  }
  a.changed = [begin, x.length - end];
  b.changed = [begin, y.length - end];
}

/** Rows of the evidence that say what the code's own part shows. */
export function is_told_by_code(place: Place, [name, text]: [string, string]): boolean {
  const { code } = place;
  if (!code) return false;
  if (name === "source") return code.source === "differs" && code.lines.length > 0;
  return code.attributes.length > 0 && (name === "attributes" || (name === "" && text.includes(" → ")));
}

function Text(props: { line: PatchLine }): Child {
  const { text, changed } = props.line;
  if (changed === null || changed[0] >= changed[1]) return text;
  return [text.slice(0, changed[0]), <mark>{text.slice(...changed)}</mark>, text.slice(changed[1])];
}

const kMarks = { same: " ", removed: "−", added: "+", gap: "" };

export function CodeOfModule(props: { state: State; code: PlaceCode; name: string }): Node | null {
  const { state, code } = props;
  const hasLines = code.lines.length > 0;
  if (!hasLines && code.attributes.length === 0) return null;
  const sites = [...new Set([code.site_a, code.site_b].filter((site) => site !== null))];
  return (
    <div class="of-code">
      {hasLines
        ? (
          <h3>
            The source of {props.name} differs
            <span class="muted">
              {plural(code.removed, "line")} removed, {String(code.added)} added
            </span>
            <span class="sites">
              {sites.map((site) => (
                <button
                  type="button"
                  class="site mono"
                  title="Copy the place in the source"
                  onClick={() => state.copy(site, site)}
                >
                  {short_site(site)}
                </button>
              ))}
            </span>
          </h3>
        )
        : null}
      {hasLines
        ? (
          <div class="patch" tabIndex={0} aria-label="What changed in the source">
            <div class="patch-inner">
              {read_patch(code.lines).map((line) =>
                line.kind === "gap" ? <div class="patch-gap">⋯</div> : (
                  <div class={`patch-line patch-${line.kind}`}>
                    <span class="patch-number num">{line.a === null ? "" : String(line.a)}</span>
                    <span class="patch-number num">{line.b === null ? "" : String(line.b)}</span>
                    <span class="patch-mark">{kMarks[line.kind]}</span>
                    <span class="patch-text">{Text({ line })}</span>
                  </div>
                )
              )}
            </div>
          </div>
        )
        : null}
      {code.left_out > 0
        ? <p class="muted note">{plural(code.left_out, "line")} more of this: tenscope diff --json has all.</p>
        : null}
      {code.attributes.length > 0
        ? (
          <div class={hasLines ? "note" : ""}>
            {hasLines ? null : <h3>Attributes of {props.name} that differ</h3>}
            <table class="attributes">
              <tr>
                <th>attribute</th>
                <th>A</th>
                <th>B</th>
              </tr>
              {code.attributes.map((one) => (
                <tr>
                  <td class="mono">{one.name}</td>
                  <td class="mono side-a-text">{one.a ?? "–"}</td>
                  <td class="mono side-b-text">{one.b ?? "–"}</td>
                </tr>
              ))}
            </table>
          </div>
        )
        : null}
    </div>
  );
}

/** The last parts of a path: what a person knows the file by. */
export function short_site(site: string): string {
  return site.split("/").slice(-3).join("/");
}
