// Numbers as a person reads them.

export function format_number(value: number, digits = 4): string {
  if (Number.isNaN(value)) return "NaN";
  if (value === Infinity) return "+Inf";
  if (value === -Infinity) return "-Inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e-4 && size < 1e6) {
    const text = value.toPrecision(digits);
    return text.includes("e") ? tidy_exponent(value.toExponential(digits - 1)) : trim_zeros(text);
  }
  return tidy_exponent(value.toExponential(digits - 1));
}

function trim_zeros(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function tidy_exponent(text: string): string {
  const [mantissa = "", exponent = ""] = text.split("e");
  return `${trim_zeros(mantissa)}e${exponent.replace("+", "")}`;
}

// Beyond 2^53 the last digits are not known.
export function format_count(value: number): string {
  return Math.abs(value) <= Number.MAX_SAFE_INTEGER
    ? Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",")
    : format_number(value);
}

export function format_percent(part: number, whole: number): string {
  if (whole <= 0) return "0 %";
  if (part === 0) return "0 %";
  const percent = 100 * part / whole;
  if (percent < 0.01) return "< 0.01 %";
  if (part < whole && percent > 99.99) return "> 99.99 %";
  return `${Number(percent.toPrecision(3))} %`;
}

export function format_shape(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

export function format_index(index: readonly number[]): string {
  return `[${index.join(", ")}]`;
}

// [3, 4) is one element, [3, 9) several: as they are written in a slice.
export function format_range(range: readonly [number, number]): string {
  return range[1] - range[0] <= 1 ? String(range[0]) : `${range[0]}:${range[1]}`;
}

export function format_change(a: number, b: number): string {
  if (Object.is(a, b) || a === b) return "=";
  if (Number.isNaN(a) && Number.isNaN(b)) return "=";
  if (!Number.isFinite(a) || !Number.isFinite(b)) return "changed";
  const change = b - a;
  const text = `${change > 0 ? "+" : ""}${format_number(change, 3)}`;
  if (a === 0) return text;
  const percent = 100 * change / Math.abs(a);
  if (Math.abs(percent) < 1e-3) return text;
  if (Math.abs(percent) >= 1e4) return `× ${format_number(b / a, 3)}`;
  return `${percent > 0 ? "+" : ""}${Number(percent.toPrecision(3))} %`;
}

// Text in a cell of so many characters: as many digits as fit; empty where not even two do.
export function fit_number(value: number, characters: number): string {
  for (let digits = Math.min(9, characters); digits >= 1; --digits) {
    const text = format_number(value, digits);
    if (text.length <= characters) return text;
  }
  return "";
}
