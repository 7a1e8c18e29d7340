// Fuzzy search: the letters of each word of the query in their order, best where words begin and where letters stand together.

export interface Match {
  index: number;
  score: number;
}

/** Texts made ready for searching: in lower case, with the set of their letters as bits. */
export class FuzzyIndex {
  readonly texts: readonly string[];
  readonly #lower: string[];
  readonly #letters: Int32Array;

  constructor(texts: readonly string[]) {
    this.texts = texts;
    this.#lower = texts.map((text) => text.toLowerCase());
    this.#letters = Int32Array.from(this.#lower, letters_of);
  }

  /** The best matches first, at most `limit`; of equal ones the earlier first. An empty query matches the first ones. */
  search(query: string, limit = 50): Match[] {
    const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const wanted = words.reduce((bits, word) => bits | letters_of(word), 0);
    const best: Match[] = [];
    let worst = -Infinity;
    for (let index = 0; index < this.#lower.length; index++) {
      if ((this.#letters[index]! & wanted) !== wanted) continue;
      let score = 0;
      for (const word of words) {
        const of = score_word(this.#lower[index]!, this.texts[index]!, word);
        if (of === null) {
          score = -Infinity;
          break;
        }
        score += of;
      }
      if (score === -Infinity || (best.length >= limit && score <= worst)) continue;
      let place = best.length;
      while (place > 0 && best[place - 1]!.score < score) place--;
      best.splice(place, 0, { index, score });
      if (best.length > limit) best.pop();
      worst = best[best.length - 1]!.score;
      if (words.length === 0 && best.length >= limit) break;
    }
    return best;
  }
}

function letters_of(text: string): number {
  let bits = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    // 26 letters, then digits by twos; the rest has no bit.
    if (code >= 97 && code <= 122) bits |= 1 << (code - 97);
    else if (code >= 48 && code <= 57) bits |= 1 << (26 + ((code - 48) >> 1));
  }
  return bits;
}

function is_start(text: string, original: string, at: number): boolean {
  if (at === 0) return true;
  const before = text.charCodeAt(at - 1);
  const isLetter = (before >= 97 && before <= 122) || (before >= 48 && before <= 57) || before > 127;
  if (!isLetter) return true;
  const [here, last] = [original[at]!, original[at - 1]!];
  return here !== here.toLowerCase() && last === last.toLowerCase();
}

/** Null where the word's letters are not all there. */
function score_word(text: string, original: string, word: string): number | null {
  const whole = text.lastIndexOf(word);
  if (whole >= 0) {
    const starts = is_start(text, original, whole) ? 20 : 0;
    const ends = whole + word.length === text.length ? 10 : 0;
    return 40 + word.length * 8 + starts + ends - text.length * 0.1;
  }
  let score = 0;
  let at = -1;
  for (let i = 0; i < word.length; i++) {
    const next = text.indexOf(word[i]!, at + 1);
    if (next < 0) return null;
    score += next === at + 1 && i > 0 ? 6 : is_start(text, original, next) ? 5 : 1;
    at = next;
  }
  return score - text.length * 0.1;
}

/** Places of a text that a query matched, to mark them. */
export function match_places(text: string, query: string): number[] {
  const lower = text.toLowerCase();
  const places = new Set<number>();
  for (const word of query.toLowerCase().split(/\s+/).filter((each) => each !== "")) {
    const whole = lower.lastIndexOf(word);
    if (whole >= 0) {
      for (let i = 0; i < word.length; i++) places.add(whole + i);
      continue;
    }
    let at = -1;
    for (const letter of word) {
      at = lower.indexOf(letter, at + 1);
      if (at < 0) break;
      places.add(at);
    }
  }
  return [...places].sort((a, b) => a - b);
}

/** A filter of names: a glob where there is a star or question mark, else the words that all occur. */
export function name_filter(pattern: string): (name: string) => boolean {
  const text = pattern.trim().toLowerCase();
  if (text === "") return () => true;
  if (/[*?]/.test(text)) {
    const source = text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*+/g, ".*").replace(/\?/g, ".");
    const expression = new RegExp(`^${source}$`, "s");
    return (name) => expression.test(name.toLowerCase());
  }
  const words = text.split(/\s+/);
  return (name) => {
    const lower = name.toLowerCase();
    return words.every((word) => lower.includes(word));
  };
}
