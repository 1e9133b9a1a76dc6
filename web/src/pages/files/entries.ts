/** The entries of a folder: in which order, and which of them are shown. */

export interface Entry {
  name: string;
  kind: "folder" | "file" | "other";
  isLink: boolean;
  /** Why it is neither a file nor a folder. */
  note?: string | undefined;
  size?: number | undefined;
  modifiedAt?: string | undefined;
  /** In the store. */
  version?: number | undefined;
}

export type SortKey = "name" | "size" | "modified" | "kind";

export interface Order {
  by: SortKey;
  isDescending: boolean;
}

export const SORT_KEYS: readonly SortKey[] = ["name", "size", "modified", "kind"];

/** The order that a parameter of the address says: `size`, `-modified`. */
export function orderOf(text: string): Order {
  const by = text.replace(/^-/, "") as SortKey;
  return SORT_KEYS.includes(by) ? { by, isDescending: text.startsWith("-") } : { by: "name", isDescending: false };
}

// Much faster than localeCompare for each pair.
const byName = new Intl.Collator("en", { numeric: true, sensitivity: "variant" });

/** Folders first; what is equal is in the order of the names. */
export function sorted(entries: readonly Entry[], { by, isDescending }: Order): Entry[] {
  const sign = isDescending ? -1 : 1;
  const compared: Record<SortKey, (one: Entry, other: Entry) => number> = {
    name: () => 0,
    size: (one, other) => (one.size ?? -1) - (other.size ?? -1),
    modified: (one, other) => compare(one.modifiedAt ?? "", other.modifiedAt ?? ""),
    kind: (one, other) => compare(extensionOf(one.name), extensionOf(other.name)),
  };
  return [...entries].sort((one, other) => {
    const folders = Number(other.kind === "folder") - Number(one.kind === "folder");
    if (folders !== 0) return folders;
    return sign * (compared[by](one, other) || byName.compare(one.name, other.name) || compare(one.name, other.name));
  });
}

/** Those whose names have all these words; `*.py` and `a?c` are patterns. */
export function filtered(entries: readonly Entry[], text: string): readonly Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return entries;
  const tests = words.map((word) => {
    if (!/[*?]/.test(word)) return (name: string) => name.includes(word);
    const pattern = word
      .replace(/[.+^${}()|[\]\\]/g, "\\$&")
      .replaceAll("*", ".*")
      .replaceAll("?", ".");
    const whole = new RegExp(`^${pattern}$`, "s");
    return (name: string) => whole.test(name);
  });
  return entries.filter((entry) => {
    const name = entry.name.toLowerCase();
    return tests.every((test) => test(name));
  });
}

export function extensionOf(name: string): string {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? name.slice(dot + 1).toLowerCase() : "";
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
