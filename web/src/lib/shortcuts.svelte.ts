/** The keyboard shortcuts and commands that are offered now. The help and the palette list them. */

import { SvelteSet } from "svelte/reactivity";

import { isLetter, nameOf, Sequence } from "./keys.ts";
import { preferences } from "./preferences.svelte.ts";

export interface Command {
  title: string;
  run: () => void;
  /** Such as `e`, `Ctrl+S`, `F2` or `g f`. Without keys, only the palette offers it. */
  keys?: string;
  /** The heading in the help: the page or the part of it. */
  group: string;
  /** Whether it also works in a text field; only for keys that write nothing there. */
  inFields?: boolean;
}

const offered = new SvelteSet<readonly Command[]>();
const sequence = new Sequence();

/** Offer these commands. Returns a function that withdraws them, so that an effect can return it. */
export function offerCommands(commands: readonly Command[]): () => void {
  offered.add(commands);
  return () => void offered.delete(commands);
}

/** What is offered now. Later offers come first: a page may take a key over from the shell. */
export function commands(): Command[] {
  return [...offered].reverse().flat();
}

/** Run commands by their keys from now on. */
export function startShortcuts(): void {
  document.addEventListener("keydown", (event) => {
    const name = nameOf(event);
    if (event.defaultPrevented || event.isComposing || ["Shift", "Control", "Meta", "Alt"].includes(event.key)) return;
    const target = event.composedPath()[0];
    const inField = target instanceof HTMLElement && isField(target);
    if (document.querySelector("dialog[open]") !== null) return;
    const usable = commands().filter(
      (each) =>
        each.keys !== undefined &&
        (!inField || each.inFields === true) &&
        (preferences.hasLetterShortcuts || !isLetter(each.keys)),
    );
    const pressed = sequence.press(name, event.timeStamp, (keys) => {
      if (usable.some((each) => each.keys === keys)) return "whole";
      return usable.some((each) => each.keys?.startsWith(`${keys} `)) ? "start" : undefined;
    });
    if (pressed === undefined) return;
    event.preventDefault();
    usable.find((each) => each.keys === pressed)?.run();
  });
}

function isField(element: HTMLElement): boolean {
  return (
    element.isContentEditable ||
    element.matches("input:not([type=checkbox], [type=radio]), textarea, select, [role=textbox], [role=combobox]")
  );
}
