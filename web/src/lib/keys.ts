/** Names of keys, and the sequences that shortcuts are made of. */

export interface KeyPress {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
  shiftKey: boolean;
}

/** The name of a key press: `e`, `?`, `F2`, `Ctrl+K`, `Alt+Enter`. The Command key counts as Ctrl. */
export function nameOf(press: KeyPress): string {
  const modifiers = [press.ctrlKey || press.metaKey ? "Ctrl" : "", press.altKey ? "Alt" : ""].filter(Boolean);
  const key = press.key.length === 1 ? (modifiers.length > 0 ? press.key.toUpperCase() : press.key) : press.key;
  // Shift is part of a character already.
  if (press.shiftKey && press.key.length > 1) modifiers.push("Shift");
  return [...modifiers, key].join("+");
}

/** Whether pressing this in a text field writes something, so that it cannot be a shortcut there. */
export function isLetter(name: string): boolean {
  return name.split(" ").some((each) => each.length === 1);
}

/** Collects key presses into sequences such as `g f`. */
export class Sequence {
  #pressed: string[] = [];
  #at = 0;
  readonly #withinMs: number;

  constructor(withinMs = 1500) {
    this.#withinMs = withinMs;
  }

  /** The sequence that this press completes, if it is one of these; the longest counts. */
  press(name: string, at: number, known: (sequence: string) => "whole" | "start" | undefined): string | undefined {
    if (at - this.#at > this.#withinMs) this.#pressed = [];
    this.#at = at;
    this.#pressed.push(name);
    while (this.#pressed.length > 0) {
      const sequence = this.#pressed.join(" ");
      const kind = known(sequence);
      if (kind === "whole") {
        this.#pressed = [];
        return sequence;
      }
      if (kind === "start") return undefined;
      this.#pressed.shift();
    }
    return undefined;
  }
}
