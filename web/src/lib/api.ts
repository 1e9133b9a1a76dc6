/** Calls of the JSON API, typed by its own description. */

import createClient from "openapi-fetch";

import type { paths } from "../api.d.ts";
import { isCancelled, Problem, problemOf } from "./problem.ts";
import { noteExpiry, proofHeader, unreachable } from "./session.svelte.ts";
import { eventsOf, type ServerEvent } from "./sse.ts";

/** `api.GET("/api/…", { params: { path, query }, signal })`. Wrap it in `answer`. */
export const api = createClient<paths>({ fetch: (request) => send(request) });

/** What the server answered. Throws a `Problem` if the call failed. */
export async function answer<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) throw problemOf(response.status, error);
  return data as T;
}

/** Send a request of the session. Use it for what is not JSON; otherwise `api`. */
export async function send(request: Request | string, init: RequestInit = {}): Promise<Response> {
  const sent = new Request(request, init);
  for (const [name, value] of Object.entries(proofHeader())) sent.headers.set(name, value);
  let response: Response;
  try {
    response = await fetch(sent);
  } catch (thrown) {
    if (isCancelled(thrown)) throw thrown;
    throw unreachable();
  }
  if (response.status === 401 && (await isEndOfSession(response.clone()))) noteExpiry();
  return response;
}

/** Whether our session ended. Servers behind the gateway may want a token, too. */
async function isEndOfSession(response: Response): Promise<boolean> {
  return problemOf(response.status, await response.json().catch(() => null)).code === "UNAUTHORIZED";
}

/** The events with which the server answers a POST. Throws a `Problem` if it does not answer with events. */
export async function* streamed(path: string, body: unknown, signal?: AbortSignal): AsyncGenerator<ServerEvent> {
  const response = await send(path, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
  if (!response.ok || response.body === null) {
    throw problemOf(response.status, await response.json().catch(() => null));
  }
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream")) {
    throw new Problem("the server did not answer with events", { code: "UNEXPECTED_ANSWER", status: response.status });
  }
  yield* eventsOf(response.body);
}
