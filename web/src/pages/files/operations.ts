/** What can be done with files and folders, in roots and in projects of the store alike. */

import { answer, api } from "../../lib/api.ts";
import { Problem } from "../../lib/problem.ts";
import { inside, nameOf, refOf, sizeText, toolPath, type Place } from "./place.ts";
import type { Entry } from "./entries.ts";

export interface Page {
  entries: Entry[];
  /** How many there are in all, if that is known. */
  total?: number | undefined;
  next?: string | undefined;
}

/** Entries of one request; a project lists fewer. */
const PAGE_OF_ROOT = 20_000;
const PAGE_OF_PROJECT = 1000;

export async function listFolder(place: Place, cursor: string | undefined, signal: AbortSignal): Promise<Page> {
  return place.kind === "root" ? listRootFolder(place, cursor, signal) : listProjectFolder(place, cursor, signal);
}

async function listRootFolder(place: Place, cursor: string | undefined, signal: AbortSignal): Promise<Page> {
  const found = await answer(
    api.GET("/api/sandbox/{root}/folder", {
      params: {
        path: { root: place.space },
        query: { path: place.path, limit: PAGE_OF_ROOT, ...(cursor ? { cursor } : {}) },
      },
      signal,
    }),
  );
  const entries = found.entries.map((entry): Entry => {
    const isLink = entry.type === "symlink";
    const target = isLink ? entry.target_type : entry.type;
    return {
      name: entry.name,
      kind: target === "directory" ? "folder" : target === "file" ? "file" : "other",
      isLink,
      note: noteOf(target),
      size: target === "directory" || isLink ? undefined : entry.size,
      modifiedAt: entry.modified_at,
    };
  });
  return { entries, total: found.total, next: found.next_cursor };
}

function noteOf(target: string | undefined): string | undefined {
  if (target === "external") return "a link that leads out of the root";
  if (target === "missing") return "a link to nothing";
  return target === "file" || target === "directory" ? undefined : "neither a file nor a folder";
}

async function listProjectFolder(place: Place, cursor: string | undefined, signal: AbortSignal): Promise<Page> {
  const asked = answer(
    api.GET("/api/store/{project}/files", {
      params: {
        path: { project: place.space },
        query: { path: toolPath(place), limit: PAGE_OF_PROJECT, ...(cursor ? { cursor } : {}) },
      },
      signal,
    }),
  );
  const found = await asked.catch((thrown: unknown) => {
    // A folder of a project goes with its last file.
    if (thrown instanceof Problem && thrown.code === "NOT_FOUND") return { entries: [], next_cursor: undefined };
    throw thrown;
  });
  const entries = found.entries.map((entry): Entry => {
    const isFile = entry.type === "FILE";
    return {
      name: entry.name,
      kind: isFile ? "file" : "folder",
      isLink: false,
      size: isFile ? entry.size : undefined,
      modifiedAt: isFile ? entry.updated_at : undefined,
      version: entry.version,
    };
  });
  return { entries, total: found.next_cursor ? undefined : entries.length, next: found.next_cursor };
}

export interface Stat {
  kind: "folder" | "file" | "other";
  size: number;
  modifiedAt: string;
  createdAt?: string | undefined;
  isLink: boolean;
  /** Where a link leads, if it stays inside the root. */
  target?: string | undefined;
  sha256?: string | undefined;
  version?: number | undefined;
  /** In the store: whether a search finds the file now. */
  isIndexed?: boolean | undefined;
  isPending?: boolean | undefined;
}

/** The metadata; undefined if there is nothing. */
export async function statOf(place: Place, signal?: AbortSignal, withHash = false): Promise<Stat | undefined> {
  if (place.kind === "store") {
    const stat = await answer(
      api.GET("/api/store/{project}/stat", {
        params: { path: { project: place.space }, query: { path: toolPath(place) } },
        ...(signal ? { signal } : {}),
      }),
    );
    if (!stat.exists) return undefined;
    return {
      kind: stat.type === "FILE" ? "file" : "folder",
      size: stat.size,
      modifiedAt: stat.updated_at,
      createdAt: stat.type === "FILE" ? stat.created_at : undefined,
      isLink: false,
      version: stat.version,
      isIndexed: stat.indexed,
      isPending: stat.pending,
    };
  }
  try {
    const stat = await answer(
      api.GET("/api/sandbox/{root}/stat", {
        params: { path: { root: place.space }, query: { path: place.path, include_sha256: withHash } },
        ...(signal ? { signal } : {}),
      }),
    );
    return {
      kind: stat.is_directory ? "folder" : stat.type === "file" || stat.is_symlink ? "file" : "other",
      size: stat.size,
      modifiedAt: stat.modified_at,
      createdAt: stat.created_at,
      isLink: stat.is_symlink,
      target: stat.target?.path,
      sha256: stat.sha256,
    };
  } catch (thrown) {
    if (thrown instanceof Problem && thrown.code === "NOT_FOUND") return undefined;
    throw thrown;
  }
}

export interface Text {
  content: string;
  size: number;
  isBinary: boolean;
  /** Whether bytes that are not UTF-8 were replaced, so that a save would destroy them. */
  isLossy?: boolean;
  /** What a save must find unchanged: the SHA-256 in a root, the version in a project. */
  state?: string | undefined;
  /** The part that is here, if it is not all. */
  part?: { from: number; to: number; total: number | undefined } | undefined;
}

/** Lines of one part of a file that is too large to be read whole. */
const LINES = 5000;

/** The text of a file. Of one that is too large, the part with this line. */
export async function readText(place: Place, line: number, signal?: AbortSignal): Promise<Text> {
  const on = signal ? { signal } : {};
  if (place.kind === "store") {
    const found = await answer(
      api.GET("/api/store/{project}/file", {
        params: { path: { project: place.space }, query: { path: toolPath(place) } },
        ...on,
      }),
    );
    return { content: found.content, size: found.size, isBinary: false, state: String(found.version) };
  }
  const ask = (query: { offset_lines?: number; limit_lines?: number }) =>
    answer(
      api.GET("/api/sandbox/{root}/file", {
        params: { path: { root: place.space }, query: { path: place.path, ...query } },
        ...on,
      }),
    );
  try {
    const found = await ask({});
    return {
      content: found.content,
      size: found.size,
      isBinary: found.binary,
      isLossy: isLossy(found),
      state: found.sha256,
    };
  } catch (thrown) {
    if (!(thrown instanceof Problem) || thrown.code !== "FILE_TOO_LARGE") throw thrown;
  }
  const from = Math.floor((Math.max(1, line) - 1) / LINES) * LINES + 1;
  const found = await ask({ offset_lines: from, limit_lines: LINES });
  const start = found.start_line ?? from;
  return {
    content: found.content,
    size: found.size,
    isBinary: found.binary,
    part: { from: start, to: found.end_line ?? start, total: found.lines_total },
  };
}

function isLossy(found: { binary: boolean; encoding: string }): boolean {
  return !found.binary && found.encoding !== "utf-8";
}

/** An earlier version of a file of a project. */
export async function readVersion(place: Place, version: number, signal?: AbortSignal): Promise<string> {
  const found = await answer(
    api.GET("/api/store/{project}/file", {
      params: { path: { project: place.space }, query: { path: toolPath(place), version } },
      ...(signal ? { signal } : {}),
    }),
  );
  return found.content;
}

/** Replace the text of a file that is still in this state. Gives the new state. */
export async function saveText(place: Place, content: string, state: string): Promise<string> {
  if (place.kind === "store") {
    const saved = await answer(
      api.PUT("/api/store/{project}/file", {
        params: { path: { project: place.space }, query: { path: toolPath(place) } },
        body: { content, if_version: Number(state) } as never,
      }),
    );
    return String(saved.version);
  }
  const saved = await answer(
    api.PUT("/api/sandbox/{root}/file", {
      params: { path: { root: place.space }, query: { path: place.path } },
      body: { content, if_match: state },
    }),
  );
  return saved.sha256 ?? "";
}

/** Create a file that does not exist yet. */
export async function createFile(place: Place, content = ""): Promise<void> {
  if (place.kind === "store") {
    await answer(
      api.PUT("/api/store/{project}/file", {
        params: { path: { project: place.space }, query: { path: toolPath(place) } },
        body: { content, create_only: true } as never,
      }),
    );
    return;
  }
  await answer(
    api.POST("/api/sandbox/{root}/file", {
      params: { path: { root: place.space }, query: { path: place.path } },
      body: { content },
    }),
  );
}

export async function createFolder(place: Place): Promise<void> {
  await answer(
    api.POST("/api/sandbox/{root}/folder", {
      params: { path: { root: place.space }, query: { path: place.path } },
    }),
  );
}

export async function remove(place: Place, isFolder: boolean): Promise<void> {
  if (place.kind === "store") {
    await answer(
      api.DELETE("/api/store/{project}/file", {
        params: { path: { project: place.space }, query: { path: toolPath(place), recursive: isFolder } },
      }),
    );
    return;
  }
  const named = { params: { path: { root: place.space }, query: { path: place.path } } };
  await answer(
    isFolder ? api.DELETE("/api/sandbox/{root}/folder", named) : api.DELETE("/api/sandbox/{root}/file", named),
  );
}

export class Taken extends Error {}

/** Move or rename. Throws `Taken` if something is there and may not be replaced. */
export async function move(from: Place, to: Place, isFolder: boolean, mayReplace: boolean): Promise<void> {
  if (from.kind === "store" && to.kind === "store" && from.space === to.space) {
    try {
      await answer(
        api.POST("/api/store/{project}/rename", {
          params: { path: { project: from.space } },
          body: { from_path: toolPath(from), to_path: toolPath(to), overwrite: mayReplace && !isFolder },
        }),
      );
    } catch (thrown) {
      if (!mayReplace && !isFolder && thrown instanceof Problem && thrown.code === "ALREADY_EXISTS") throw new Taken();
      throw thrown;
    }
    return;
  }
  if (from.kind === "root" && to.kind === "root") {
    await requireFree(to, isFolder, mayReplace);
    const moved = await answer(api.POST("/api/sandbox/move", { body: transfer(from, to) }));
    if (moved.complete === false) {
      throw new Problem(`“${nameOf(from)}” was moved only in part: ${moved.remaining?.length ?? 0} entries stayed`, {
        code: "INCOMPLETE",
        hint: "look at what stayed, and move it again",
      });
    }
    return;
  }
  await copy(from, to, isFolder, mayReplace);
  await remove(from, isFolder);
}

/** Copy. Throws `Taken` if something is there and may not be replaced. Returns what could not be copied. */
export async function copy(from: Place, to: Place, isFolder: boolean, mayReplace: boolean): Promise<readonly string[]> {
  if (from.kind === "root" && to.kind === "root") {
    await requireFree(to, isFolder, mayReplace);
    return (await answer(api.POST("/api/sandbox/copy", { body: transfer(from, to) }))).skipped;
  }
  if (isFolder) {
    throw new Problem("folders are copied between roots only", {
      code: "NOT_POSSIBLE",
      hint: "copy the files in it one by one",
    });
  }
  // Between a root and a project, or within a project, the page carries the text.
  const text = await readText(from, 1);
  if (text.isBinary || text.isLossy || text.part) {
    throw new Problem(`“${nameOf(from)}” is no text in UTF-8 of a size that a project takes (${sizeText(text.size)})`, {
      code: "NOT_POSSIBLE",
      hint: "download it",
    });
  }
  const present = await statOf(to, undefined, true);
  if (present === undefined) await createFile(to, text.content);
  else if (!mayReplace || present.kind !== "file") throw new Taken();
  else await saveText(to, text.content, stateOf(to, present));
  return [];
}

export function stateOf(place: Place, stat: Stat): string {
  return place.kind === "store" ? String(stat.version ?? "") : (stat.sha256 ?? "");
}

/** A root's tools replace files, and put what is moved into a folder that has the name. */
async function requireFree(to: Place, isFolder: boolean, mayReplace: boolean): Promise<void> {
  const present = await statOf(to);
  if (present === undefined) return;
  if (present.kind === "folder" || isFolder) {
    throw new Problem(`“${nameOf(to)}” exists there already`, {
      code: "ALREADY_EXISTS",
      hint: "choose another name",
    });
  }
  if (!mayReplace) throw new Taken();
}

function transfer(from: Place, to: Place) {
  return { source_root: from.space, source_path: from.path, dest_root: to.space, dest_path: to.path };
}

/** An address of the bytes for elements of this page, for ten minutes. */
export async function ticketOf(place: Place, version?: number): Promise<string> {
  const body = { ref: refOf(place), ...(version === undefined ? {} : { version }) };
  return (await answer(api.POST("/api/raw/tickets", { body }))).path;
}

/** Let the browser save the file. */
export async function download(place: Place, version?: number): Promise<void> {
  const link = document.createElement("a");
  link.href = await ticketOf(place, version);
  link.download = nameOf(place);
  link.click();
}

export async function restore(place: Place, version: number): Promise<number> {
  const restored = await answer(
    api.POST("/api/store/{project}/restore", {
      params: { path: { project: place.space } },
      body: { path: toolPath(place), version },
    }),
  );
  return restored.version;
}

export { inside };
