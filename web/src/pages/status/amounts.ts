/** Amounts in words: sizes, durations, parts of a whole. */

const UNITS = ["B", "KB", "MB", "GB", "TB"] as const;

/** Such as `1.4 GB`. */
export function bytes(amount: number): string {
  const step = amount < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(amount) / 3));
  const value = amount / 1000 ** step;
  return `${value.toLocaleString("en", { maximumFractionDigits: value < 10 && step > 0 ? 1 : 0 })} ${UNITS[step]}`;
}

/** Such as `3 d 4 h` or `12 s`. */
export function duration(seconds: number): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  if (first === -1) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

/** How much is done, from 0 to 1; undefined while the whole is unknown. */
export function share(done: number, total: number | undefined): number | undefined {
  if (total === undefined) return undefined;
  return total === 0 ? 1 : Math.min(1, done / total);
}
