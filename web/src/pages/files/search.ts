/** Searches below a folder. */

import { answer, api } from "../../lib/api.ts";
import { patternOf, type NamePattern } from "./name-pattern.ts";
import { toolPath, type Place } from "./place.ts";

export type SearchKind = "names" | "content" | "passages";

export interface Hit {
  id: string;
  place: Place;
  isFolder: boolean;
  text: string;
  line?: number;
  /** The bytes of a passage: `120-480`. */
  bytes?: string;
  score?: number;
}

export interface Question {
  kind: SearchKind;
  text: string;
  /** Only files like this. */
  only: string;
  isExact: boolean;
}

export interface Found {
  hits: Hit[];
  next?: number | undefined;
  total?: number | undefined;
  note?: string | undefined;
}

const PAGE = 500;
const PASSAGES = 20;

export async function search(folder: Place, question: Question, offset: number, signal: AbortSignal): Promise<Found> {
  if (question.kind === "passages") return searchPassages(folder, question.text, signal);
  return question.kind === "names"
    ? searchNames(folder, patternOf(question.text), offset, signal)
    : searchContent(folder, question, offset, signal);
}

async function searchNames(folder: Place, pattern: NamePattern, offset: number, signal: AbortSignal): Promise<Found> {
  const found = await answer(
    api.GET("/api/sandbox/{root}/glob", {
      params: {
        path: { root: folder.space },
        query: { path: folder.path, type_filter: "all", max_results: PAGE, offset, ...pattern },
      },
      signal,
    }),
  );
  const hits = found.matches.map((match, index) => ({
    id: String(offset + index),
    place: { ...folder, path: match.path },
    isFolder: match.type === "directory",
    text: "",
  }));
  return { hits, next: found.next_offset, total: found.total_matches, note: noteOf(found) };
}

async function searchContent(folder: Place, question: Question, offset: number, signal: AbortSignal): Promise<Found> {
  const found = await answer(
    api.GET("/api/sandbox/{root}/grep", {
      params: {
        path: { root: folder.space },
        query: {
          path: folder.path,
          pattern: question.text,
          case_insensitive: !question.isExact,
          context_lines: 0,
          max_results: PAGE,
          offset,
          ...(question.only ? { glob_filter: question.only } : {}),
        },
      },
      signal,
    }),
  );
  const hits = found.matches.map((match, index) => ({
    id: String(offset + index),
    place: { ...folder, path: match.file },
    isFolder: false,
    text: match.line_content.trimStart(),
    line: match.line_number,
  }));
  return { hits, next: found.next_offset, total: found.total_matches, note: noteOf(found) };
}

function noteOf({ timed_out, note }: { timed_out: boolean; note?: string }): string | undefined {
  return timed_out ? "the time was over before everything was searched" : note;
}

async function searchPassages(folder: Place, text: string, signal: AbortSignal): Promise<Found> {
  const prefix = toolPath(folder);
  const found = await answer(
    api.GET("/api/store/{project}/search", {
      params: {
        path: { project: folder.space },
        query: { query: text, limit: PASSAGES, ...(prefix ? { path_prefix: `${prefix}/` } : {}) },
      },
      signal,
    }),
  );
  const hits = found.chunks.map((chunk, index) => ({
    id: String(index),
    place: { ...folder, path: chunk.file_path.replace(/^\//, "") },
    isFolder: false,
    text: chunk.chunk_content.trimStart(),
    bytes: `${chunk.file_seek_start_bytes}-${chunk.file_seek_end_bytes}`,
    score: chunk.score,
  }));
  return { hits, note: found.notice };
}
