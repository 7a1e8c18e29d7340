// Numbers, times and sizes as texts.

export function number_text(value: number, digits = 4): string {
  if (Number.isNaN(value)) return "NaN";
  if (value === Infinity) return "+Inf";
  if (value === -Infinity) return "-Inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa = "", exponent = ""] = value.toExponential(Math.max(0, digits - 2)).split("e");
    return `${mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa}e${exponent.replace("+", "")}`;
  }
  const text = value.toPrecision(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** 1234567 as 1,234,567. */
export function count_text(value: number): string {
  return value.toLocaleString("en-US");
}

export function seconds_text(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (value === 0) return "0";
  if (value < 1e-6) return `${(value * 1e9).toPrecision(3)} ns`;
  if (value < 1e-3) return `${(value * 1e6).toPrecision(3)} µs`;
  if (value < 1) return `${(value * 1e3).toPrecision(3)} ms`;
  if (value < 60) return `${value.toPrecision(3)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes_text(value: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : value.toPrecision(2)} ${units[unit]}`;
}

export function plural(count: number, one: string, many = one + "s"): string {
  return `${count_text(count)} ${count === 1 ? one : many}`;
}

/** How long ago, in words; the date where that is longer than a week. */
export function ago_text(seconds: number, now = Date.now() / 1000): string {
  const past = now - seconds;
  if (past < 60) return "just now";
  if (past < 3600) return plural(Math.floor(past / 60), "minute") + " ago";
  if (past < 86400) return plural(Math.floor(past / 3600), "hour") + " ago";
  if (past < 7 * 86400) return plural(Math.floor(past / 86400), "day") + " ago";
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}

/** A shape as `2×16×64`. */
export function shape_text(shape: string | readonly number[] | null | undefined): string {
  if (shape === null || shape === undefined) return "";
  if (typeof shape !== "string") return shape.length === 0 ? "scalar" : shape.join("×");
  return /^\d+(x\d+)*$/.test(shape) ? shape.replaceAll("x", "×") : shape;
}

/** A value of JSON that a recording holds, in one line. */
export function value_text(value: unknown, longest = 200): string {
  const text = typeof value === "number"
    ? number_text(value, 6)
    : typeof value === "string"
    ? value
    : JSON.stringify(value) ?? "";
  return text.length > longest ? text.slice(0, longest - 1) + "…" : text;
}
