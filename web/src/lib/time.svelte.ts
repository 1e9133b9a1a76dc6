/** Times in words, and a clock that lets them age. */

import { createSubscriber } from "svelte/reactivity";

const TICK_MS = 10_000;
const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const absolute = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

const subscribe = createSubscriber((update) => {
  const timer = setInterval(update, TICK_MS);
  return () => clearInterval(timer);
});

/** The time now. What reads it in an effect or a template is updated every ten seconds. */
export function now(): number {
  subscribe();
  return Date.now();
}

/** Such as `3 min ago`. */
export function ago(time: Date, at: number): string {
  const seconds = (time.getTime() - at) / 1000;
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return relative.format(Math.trunc(seconds / length), unit);
  }
  return seconds > 0 ? "in a moment" : "just now";
}

/** The date and the time to the second, with 24 hours. */
export function exactly(time: Date): string {
  return absolute.format(time);
}
