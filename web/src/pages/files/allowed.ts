/** What a person may do in a place, and otherwise why not. */

import type { Place } from "./place.ts";

export interface RootFacts {
  name: string;
  allowed_tools: readonly string[];
  read_only: boolean;
}

export type Action =
  | "list"
  | "read"
  | "stat"
  | "hash"
  | "permissions"
  | "write"
  | "create-folder"
  | "move"
  | "copy-from"
  | "copy-to"
  | "delete-file"
  | "delete-folder"
  | "find-names"
  | "find-content"
  | "restore"
  | "purge";

const TOOLS: Partial<Record<Action, string>> = {
  list: "list_folder",
  read: "read_file",
  stat: "stat_file",
  hash: "hash_file",
  permissions: "permissions_file",
  write: "write_file",
  "create-folder": "create_folder",
  move: "move",
  "copy-from": "copy",
  "copy-to": "copy",
  "delete-file": "remove_file",
  "delete-folder": "remove_folder",
  "find-names": "glob",
  "find-content": "grep",
};

/** The tools of the store that can be switched off. */
const STORE_TOOLS: Partial<Record<Action, string>> = {
  list: "file_list",
  read: "file_read",
  stat: "file_stat",
  write: "file_write",
  move: "file_rename",
  "copy-from": "file_read",
  "copy-to": "file_write",
  "delete-file": "file_delete",
  "delete-folder": "file_delete",
  "find-content": "file_search",
  restore: "file_restore",
  purge: "file_purge",
};

const CHANGES: ReadonlySet<Action> = new Set([
  "write",
  "create-folder",
  "move",
  "copy-to",
  "delete-file",
  "delete-folder",
  "restore",
  "purge",
]);

/** Why the person cannot do this there; undefined if nothing is known that forbids it. */
export function reasonAgainst(
  action: Action,
  place: Pick<Place, "kind" | "space">,
  {
    root,
    isReadOnlyPerson,
    offers,
  }: { root: RootFacts | undefined; isReadOnlyPerson: boolean; offers: (tool: string) => boolean },
): string | undefined {
  const isChange = CHANGES.has(action);
  if (isChange && isReadOnlyPerson) return "your key may only read";
  if (place.kind === "store") {
    if (action === "create-folder") return "a folder of a project exists as long as it holds a file: create a file";
    if (["hash", "permissions", "find-names"].includes(action)) return "files of a project have none";
  }
  const tool = (place.kind === "store" ? STORE_TOOLS : TOOLS)[action];
  if (tool === undefined) return undefined;
  if (!offers(tool)) return `${tool} is not offered here`;
  if (root === undefined) return undefined;
  if (isChange && root.read_only) return `the root ${root.name} is read-only`;
  if (root.allowed_tools.includes(tool) || root.allowed_tools.includes("*")) return undefined;
  return `the root ${root.name} does not allow ${tool}`;
}

/** Whether a tool is one of the store's that is switched off. */
export function isSwitchedOff(tool: string, offers: (tool: string) => boolean): boolean {
  return Object.values(STORE_TOOLS).includes(tool) && !offers(tool);
}
