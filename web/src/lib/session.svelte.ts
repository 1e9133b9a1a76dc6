/** Who is logged in. The cookie belongs to the browser; the proof, which every request needs too, is kept here. */

import type { paths } from "../api.d.ts";
import { Problem, problemOf } from "./problem.ts";

export type Session = paths["/api/session"]["get"]["responses"]["200"]["content"]["application/json"];

// Storage belongs to the scheme, the host and the port. A cookie knows no port.
const PROOF = "armarium.proof";
const CODE = "#in=";

class SessionState {
  /** The session; undefined before the first answer, and null if nobody is logged in. */
  current = $state.raw<Session | null | undefined>(undefined);
  /** Whether the session ended while the console was in use. What is on the screen stays until the next log-in. */
  hasExpired = $state(false);
  /** Why the last attempt failed. */
  problem = $state.raw<Problem | undefined>(undefined);
  /** Grows with every log-in, so that what failed for lack of a session is asked again. */
  generation = $state(0);

  /** Whether the server offers this tool to the caller. */
  offers(tool: string): boolean {
    return this.current?.principal.tools.includes(tool) ?? false;
  }

  /** Whether the caller may read this capability. */
  has(capability: string): boolean {
    return this.current?.principal.capabilities.includes(capability) ?? false;
  }
}

export const session = new SessionState();

/** The code of a log-in link, which is taken out of the address before anything else happens. */
export function takeCode(): string | null {
  if (!location.hash.startsWith(CODE)) return null;
  const code = location.hash.slice(CODE.length);
  history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}

/** Log in with the code of a link, or open the session that there is. */
export async function openSession(code: string | null): Promise<void> {
  // Whoever is logged in already does not need a link that is used up.
  if (code === null) session.problem = undefined;
  else if (await logIn({ code })) return;
  try {
    const response = await fetch("/api/session", { headers: proofHeader() });
    if (response.ok) enter((await response.json()) as Session);
    else if (response.status === 401) session.current ??= null;
    else fail(problemOf(response.status, await response.json().catch(() => null)));
  } catch {
    fail(unreachable());
  }
}

/** Log in with a key, or with the code of a link. */
export async function logIn(shown: { key: string } | { code: string }): Promise<boolean> {
  session.problem = undefined;
  try {
    const response = await fetch("/api/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(shown),
    });
    const body = await response.json().catch(() => null);
    if (!response.ok) {
      fail(problemOf(response.status, body));
      return false;
    }
    const { proof, ...opened } = body as Session & { proof: string };
    localStorage.setItem(PROOF, proof);
    // Somebody else must not see what the one before has on the screen.
    if (session.hasExpired && !isSamePerson(opened, session.current)) location.reload();
    enter(opened);
    return true;
  } catch {
    fail(unreachable());
    return false;
  }
}

function isSamePerson(opened: Session, before: Session | null | undefined): boolean {
  return opened.principal.name === before?.principal.name && opened.principal.is_owner === before.principal.is_owner;
}

/** Log out of this browser, or of all browsers. */
export async function logOut({ everywhere = false } = {}): Promise<void> {
  const path = everywhere ? "/api/sessions" : "/api/session";
  const response = await fetch(path, { method: "DELETE", headers: proofHeader() }).catch(() => undefined);
  if (response === undefined) throw unreachable();
  if (!response.ok && response.status !== 401) throw problemOf(response.status, await response.json());
  localStorage.removeItem(PROOF);
  // A new page: nothing of this one is left in memory.
  location.assign("/console");
}

/** Note that the server does not accept the session any more. */
export function noteExpiry(): void {
  if (session.current) session.hasExpired = true;
}

/** The header that every request of a session needs. Another tab may have logged in, so it is read each time. */
export function proofHeader(): Record<string, string> {
  const proof = localStorage.getItem(PROOF);
  return proof === null ? {} : { "x-armarium-proof": proof };
}

export function unreachable(): Problem {
  return new Problem("the server cannot be reached", {
    code: "UNREACHABLE",
    hint: "check that it runs: armarium up",
    retryable: true,
  });
}

function enter(opened: Session): void {
  session.problem = undefined;
  session.hasExpired = false;
  session.current = opened;
  session.generation += 1;
}

function fail(problem: Problem): void {
  session.problem ??= problem;
  session.current ??= null;
}
