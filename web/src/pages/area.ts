/** The areas of the console. Each is a directory here, with a file `area.ts` that describes it. */

import type { Component } from "svelte";

import type { IconName } from "../components/icons.ts";
import type { Session } from "../lib/session.svelte.ts";

export interface Area {
  /** The name in the address: `/console/<name>`. */
  name: string;
  title: string;
  icon: IconName;
  /** Where it stands in the menu; undefined if it is reached from other areas only. */
  order?: number;
  /** The letter after `g` that leads to it. */
  key?: string;
  /** The area that the menu shows as the present one, if this one is not in it. */
  within?: string;
  /** Whether the page itself shows the path of its address. */
  hasCrumbs?: boolean;
  /** Whether this person may use it. */
  isOffered: (session: Session) => boolean;
  load: () => Promise<{ default: Component }>;
}

const found = import.meta.glob<{ area: Area }>("./*/area.ts", { eager: true });

export const AREAS: readonly Area[] = Object.values(found)
  .map((module) => module.area)
  .sort((one, other) => (one.order ?? 100) - (other.order ?? 100));

/** The areas that this person may use. */
export function areasFor(session: Session): Area[] {
  return AREAS.filter((area) => area.isOffered(session));
}

/** Whether the person may read at least one of these capabilities. */
export function mayRead(session: Session, ...capabilities: string[]): boolean {
  return capabilities.some((capability) => session.principal.capabilities.includes(capability));
}
