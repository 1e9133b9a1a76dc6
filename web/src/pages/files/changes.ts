/** Changes of files that others make while a page shows them. */

import { onEvent } from "../../lib/events.svelte.ts";
import type { Place } from "./place.ts";

const CHANGING = new Set([
  "write_file",
  "patch_file",
  "remove_file",
  "create_folder",
  "remove_folder",
  "receive_file",
  "copy",
  "move",
  "file_write",
  "file_delete",
  "file_rename",
  "file_restore",
  "file_purge",
]);
/** Tools of which a call names one of two places. */
const WITH_TWO = new Set(["copy", "move", "file_rename"]);
const AFTER_MS = 400;

interface CallEvent {
  tool: string;
  root: string | null;
  path: string | null;
  outcome: string;
}

/** Call `changed`, soon and once, when something may have changed at places that `concerns` picks. Returns its end. */
export function onChange(
  space: () => Place | undefined,
  concerns: (path: string) => boolean,
  changed: () => void,
): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(changed, AFTER_MS);
  };
  const ends = [
    onEvent("call", (data) => {
      const call = data as CallEvent;
      const place = space();
      if (place === undefined || call.outcome !== "success" || !CHANGING.has(call.tool)) return;
      const path = (call.path ?? "").replace(/^\/|\/$/g, "");
      if (WITH_TWO.has(call.tool) || (call.root === place.space && concerns(path))) soon();
    }),
    onEvent("reconnected", soon),
  ];
  return () => {
    clearTimeout(timer);
    for (const end of ends) end();
  };
}
