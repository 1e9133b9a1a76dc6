/** What the person may do in the registry, and why not. */

import { answer, api } from "../../lib/api.ts";
import { Query } from "../../lib/query.svelte.ts";
import { session } from "../../lib/session.svelte.ts";

export type Role = "report" | "judge";

const DOES: Record<Role, string> = { report: "report findings", judge: "judge findings or change issues" };

export class Roles {
  readonly #own = new Query((signal) => answer(api.GET("/api/registry/roles", { signal })));
  /** Whether the registry itself cannot be changed; the page sets it. */
  isReadOnly = $state(false);

  load(): void {
    void this.#own.load();
  }

  /** Why the person may not do this; undefined if they may. */
  reasonNot(role: Role): string | undefined {
    if (this.isReadOnly) return "The registry is open for reading only: this user may not write its file.";
    if (session.current?.principal.read_only) return "Your key may only read.";
    if (this.#own.value && !this.#own.value.roles.includes(role)) {
      return `Your groups may not ${DOES[role]}. Ask the operator for a key that may.`;
    }
    return undefined;
  }
}
