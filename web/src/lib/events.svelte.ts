/** The live events of the server: one stream for all listeners, which is opened again when it breaks. */

import { send } from "./api.ts";
import { eventsOf } from "./sse.ts";

const FIRST_DELAY_MS = 1000;
const MAX_DELAY_MS = 30_000;
const HIDDEN_MS = 30_000;

type Listener = (data: unknown, name: string) => void;

class Live {
  /** Whether events arrive now. */
  isConnected = $state(false);
  /** Whether the connection was lost, and events may be missing since. */
  isInterrupted = $state(false);
}

export const live = new Live();

const listeners = new Map<string, Set<Listener>>();
let running: AbortController | undefined;

/**
 * Call the listener with the data of every event of this name (`*`: of every event). Returns a function that ends it, so
 * that an effect can return it. `reconnected` is an event of our own: events may have been missed before it.
 */
export function onEvent(name: string, listener: Listener): () => void {
  const known = listeners.get(name) ?? new Set();
  known.add(listener);
  listeners.set(name, known);
  return () => void known.delete(listener);
}

/**
 * Open the stream, and keep it open until `closeEvents` is called or the session ends. A window that is hidden for a while
 * closes it: browsers open six connections to a server, for all windows together.
 */
export async function openEvents(): Promise<void> {
  closeEvents();
  const own = (running = new AbortController());
  let delay = FIRST_DELAY_MS;
  let wasConnected = false;
  while (!own.signal.aborted) {
    await untilVisible(own.signal);
    const hidden = new AbortController();
    const stopWatching = whenHidden(() => hidden.abort());
    try {
      const response = await send("/api/events", { signal: AbortSignal.any([own.signal, hidden.signal]) });
      // Without a session there is nothing to wait for; the next log-in opens the stream again.
      if (response.status === 401 || response.status === 403 || response.status === 404) return;
      if (response.ok && response.body !== null) {
        delay = FIRST_DELAY_MS;
        live.isConnected = true;
        live.isInterrupted = false;
        if (wasConnected) publish("reconnected", null);
        wasConnected = true;
        for await (const { event, data } of eventsOf(response.body)) publish(event, parsed(data));
      }
    } catch {
      // Tried again below.
    } finally {
      stopWatching();
    }
    if (own.signal.aborted) return;
    live.isConnected = false;
    if (hidden.signal.aborted) continue;
    live.isInterrupted = wasConnected;
    await wait(delay * (0.5 + Math.random() / 2), own.signal);
    delay = Math.min(delay * 2, MAX_DELAY_MS);
  }
}

export function closeEvents(): void {
  running?.abort();
  running = undefined;
  live.isConnected = false;
  live.isInterrupted = false;
}

function publish(name: string, data: unknown): void {
  for (const listener of [...(listeners.get(name) ?? []), ...(listeners.get("*") ?? [])]) listener(data, name);
}

function parsed(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return data;
  }
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Call this once the window has been hidden for a while. Returns a function that ends it. */
function whenHidden(run: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const watch = () => {
    clearTimeout(timer);
    timer = document.hidden ? setTimeout(run, HIDDEN_MS) : undefined;
  };
  document.addEventListener("visibilitychange", watch);
  watch();
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", watch);
  };
}

function untilVisible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check, { once: true });
    check();
  });
}
