/** What is in a folder, page by page. */

import { untrack } from "svelte";

import { asProblem, isCancelled, type Problem } from "../../lib/problem.ts";
import { session } from "../../lib/session.svelte.ts";
import type { Entry } from "./entries.ts";
import { listFolder } from "./operations.ts";
import type { Place } from "./place.ts";

export class Listing {
  entries = $state.raw<readonly Entry[]>([]);
  /** How many there are in all, if that is known. */
  total = $state<number>();
  problem = $state.raw<Problem>();
  isLoading = $state(false);
  /** Whether an answer came. */
  isKnown = $state(false);
  #next = $state<string>();
  #running: AbortController | undefined;
  readonly place: Place;

  constructor(place: Place) {
    this.place = place;
  }

  get hasMore(): boolean {
    return this.#next !== undefined;
  }

  /** Load again as much as there was. What is shown stays until then. */
  async load(): Promise<void> {
    // After a log-in, everything is asked again.
    void session.generation;
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    await this.#ask(running, async () => {
      // An effect that loads must not depend on what is loaded.
      const wanted = untrack(() => this.entries.length);
      let all: Entry[] = [];
      let cursor: string | undefined;
      do {
        const page = await listFolder(this.place, cursor, running.signal);
        all = all.length === 0 ? page.entries : all.concat(page.entries);
        this.total = page.total;
        cursor = page.next;
      } while (cursor !== undefined && all.length < wanted);
      running.signal.throwIfAborted();
      this.entries = all;
      this.#next = cursor;
      this.isKnown = true;
    });
  }

  /** Load the next page, unless one is being loaded. */
  async more(): Promise<void> {
    const cursor = this.#next;
    if (cursor === undefined || this.isLoading) return;
    const running = (this.#running = new AbortController());
    await this.#ask(running, async () => {
      const page = await listFolder(this.place, cursor, running.signal);
      this.entries = this.entries.concat(page.entries);
      if (page.next === undefined) this.total = this.entries.length;
      this.#next = page.next;
    });
  }

  /** Load all pages that are left. */
  async all(): Promise<void> {
    while (this.hasMore && !this.isLoading && this.problem === undefined) await this.more();
  }

  cancel(): void {
    this.#running?.abort();
  }

  async #ask(running: AbortController, work: () => Promise<void>): Promise<void> {
    this.isLoading = true;
    try {
      await work();
      this.problem = undefined;
    } catch (thrown) {
      if (!running.signal.aborted && !isCancelled(thrown)) this.problem = asProblem(thrown);
    } finally {
      if (this.#running === running) this.isLoading = false;
    }
  }
}
