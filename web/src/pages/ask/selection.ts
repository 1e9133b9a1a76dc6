/** Where a question is searched: in the address, in threads, and in requests. */

import type { Params } from "../../lib/address.ts";

export type Index = "auto" | "text" | "code" | "both";

export interface Selection {
  /** Ids of sources; none for the usual ones. */
  sources: string[];
  index: Index;
  /** A directory, or a pattern such as `src/**`. */
  path: string;
  types: string[];
}

/** A selection as threads keep it and requests have it. */
export interface SentSelection {
  sources?: string[];
  servers?: string[];
  index?: string;
  path_prefix?: string;
  file_glob?: string;
  doc_types?: string[];
}

/** The types of documents that can be searched in. */
export const TYPES: readonly [string, string][] = [
  ["md", "Markdown"],
  ["text", "Text"],
  ["code", "Code"],
  ["pdf", "PDF"],
  ["html", "Web page"],
  ["data", "Data"],
  ["word", "Word"],
  ["slides", "Slides"],
  ["sheet", "Sheet"],
  ["epub", "Book"],
  ["email", "Mail"],
];

const INDEXES: readonly string[] = ["auto", "text", "code", "both"];

export function fromParams(params: URLSearchParams): Selection {
  return {
    sources: params.getAll("src"),
    index: indexOf(params.get("in")),
    path: params.get("path") ?? "",
    types: params.getAll("type"),
  };
}

export function toParams({ sources, index, path, types }: Selection): Params {
  return { src: sources, in: index === "auto" ? null : index, path, type: types };
}

/** Whether nothing is selected. */
export function isUsual({ sources, index, path, types }: Selection): boolean {
  return sources.length === 0 && index === "auto" && path === "" && types.length === 0;
}

/** What is sent to ask the indexed directory. It is never empty: that would ask the usual sources. */
export function ofCorpus({ index, path, types }: Selection): SentSelection {
  const isPattern = /[*?[{]/.test(path);
  return {
    index,
    ...(path === "" ? {} : isPattern ? { file_glob: path } : { path_prefix: path }),
    ...(types.length === 0 ? {} : { doc_types: types }),
  };
}

/** The selection of a thread. `corpusSource` is the id under which the gateway knows the directory. */
export function fromSent(sent: SentSelection, corpusSource: string | undefined): Selection {
  const isCorpus = sent.index !== undefined && corpusSource !== undefined;
  return {
    sources: sent.sources ?? (isCorpus ? [corpusSource] : []),
    index: indexOf(sent.index ?? null),
    path: sent.file_glob ?? sent.path_prefix ?? "",
    types: sent.doc_types ?? [],
  };
}

/** The command that asks the same of the directory. */
export function commandOf(question: string, { index, path, types }: Selection): string {
  const { file_glob, path_prefix } = ofCorpus({ sources: [], index, path, types });
  const options = [
    ...(index === "auto" ? [] : ["--index", index]),
    ...(path_prefix === undefined ? [] : ["--path-prefix", quoted(path_prefix)]),
    ...(file_glob === undefined ? [] : ["--file-glob", quoted(file_glob)]),
    ...types.flatMap((type) => ["--doc-type", quoted(type)]),
  ];
  return ["dir2mcp ask", ...options, "--", quoted(question)].join(" ");
}

function indexOf(value: string | null): Index {
  return value !== null && INDEXES.includes(value) ? (value as Index) : "auto";
}

/** A text as a shell takes it whole. */
function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
