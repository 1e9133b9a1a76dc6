/** A question to the server whose answer a page shows. */

import { asProblem, isCancelled, type Problem } from "./problem.ts";
import { session } from "./session.svelte.ts";

/**
 * Loads something and keeps the last answer until the next one. Create it in a component and load it in an effect; what
 * `ask` reads before its first `await` decides when it is asked again:
 *
 *     const files = new Query((signal) => answer(api.GET("/api/registry/files", { signal })));
 *     $effect(() => void files.load());
 */
export class Query<T> {
  value = $state.raw<T | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  isLoading = $state(false);

  #ask: (signal: AbortSignal) => Promise<T>;
  #running: AbortController | undefined;

  constructor(ask: (signal: AbortSignal) => Promise<T>) {
    this.#ask = ask;
  }

  /** Ask now. A question that is still open is cancelled. */
  async load(): Promise<void> {
    // After a log-in, everything is asked again.
    void session.generation;
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    const asked = this.#ask(running.signal);
    this.isLoading = true;
    try {
      const value = await asked;
      if (running.signal.aborted) return;
      this.value = value;
      this.problem = undefined;
    } catch (thrown) {
      if (running.signal.aborted || isCancelled(thrown)) return;
      this.problem = asProblem(thrown);
    } finally {
      if (this.#running === running) this.isLoading = false;
    }
  }

  /** Cancel the question, for example when the component goes away. */
  cancel(): void {
    this.#running?.abort();
    this.isLoading = false;
  }
}
