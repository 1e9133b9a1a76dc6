/** Where a file is: a root or a project, and the path in it. And how names and sizes are written. */

import { addressOf, type Params } from "../../lib/address.ts";

export { shown } from "../../lib/visible.ts";

export interface Place {
  kind: "root" | "store";
  /** The name of the root or of the project. */
  space: string;
  /** Without a slash at its start and its end; empty for the top. */
  path: string;
}

/** The place in the segments of an address; undefined if they name none. */
export function placeOf(segments: readonly string[]): Place | undefined {
  const [kind, space, ...path] = segments;
  return (kind === "root" || kind === "store") && space ? { kind, space, path: path.join("/") } : undefined;
}

export function segmentsOf({ kind, space, path }: Place): string[] {
  return [kind, space, ...path.split("/")];
}

export function folderAddress(place: Place, params: Params = {}): string {
  return addressOf("files", segmentsOf(place), params);
}

export function fileAddress(place: Place, params: Params = {}): string {
  return addressOf("file", segmentsOf(place), params);
}

/** Unique among all places. */
export function idOf({ kind, space, path }: Place): string {
  return `${kind}:${space}/${path}`;
}

/** The path as the tools of the capability want it. */
export function toolPath({ kind, path }: Place): string {
  return kind === "store" && path !== "" ? `/${path}` : path;
}

export function nameOf(place: Place): string {
  return place.path === "" ? place.space : place.path.slice(place.path.lastIndexOf("/") + 1);
}

export function inside(folder: Place, name: string): Place {
  return { ...folder, path: [folder.path, name].filter(Boolean).join("/") };
}

/** The folder that a place is in; undefined for the top. */
export function parentOf(place: Place): Place | undefined {
  return place.path === ""
    ? undefined
    : { ...place, path: place.path.slice(0, Math.max(0, place.path.lastIndexOf("/"))) };
}

/** The place and everything above it, from the top. */
export function wayTo(place: Place): Place[] {
  const parent = parentOf(place);
  return [...(parent ? wayTo(parent) : []), place];
}

/** Whether this is the place, or in it. */
export function isWithin(place: Place, folder: Place): boolean {
  const isSameSpace = place.kind === folder.kind && place.space === folder.space;
  return isSameSpace && (folder.path === "" || place.path === folder.path || place.path.startsWith(`${folder.path}/`));
}

/** `\xe9` stands for a byte that is not UTF-8, and `\x5c` for a backslash that could be mistaken for one. */
const ESCAPED = /\\x([89a-f][0-9a-f]|5c)/;

/** The reference for `/api/raw` and `/api/files`: bytes that are not UTF-8 are percent-encoded like others. */
export function refOf({ kind, space, path }: Place): string {
  const encoded = path
    .split(new RegExp(ESCAPED, "g"))
    .map((part, index) => (index % 2 ? `%${part}` : encodeURIComponent(part)));
  return `${kind}://${encodeURIComponent(space)}/${encoded.join("").replaceAll("%2F", "/")}`;
}

/** The place that a reference names; undefined if it is in no root and no project. */
export function placeOfRef(ref: string): Place | undefined {
  const found = /^(root|store):\/\/([^/]+)\/(.*)$/.exec(ref);
  if (!found) return undefined;
  const [, kind, space = "", path = ""] = found;
  try {
    return { kind: kind as Place["kind"], space: decodeURIComponent(space), path: decodeURIComponent(path) };
  } catch {
    return undefined;
  }
}

const UNITS = ["kB", "MB", "GB", "TB"];

/** A number of bytes in words: `26 B`, `1.2 MB`. */
export function sizeText(bytes: number): string {
  let value = bytes;
  let unit = "B";
  for (const next of UNITS) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return `${unit === "B" || value >= 99.5 ? Math.round(value) : value.toFixed(1)} ${unit}`;
}

/** Why this cannot be the name of a file or a folder; undefined if it can. Several names make folders, too. */
export function wrongName(name: string, kind: Place["kind"]): string | undefined {
  if (name === "") return "Enter a name.";
  const parts = name.split("/");
  if (parts.some((part) => part === "")) return "A name is missing before or after a slash.";
  if (parts.some((part) => part === "." || part === "..")) return "“.” and “..” are no names.";
  if (name.includes("\0")) return "A name has no NUL character.";
  if (kind === "store" && !parts.every((part) => /^[A-Za-z0-9_.-]+$/.test(part))) {
    return "In a project, names have only A–Z, a–z, 0–9 and _ - .";
  }
  const bytes = new TextEncoder();
  if (parts.some((part) => bytes.encode(part).length > 255)) return "A name has at most 255 bytes.";
  return undefined;
}

/** The name that a copy beside `name` gets: `a (2).md`, in a project `a-2.md`. */
export function besideName(name: string, taken: ReadonlySet<string>, kind: Place["kind"]): string {
  const dot = name.lastIndexOf(".");
  const [stem, end] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
  for (let number = 2; ; number += 1) {
    const candidate = kind === "store" ? `${stem}-${number}${end}` : `${stem} (${number})${end}`;
    if (!taken.has(candidate)) return candidate;
  }
}
