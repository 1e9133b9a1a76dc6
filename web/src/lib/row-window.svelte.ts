/** Which rows of a long list are in the document: those in view, and a few around them. */

import { rowHeight } from "./preferences.svelte.ts";

const AROUND = 8;

export class RowWindow {
  readonly #count: () => number;
  readonly #headHeight: () => number;
  #viewport: HTMLElement | undefined;
  #top = $state(0);
  #height = $state(600);

  /** `headHeight` is that of a head which stays at the top of the viewport. */
  constructor(count: () => number, headHeight: () => number = () => 0) {
    this.#count = count;
    this.#headHeight = headHeight;
  }

  get first(): number {
    return Math.max(0, Math.min(Math.floor(this.#top / rowHeight()), this.#count() - 1) - AROUND);
  }

  /** The row after the last one. */
  get end(): number {
    return Math.min(this.#count(), this.first + Math.ceil(this.#height / rowHeight()) + 2 * AROUND);
  }

  /** How many rows fit into the viewport. */
  get page(): number {
    return Math.max(1, Math.floor((this.#height - this.#headHeight()) / rowHeight()) - 1);
  }

  get offset(): string {
    return `translateY(${this.first * rowHeight()}px)`;
  }

  get total(): string {
    return `${this.#count() * rowHeight()}px`;
  }

  /** Attach it to the element that scrolls: `{@attach rows.attach}`. */
  attach = (element: HTMLElement): (() => void) => {
    this.#viewport = element;
    const measure = () => {
      this.#top = element.scrollTop;
      this.#height = element.clientHeight;
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  };

  /** Scroll as far as needed for the row to be in view. */
  reveal(index: number): void {
    const viewport = this.#viewport;
    if (viewport === undefined || index < 0) return;
    const height = rowHeight();
    const top = index * height;
    const room = viewport.clientHeight - this.#headHeight();
    if (top < viewport.scrollTop) viewport.scrollTop = top;
    else if (top + height > viewport.scrollTop + room) viewport.scrollTop = top + height - room;
    this.#top = viewport.scrollTop;
  }
}
