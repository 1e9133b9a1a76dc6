/** What the palette finds besides commands, such as files by their name. */

import { SvelteSet } from "svelte/reactivity";

import type { IconName } from "../components/icons.ts";

export interface Found {
  title: string;
  /** Where it is, or what it is. */
  detail?: string;
  icon: IconName;
  /** An address of the console. */
  address: string;
}

export type Finder = (text: string, signal: AbortSignal) => Promise<Found[]>;

const finders = new SvelteSet<Finder>();

/** Let the palette ask this finder, too. Returns a function that ends it. */
export function offerFinder(finder: Finder): () => void {
  finders.add(finder);
  return () => void finders.delete(finder);
}

/** What all finders find. A finder that fails finds nothing. */
export async function find(text: string, signal: AbortSignal): Promise<Found[]> {
  const found = await Promise.allSettled([...finders].map((finder) => finder(text, signal)));
  return found.flatMap((each) => (each.status === "fulfilled" ? each.value : []));
}
