/** Short messages at the edge of the screen, which screen readers read out. */

import type { Problem } from "./problem.ts";

export interface Toast {
  id: number;
  text: string;
  tone: "info" | "ok" | "bad";
  /** What the person can still do, such as to undo it. */
  action?: { title: string; run: () => void };
}

const SHOWN_MS = 8000;

export const toasts = $state<Toast[]>([]);
let last = 0;

/** Show a message for eight seconds. */
export function toast(text: string, options: Partial<Pick<Toast, "tone" | "action">> = {}): void {
  const id = (last += 1);
  toasts.push({ id, text, tone: "info", ...options });
  setTimeout(() => dismiss(id), SHOWN_MS);
}

/** Show that something failed. */
export function toastProblem(problem: Problem): void {
  toast(problem.hint ? `${problem.message} — ${problem.hint}` : problem.message, { tone: "bad" });
}

export function dismiss(id: number): void {
  const index = toasts.findIndex((each) => each.id === id);
  if (index >= 0) toasts.splice(index, 1);
}

const AT_MOST_EVERY_MS = 10_000;

class Announcements {
  text = $state("");
  #spokenAt = -Infinity;

  /** Let screen readers say this when they are idle. What changes all the time is said every ten seconds. */
  say(text: string): void {
    const now = performance.now();
    if (now - this.#spokenAt < AT_MOST_EVERY_MS) return;
    this.#spokenAt = now;
    this.text = text;
  }
}

export const announcements = new Announcements();
