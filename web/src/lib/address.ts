/** Addresses of the console: the area, the path below it, and what filters. */

export const ROOT = "/console";

export interface Address {
  /** The area, such as `files`; empty at the start page. */
  area: string;
  /** The decoded segments after the area. */
  path: string[];
  params: URLSearchParams;
}

export type Params = Record<string, string | number | boolean | readonly string[] | null | undefined>;

/** `addressOf("file", ["root", "workspace", "a b.py"], { L: "10-42" })` is `/console/file/root/workspace/a%20b.py?L=10-42`. */
export function addressOf(area: string, path: readonly string[] = [], params: Params = {}): string {
  const segments = [area, ...path].filter((segment) => segment !== "").map(encodeURIComponent);
  const query = withParams(new URLSearchParams(), params).toString();
  return [ROOT, ...segments].join("/") + (query === "" ? "" : `?${query}`);
}

/** The address of the console that a URL is. */
export function parseAddress(url: URL): Address {
  const [area = "", ...path] = url.pathname
    .slice(ROOT.length)
    .split("/")
    .filter((segment) => segment !== "")
    .map(decoded);
  return { area, path, params: url.searchParams };
}

/** Whether this is an address of the console. */
export function isOwn(url: URL, origin: string): boolean {
  return url.origin === origin && (url.pathname === ROOT || url.pathname.startsWith(`${ROOT}/`));
}

/** A copy with these parameters; null, undefined, false and empty texts and lists remove one. */
export function withParams(params: URLSearchParams, changes: Params): URLSearchParams {
  const changed = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    changed.delete(name);
    if (value === null || value === undefined || value === false || value === "") continue;
    for (const each of Array.isArray(value) ? (value as string[]) : [String(value)]) changed.append(name, each);
  }
  return changed;
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
