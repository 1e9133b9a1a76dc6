/** The list of findings that match a filter: pages as they are scrolled to, and judgements with their undo. */

import { answer, api } from "../../lib/api.ts";
import { asProblem, isCancelled, type Problem } from "../../lib/problem.ts";
import { session } from "../../lib/session.svelte.ts";
import { toast, toastProblem } from "../../lib/toasts.svelte.ts";
import { count, STATUS_WORDS, type Finding, type FindingFilter, type FindingStatus } from "./words.ts";

export type Sort = "severity" | "updated_at" | "path";

const PAGE = 200;
const MAX_PAGE = 1000;

export class FindingList {
  rows = $state.raw<Finding[]>([]);
  problem = $state.raw<Problem | undefined>(undefined);
  isLoading = $state(false);
  /** Whether the first answer is here. */
  isLoaded = $state(false);
  #next: string | null = null;
  #filter: FindingFilter = {};
  #sort: Sort = "severity";
  #running: AbortController | undefined;

  /** List from the beginning. */
  load(filter: FindingFilter, sort: Sort): Promise<void> {
    void session.generation;
    this.#filter = filter;
    this.#sort = sort;
    return this.#fetch(PAGE, null);
  }

  /** List again what is listed, after a change. */
  reload(): Promise<void> {
    return this.#fetch(Math.min(MAX_PAGE, Math.max(PAGE, this.rows.length)), null);
  }

  /** List the next page, if there is one. */
  more(): void {
    if (this.#next !== null && !this.isLoading) void this.#fetch(PAGE, this.#next);
  }

  async #fetch(limit: number, cursor: string | null): Promise<void> {
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    this.isLoading = true;
    const query = { ...this.#filter, sort: this.#sort, limit, ...(cursor === null ? {} : { cursor }) };
    try {
      const call = api.GET("/api/registry/findings/search", { params: { query }, signal: running.signal });
      const page = await answer(call);
      if (running.signal.aborted) return;
      this.rows = cursor === null ? page.results : [...this.rows, ...page.results];
      this.#next = page.next;
      this.problem = undefined;
      this.isLoaded = true;
    } catch (thrown) {
      if (!running.signal.aborted && !isCancelled(thrown)) this.problem = asProblem(thrown);
    } finally {
      if (this.#running === running) this.isLoading = false;
    }
  }
}

export type Chosen = { ids: readonly string[] } | { filter: FindingFilter; expected: number };

/** Judges findings, and keeps what undoes the last judgement. */
export class Judge {
  #last: string | undefined = $state();
  readonly #onchange: () => void;

  constructor(onchange: () => void) {
    this.#onchange = onchange;
  }

  get canUndo(): boolean {
    return this.#last !== undefined;
  }

  /** Set the status of findings. Throws a `Problem` if nothing was changed. */
  async judge(chosen: Chosen, status: FindingStatus, reason: string): Promise<void> {
    const which =
      "ids" in chosen ? { finding_ids: [...chosen.ids] } : { filter: chosen.filter, expected: chosen.expected };
    const call = api.POST("/api/registry/findings/judge", { body: { ...which, status, reason } });
    const { judgement_id: judgement, changed, unchanged } = await answer(call);
    if (judgement === null) {
      toast(`${count(unchanged, "finding")} ${unchanged === 1 ? "was" : "were"} ${STATUS_WORDS[status]} already`);
      return;
    }
    this.#last = judgement;
    toast(`${count(changed, "finding")} set to ${STATUS_WORDS[status]}`, {
      tone: "ok",
      action: { title: "Undo (u)", run: () => void this.undo(judgement) },
    });
    this.#onchange();
  }

  /** Undo a judgement, by default the last one. */
  async undo(judgement = this.#last): Promise<void> {
    if (judgement === undefined) {
      toast("There is nothing to undo here");
      return;
    }
    if (judgement === this.#last) this.#last = undefined;
    try {
      const call = api.POST("/api/registry/findings/undo", { body: { judgement_id: judgement } });
      const { restored, skipped } = await answer(call);
      const others = skipped > 0 ? `; ${count(skipped, "finding")} changed since and stayed` : "";
      toast(`${count(restored, "finding")} restored${others}`, { tone: "ok" });
      this.#onchange();
    } catch (thrown) {
      toastProblem(asProblem(thrown));
    }
  }
}
