// What the tests need of an assertion library.

function show(value: unknown): string {
  return JSON.stringify(value, (_, each) => {
    if (typeof each === "number" && !Number.isFinite(each)) return String(each);
    if (each instanceof Map) return [...each];
    if (each instanceof Set) return [...each];
    if (ArrayBuffer.isView(each)) return [...(each as Uint8Array)];
    return each === undefined ? "undefined" : each;
  });
}

export function equal(actual: unknown, expected: unknown): void {
  const [a, b] = [show(actual), show(expected)];
  if (a !== b) throw new Error(`\n  got      ${a}\n  expected ${b}`);
}

export function close(actual: number, expected: number, tolerance: number): void {
  if (!(Math.abs(actual - expected) <= tolerance)) {
    throw new Error(`${actual} is not within ${tolerance} of ${expected}`);
  }
}

export function check(isTrue: boolean, message: string): void {
  if (!isTrue) throw new Error(message);
}

export async function fails(body: () => Promise<unknown>): Promise<Error> {
  try {
    await body();
  } catch (error) {
    return error as Error;
  }
  throw new Error("it should have failed");
}
