/** One list of what happened to a file: versions, events of the registry, calls. */

import type { IconName } from "../../components/icons.ts";
import type { CallRecord } from "./known.ts";

export interface Version {
  version: number;
  size: number;
  current: boolean;
  written_at: string;
  replaced_at?: string | undefined;
}

export interface Happened {
  id: string;
  at: string;
  icon: IconName;
  text: string;
  detail?: string;
  version?: Version;
  isFault?: boolean;
}

const READING = new Set([
  "read_file",
  "read_files",
  "stat_file",
  "hash_file",
  "permissions_file",
  "list_folder",
  "send_file",
  "file_read",
  "file_stat",
  "file_history",
  "file_list",
  "store_file_stat",
]);

const WRITING = new Set(["file_write", "file_restore", "file_rename"]);

const WORDS: Record<string, [string, IconName]> = {
  write_file: ["wrote", "edit"],
  patch_file: ["patched", "edit"],
  remove_file: ["deleted", "delete"],
  remove_folder: ["deleted the folder", "delete"],
  create_folder: ["created the folder", "folder"],
  receive_file: ["uploaded", "upload"],
  send_file: ["downloaded", "download"],
  move: ["moved or renamed", "move"],
  copy: ["copied", "copy"],
  read_file: ["read", "file"],
  stat_file: ["looked at", "file"],
  file_stat: ["looked at", "file"],
  store_stat: ["looked at", "file"],
  file_read: ["read", "file"],
  file_write: ["wrote", "edit"],
  file_delete: ["deleted", "delete"],
  file_rename: ["moved or renamed", "move"],
  file_restore: ["restored", "undo"],
  file_purge: ["purged the history of", "delete"],
};

/** Whether a call only looked. */
export function isReading(tool: string): boolean {
  return READING.has(tool) || /(^|_)(stat|read|list|history)(_|$)/.test(tool);
}

export function eventOfCall(call: CallRecord): Happened {
  const [word, icon] = WORDS[call.tool] ?? [`called ${call.tool}`, "activity" as const];
  const isFault = call.outcome !== "success";
  return {
    id: `call ${call.call_id}`,
    at: call.at,
    icon: isFault ? "warning" : icon,
    text: isFault ? `${call.principal} tried: ${call.tool}` : `${call.principal} ${word} it`,
    detail: isFault ? `refused with ${call.code ?? "an error"}` : call.tool,
    isFault,
  };
}

interface RegistryEvent {
  id: string;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

export function eventOfRegistry(event: RegistryEvent): Happened {
  const { data } = event;
  const said = (name: string) => (typeof data[name] === "string" ? data[name] : undefined);
  const rule = said("rule_id") ?? said("title") ?? "";
  const details = [said("severity"), said("status"), said("message"), said("reason")].filter(Boolean).join(" · ");
  const texts: Record<string, [string, IconName]> = {
    finding: [`Finding ${rule}`, "findings"],
    association: [`Linked to an issue ${rule}`, "issue"],
    file_metadata_update: ["The registry noted the file", "info"],
  };
  const [text, icon] = texts[event.type] ?? [event.type.replaceAll("_", " "), "info" as const];
  return {
    id: `registry ${event.id} ${event.timestamp}`,
    at: event.timestamp,
    icon,
    text: text.trim(),
    detail: details,
  };
}

export function eventOfVersion(version: Version): Happened {
  return {
    id: `version ${version.version}`,
    at: version.written_at,
    icon: "history",
    text: `Version ${version.version}`,
    version,
  };
}

const SAME_MS = 3000;

/** The versions, each with who wrote it, and the calls that are not told by a version already. */
export function withWriters(versions: readonly Version[], calls: readonly CallRecord[]): Happened[] {
  const left = new Set(calls);
  const told = versions.map((version): Happened => {
    const written = Date.parse(version.written_at);
    const writer = [...left].find(
      (call) =>
        call.outcome === "success" && WRITING.has(call.tool) && Math.abs(Date.parse(call.at) - written) < SAME_MS,
    );
    if (writer === undefined) return eventOfVersion(version);
    left.delete(writer);
    return { ...eventOfVersion(version), detail: `${writer.principal} · ${writer.tool}` };
  });
  return [...told, ...[...left].map(eventOfCall)];
}

/** The last first. */
export function inOrder(events: readonly Happened[]): Happened[] {
  return [...events].sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
}

/** The two versions that a parameter of the address names: `3..5`. */
export function versionsOf(text: string): [number, number] | undefined {
  const found = /^(\d{1,9})\.\.(\d{1,9})$/.exec(text);
  return found ? [Number(found[1]), Number(found[2])] : undefined;
}
