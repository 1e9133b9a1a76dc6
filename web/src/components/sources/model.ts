/** Servers with their sources, their states, and which sources are ticked. */

import type { IconName } from "../icons.ts";

/** `on_demand` is ours: nothing has been asked yet, and nothing is wrong. */
export type Status = "ready" | "action_required" | "locked" | "unavailable" | "on_demand";

export interface Source {
  /** The id at its server. */
  id: string;
  /** The id everywhere: `<server>:<id>`. */
  resourceId: string;
  name: string;
  sourceType?: string;
  authMode?: string;
  selected: boolean;
  status: Status;
  counts?: { docs?: number; chunks?: number };
  lastIndexed?: string;
}

export interface ServerError {
  code: string;
  message: string;
  hint?: string;
  retryable?: boolean;
}

export interface Server {
  server: string;
  displayName: string;
  description?: string;
  is_exclusive?: boolean;
  sources: Source[];
  status: Status;
  error?: ServerError;
  /** Of a server that an administrator may not use: the groups that may. */
  groups?: string[];
}

/** A server as it is known without asking it. */
export interface KnownServer {
  server: string;
  kind: "rag" | "generic";
  displayName: string;
  description?: string;
  state: string;
  authModes: string[];
  tools?: string[];
}

export interface Selection {
  /** Where it is from: `none` if nothing was ever selected. */
  from: string;
  selectedServers?: string[];
  selectedResourceIds?: string[];
  top_k?: number;
}

type Tone = "plain" | "ok" | "warn" | "bad";

export const BADGES: Record<Status, { icon: IconName; word: string; tone: Tone; title: string }> = {
  ready: { icon: "check", word: "connected", tone: "ok", title: "It answers" },
  action_required: { icon: "warning", word: "action required", tone: "warn", title: "It needs a token of yours" },
  locked: { icon: "lock", word: "locked", tone: "plain", title: "You may not use it" },
  unavailable: { icon: "close", word: "unavailable", tone: "bad", title: "It does not answer" },
  on_demand: { icon: "ondemand", word: "on demand", tone: "plain", title: "It is connected when it is first asked" },
};

/** The state of a connection in these words. */
export function statusOf(state: string): Status {
  if (state === "ready") return "ready";
  return state === "failing" || state === "open" ? "unavailable" : "on_demand";
}

/** What is said of a server: what it answered when it was asked last, and what became of its connection since. */
export function currentStatus(asked: Server, state: string | undefined): Status {
  if (asked.status !== "ready") return asked.status;
  const status = state === undefined || state === "connecting" ? asked.status : statusOf(state);
  const needsToken = asked.sources.some((source) => source.status === "action_required");
  return status === "unavailable" || !needsToken ? status : "action_required";
}

/** The ids of the sources that are asked. Selected sources that are not listed now stay selected. */
export function pickedOf(servers: readonly Server[], selection: Selection): Set<string> {
  const listed = servers.flatMap((server) => server.sources.map((source) => ({ server: server.server, source })));
  const { from, selectedServers, selectedResourceIds } = selection;
  if (from === "none" || (selectedServers === undefined && selectedResourceIds === undefined)) {
    return new Set(listed.filter(({ source }) => source.selected).map(({ source }) => source.resourceId));
  }
  const picked = new Set(selectedResourceIds);
  for (const { server, source } of listed) {
    const isInServers = selectedServers === undefined || selectedServers.includes(server);
    if (selectedResourceIds === undefined ? isInServers : isInServers && picked.has(source.id)) {
      picked.delete(source.id);
      picked.add(source.resourceId);
    }
  }
  return picked;
}

/** Whether all, some or none of these sources are ticked. */
export function ticked(sources: readonly Source[], picked: ReadonlySet<string>): "all" | "some" | "none" {
  const count = sources.filter((source) => picked.has(source.resourceId)).length;
  if (count === 0) return "none";
  return count === sources.length ? "all" : "some";
}

/** The servers and sources that have the text in their name or id; a server whose name has it keeps all its sources. */
export function matching(servers: readonly Server[], text: string): Server[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [...servers];
  const has = (...texts: (string | undefined)[]) => texts.some((each) => each?.toLowerCase().includes(wanted));
  return servers.flatMap((server) => {
    if (has(server.server, server.displayName)) return [server];
    const sources = server.sources.filter((source) => has(source.id, source.name, source.sourceType));
    return sources.length > 0 ? [{ ...server, sources }] : [];
  });
}

const KINDS: Record<string, string> = {
  api_key: "api_key",
  bearer: "bearer",
  capability: "capability_token",
  oauth: "oauth_token",
};

/** The parameter in which a server with this mode of authentication expects the token. */
export function kindFor(authMode: string | undefined): string {
  return KINDS[authMode ?? ""] ?? "bearer";
}

/** The time until a moment, in words. */
export function timeLeft(until: string, now: number): string {
  const seconds = Math.max(0, Math.round((Date.parse(until) - now) / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}
