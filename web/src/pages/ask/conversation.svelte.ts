/** Questions and their answers: of a thread that is kept, or a single one that a link asks. */

import type { components } from "../../api.d.ts";
import { answer, api, streamed } from "../../lib/api.ts";
import { asProblem, isCancelled, problemOf, type Problem } from "../../lib/problem.ts";
import { noParts, partsOf, readingOf, withEvent, type Failure, type Parts } from "./answers.ts";
import type { SentSelection } from "./selection.ts";

export type Thread = components["schemas"]["list_messages.answer.ThreadDescription"];
type Message = components["schemas"]["list_messages.answer.MessageDescription"];
type Json = Record<string, unknown>;

const PAGE = 20;
const TITLE_CHARS = 80;
let made = 0;

/** One question with what is known of its answer. */
export class Exchange {
  readonly key: number;
  readonly question: string;
  readonly selection: SentSelection;
  /** Its id in the thread. */
  id = $state<number>();
  at = $state<string>();
  /** `unanswered`: the thread has no answer, because it was stopped, or is written elsewhere. */
  state = $state<"asking" | "answered" | "failed" | "stopped" | "unanswered">("asking");
  parts = $state.raw<Parts>(noParts("corpus_ask"));
  problem = $state.raw<Problem>();
  /** The sources that are searched again. */
  retried = $state.raw<readonly string[]>([]);
  /** Whether there are hits that the answer does not know. */
  hasNewHits = $state(false);
  readonly reading = $derived(readingOf(this.parts));
  #running: AbortController | undefined;

  constructor(question: string, selection: SentSelection) {
    this.key = made += 1;
    this.question = question;
    this.selection = selection;
  }

  /** A question of a thread, with the answer that was kept. */
  static of(message: Message): Exchange {
    const exchange = new Exchange(message.question, message.selection as SentSelection);
    exchange.#take(message);
    return exchange;
  }

  /** Ask, and follow the answer as it is written. */
  async ask(path: string, body: Json): Promise<void> {
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    this.state = "asking";
    this.problem = undefined;
    this.hasNewHits = false;
    const tool = this.selection.sources === undefined ? "corpus_ask" : "rag_ask";
    this.parts = noParts(tool);
    let hasEnded = false;
    try {
      for await (const { event, data } of streamed(path, body, running.signal)) {
        if (running.signal.aborted) return;
        const content = JSON.parse(data) as Json;
        if (event === "message") {
          this.id = content["id"] as number;
          this.at = new Date().toISOString();
        } else if (event === "error") {
          throw problemOf(200, content);
        } else if (event === "done") {
          hasEnded = true;
          if ("status" in content) this.#take(content as unknown as Message);
          else this.#finish(partsOf(tool, content));
        } else {
          this.parts = withEvent(this.parts, event, content);
        }
      }
      if (!hasEnded) throw problemOf(0, { message: "the answer broke off", code: "INCOMPLETE", retryable: true });
    } catch (thrown) {
      if (running.signal.aborted || isCancelled(thrown)) return;
      this.state = "failed";
      this.problem = asProblem(thrown);
    }
  }

  /** Stop the answer. What is there stays. */
  stop(): void {
    if (this.state !== "asking") return;
    this.#running?.abort();
    this.state = "stopped";
  }

  /** Search one source again that failed. Its hits are added; the answer stays as it is. */
  async retry(failure: Failure): Promise<void> {
    this.retried = [...this.retried, failure.source];
    try {
      const query = this.parts.searchedFor ?? this.question;
      const found = await answer(api.POST("/api/rag/search", { body: { query, sources: [failure.source] } as never }));
      const { results, meta_data: about } = found as { results?: Json; meta_data?: Json };
      const known = new Set(this.parts.hits.map(nameOf));
      const hits = ((results?.["hits"] ?? []) as Json[]).filter((hit) => !known.has(nameOf(hit)));
      const failures = this.parts.failures.filter((each) => each !== failure);
      const again = partsOf("rag_ask", { meta_data: about ?? {} }).failures;
      this.parts = { ...this.parts, hits: [...this.parts.hits, ...hits], failures: [...failures, ...again] };
      this.hasNewHits ||= hits.length > 0;
    } catch (thrown) {
      const { message, code, hint } = asProblem(thrown);
      const again: Failure = { ...failure, message, code, ...(hint === undefined ? {} : { hint }) };
      this.parts = { ...this.parts, failures: this.parts.failures.map((each) => (each === failure ? again : each)) };
    } finally {
      this.retried = this.retried.filter((each) => each !== failure.source);
    }
  }

  /** Write the answer again, from the hits that there are now. */
  async rewrite(): Promise<void> {
    const hits = this.parts.hits;
    const query = this.parts.searchedFor ?? this.question;
    const { sources } = this.selection;
    await this.ask("/api/rag/ask", { query, ...(sources ? { sources } : {}), provided_context: { hits } });
  }

  #take(message: Message): void {
    this.id = message.id;
    this.at = message.at;
    if (message.answer !== undefined) {
      this.#finish(partsOf(message.tool === "rag_ask" ? "rag_ask" : "corpus_ask", message.answer));
    } else if (message.status === "failed") {
      this.state = "failed";
      this.problem = problemOf(0, message.error);
    } else {
      this.state = "unanswered";
    }
  }

  #finish(parts: Parts): void {
    // What failed is told while it streams, and in the metadata of some answers.
    this.parts = parts.failures.length > 0 ? parts : { ...parts, failures: this.parts.failures };
    this.state = "answered";
  }
}

const nameOf = (hit: Json) => JSON.stringify([hit["server"], hit["resourceId"], hit["id"]]);

/** What is on the page: the questions of a thread, or one that no thread keeps. */
export class Conversation {
  thread = $state.raw<Thread>();
  exchanges = $state.raw<readonly Exchange[]>([]);
  hasEarlier = $state(false);
  isLoading = $state(false);
  problem = $state.raw<Problem>();
  #loading: AbortController | undefined;

  get last(): Exchange | undefined {
    return this.exchanges.at(-1);
  }

  get isAsking(): boolean {
    return this.last?.state === "asking";
  }

  /** Forget everything. What is being answered in a thread goes on, and is kept there. */
  clear(): void {
    this.#loading?.abort();
    if (this.thread === undefined) this.last?.stop();
    this.thread = undefined;
    this.exchanges = [];
    this.hasEarlier = false;
    this.isLoading = false;
    this.problem = undefined;
  }

  /** Show a thread with its newest questions. */
  async open(id: string): Promise<void> {
    this.clear();
    await this.#load(id);
  }

  /** Show the questions before the first one. */
  async showEarlier(): Promise<void> {
    const first = this.exchanges[0]?.id;
    if (this.thread && first !== undefined) await this.#load(this.thread.id, first);
  }

  async #load(id: string, before?: number): Promise<void> {
    const loading = (this.#loading = new AbortController());
    this.isLoading = true;
    this.problem = undefined;
    try {
      const query = { limit: PAGE, ...(before === undefined ? {} : { before }) };
      const page = await answer(
        api.GET("/api/threads/{thread_id}/messages", {
          params: { path: { thread_id: id }, query },
          signal: loading.signal,
        }),
      );
      if (loading.signal.aborted) return;
      this.thread = page.thread;
      this.exchanges = [...page.messages.map((each) => Exchange.of(each)), ...this.exchanges];
      this.hasEarlier = page.has_more;
    } catch (thrown) {
      if (!loading.signal.aborted && !isCancelled(thrown)) this.problem = asProblem(thrown);
    } finally {
      if (this.#loading === loading) this.isLoading = false;
    }
  }

  /** Begin a thread; the questions asked from now on are kept in it. */
  async begin(question: string, selection: SentSelection): Promise<Thread> {
    const title = [...question.replaceAll(/\s+/g, " ")].slice(0, TITLE_CHARS).join("");
    const thread = await answer(api.POST("/api/threads", { body: { title, selection } }));
    this.clear();
    this.thread = thread;
    return thread;
  }

  /** Ask in the thread, or once if there is none; then nothing is kept. */
  ask(question: string, selection: SentSelection): Exchange {
    this.last?.stop();
    const exchange = new Exchange(question, selection);
    this.exchanges = this.thread === undefined ? [exchange] : [...this.exchanges, exchange];
    this.#send(exchange);
    return exchange;
  }

  /** Ask the same again: as a new question, unless the thread does not have it yet. */
  askAgain(exchange: Exchange): Exchange {
    if (exchange.id !== undefined) return this.ask(exchange.question, exchange.selection);
    this.#send(exchange);
    return exchange;
  }

  #send(exchange: Exchange): void {
    const { question, selection } = exchange;
    if (this.thread !== undefined) {
      void exchange.ask(`/api/threads/${this.thread.id}/messages`, { question, selection });
    } else if (selection.sources === undefined) {
      void exchange.ask("/api/corpus/ask", { question, ...selection });
    } else {
      void exchange.ask("/api/rag/ask", { query: question, sources: selection.sources });
    }
  }
}
