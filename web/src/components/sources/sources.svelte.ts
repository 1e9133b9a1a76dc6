/** The servers and sources of a person, their tokens, and the sources that are asked: by default, or in one thread. */

import { SvelteMap } from "svelte/reactivity";

import { answer, api } from "../../lib/api.ts";
import { onEvent } from "../../lib/events.svelte.ts";
import { asProblem, Problem } from "../../lib/problem.ts";
import { Query } from "../../lib/query.svelte.ts";
import { toastProblem } from "../../lib/toasts.svelte.ts";
import { currentStatus, pickedOf, statusOf, type KnownServer, type Selection, type Server } from "./model.ts";

export interface Connection {
  server: string;
  kind: string;
  expires_at: string;
  session?: string;
}

/** Where ticks are kept that are not the default of the person, such as those of a thread. */
export interface Kept {
  /** The ids of the ticked sources; undefined while the default of the person counts. */
  ids: () => readonly string[] | undefined;
  /** Keep these, or, if undefined, let the default count. */
  keep: (ids: string[] | undefined) => Promise<unknown>;
}

export class Sources {
  /** What is known without asking any server: quick. */
  readonly known: Query<KnownServer[]>;
  /** What the servers list now. */
  readonly asked: Query<Server[]>;
  readonly connections: Query<Connection[]>;
  readonly selection: Query<Selection>;

  /** The servers, first as far as they are known and then as they answered. */
  readonly servers: readonly Server[] = $derived.by(() => this.#servers());
  /** Servers that only offer tools. */
  readonly toolServers: readonly KnownServer[] = $derived.by(() =>
    (this.known.value ?? []).filter((each) => each.kind === "generic"),
  );
  /** The ids of the ticked sources. */
  readonly picked: ReadonlySet<string> = $derived.by(
    () => this.#chosen ?? pickedOf(this.asked.value ?? [], this.#selected),
  );
  /** Whether the ticks are other ones than the defaults. */
  readonly isChosen: boolean = $derived.by(() => this.#selected.from === (this.#kept ? "kept" : "default"));
  /** Whether ticks can be changed: what is selected must be known first. */
  readonly isReady: boolean = $derived.by(() => this.asked.value !== undefined && this.selection.value !== undefined);

  readonly #kept: Kept | undefined;
  readonly #selected: Selection = $derived.by(() => {
    const ids = this.#kept?.ids();
    if (ids !== undefined) return { from: "kept", selectedResourceIds: [...ids] };
    return this.selection.value ?? { from: "none" };
  });
  readonly #states = new SvelteMap<string, string>();
  /** What the person ticked, until the server has stored it. */
  #chosen = $state.raw<ReadonlySet<string>>();
  #isStoring = false;

  /** By default, the ticks are the default of the person, which the server stores. */
  constructor(kept?: Kept) {
    this.#kept = kept;
    this.known = new Query(async (signal) => {
      const found = await answer(api.GET("/api/gateway/servers", { signal }));
      return (found as unknown as { servers: KnownServer[] }).servers;
    });
    this.asked = new Query(async (signal) => {
      const found = await answer(api.GET("/api/config", { signal }));
      return (found as unknown as { rag_servers: Server[] }).rag_servers;
    });
    this.connections = new Query(
      async (signal) => (await answer(api.GET("/api/rag/connections", { signal }))).connections,
    );
    this.selection = new Query(async (signal) => {
      const found = await answer(api.GET("/api/rag/selection", { signal }));
      return found as unknown as Selection;
    });
  }

  /** Load everything. */
  load(): void {
    this.#states.clear();
    for (const each of [this.known, this.asked, this.connections, this.selection]) void each.load();
  }

  /** Keep it current by events. Returns a function that ends it. */
  follow(): () => void {
    const ends = [
      onEvent("server_registry_updated", () => this.load()),
      onEvent("reconnected", () => this.load()),
      onEvent("server_health_changed", (data) => {
        const { server, state } = data as { server: string; state: string };
        this.#states.set(server, state);
        const before = this.asked.value?.find((each) => each.server === server);
        // It answers again: its sources can be listed.
        if (state === "ready" && before?.status === "unavailable") void this.asked.load();
      }),
    ];
    return () => ends.forEach((end) => end());
  }

  /** The token of the person for a server. */
  connectionOf(server: string): Connection | undefined {
    return this.connections.value?.find((each) => each.server === server && each.session === undefined);
  }

  /** Tick or untick sources, and store that. What is ticked last counts. */
  pick(ids: Iterable<string>, isPicked: boolean): void {
    const picked = new Set(this.picked);
    for (const id of ids)
      if (isPicked) picked.add(id);
      else picked.delete(id);
    this.#chosen = picked;
    void this.#store();
  }

  /** Forget what was ticked, so that the defaults count again. */
  async reset(): Promise<void> {
    try {
      if (this.#kept) await this.#kept.keep(undefined);
      else await answer(api.DELETE("/api/rag/selection"));
    } catch (thrown) {
      toastProblem(asProblem(thrown));
    }
    await Promise.all([this.selection.load(), this.asked.load()]);
  }

  /** Store a token for a server. Throws a `Problem` if the server does not accept it. */
  async connect(server: string, kind: string, token: string): Promise<void> {
    const body = { kind: kind as "bearer", token };
    await answer(api.POST("/api/rag/connections/{server}", { params: { path: { server } }, body }));
    await Promise.all([this.asked.load(), this.connections.load()]);
    const now = this.servers.find((each) => each.server === server);
    if (now?.status === "action_required" && now.error) {
      throw new Problem(`${now.displayName} does not accept this token`, {
        code: now.error.code,
        hint: "it may be for another server, or expired",
      });
    }
  }

  /** Forget the token for a server. */
  async disconnect(connection: Connection): Promise<void> {
    const { server, session } = connection;
    const query = session === undefined ? {} : { session };
    try {
      await answer(api.DELETE("/api/rag/connections/{server}", { params: { path: { server }, query } }));
    } catch (thrown) {
      toastProblem(asProblem(thrown));
    }
    await Promise.all([this.asked.load(), this.connections.load()]);
  }

  async #store(): Promise<void> {
    if (this.#isStoring) return;
    this.#isStoring = true;
    try {
      let stored: ReadonlySet<string> | undefined;
      while (stored !== this.#chosen) {
        stored = this.#chosen;
        const ids = [...(stored ?? [])];
        if (this.#kept) await this.#kept.keep(ids);
        else this.selection.value = await storeDefault(ids, this.selection.value?.top_k);
      }
    } catch (thrown) {
      toastProblem(asProblem(thrown));
      await this.selection.load();
    } finally {
      this.#isStoring = false;
      this.#chosen = undefined;
    }
  }

  #servers(): Server[] {
    const known = this.known.value ?? [];
    if (this.asked.value === undefined) {
      return known
        .filter((each) => each.kind === "rag")
        .map((each) => ({ ...each, sources: [], status: statusOf(each.state) }));
    }
    return this.asked.value.map((each) => ({
      ...each,
      status: currentStatus(each, this.#states.get(each.server)),
    }));
  }
}

async function storeDefault(ids: string[], top_k: number | undefined): Promise<Selection> {
  const body = { selectedResourceIds: ids, ...(top_k === undefined ? {} : { top_k }) };
  return (await answer(api.PUT("/api/rag/selection", { body }))) as unknown as Selection;
}
