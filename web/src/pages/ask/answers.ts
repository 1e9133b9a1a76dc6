/** Answers of the corpus and of sources in one form: their text, the passages they rest on, and what failed. */

import type { Artifact, Display } from "../../components/sources/artifacts.ts";
import { shown } from "../../lib/visible.ts";
import { parsePlace, placeOf, suffixOf, type Lines, type Span } from "./spans.ts";

type Json = Record<string, unknown>;

export type FoundBy = "lexical" | "semantic" | "both";

export interface Passage {
  /** Its name in the address. */
  key: string;
  /** The path, or the title that its source gives it. */
  title: string;
  snippet: string;
  span?: Span;
  /** Its document in the indexed directory, if it is there. */
  document?: { path: string; chunkId?: number };
  uri?: string;
  source?: string;
  score?: number;
  foundBy?: FoundBy;
  type?: string;
  /** Its number in the answer, if the answer cites it. */
  number?: number;
}

export interface Failure {
  source: string;
  server: string;
  code: string;
  message: string;
  hint?: string;
}

/** What is known of an answer, as it arrives or as it was kept. */
export interface Parts {
  /** The tool that answers. */
  tool: "corpus_ask" | "rag_ask";
  phase: "searching" | "answering" | undefined;
  text: string;
  hits: Json[];
  /** Undefined until the answer is complete. */
  citations: Json[] | undefined;
  failures: Failure[];
  searchedFor?: string;
  isIndexComplete: boolean;
  /** The model that wrote it; null if it consists of sentences found. */
  model?: string | null;
  /** Why the search was by words only. */
  wordsOnly?: string;
  /** Whether it was too large to be kept whole. */
  isShortened: boolean;
  /** The files that servers attached to it, and which of them they want to be shown. */
  artifacts: Artifact[];
  display?: Display;
  /** How many files a kept answer has lost. */
  filesLeftOut: number;
}

export function noParts(tool: Parts["tool"]): Parts {
  return {
    tool,
    phase: "searching",
    text: "",
    hits: [],
    citations: undefined,
    failures: [],
    isIndexComplete: true,
    isShortened: false,
    artifacts: [],
    filesLeftOut: 0,
  };
}

/** What is known after an event of a stream. */
export function withEvent(parts: Parts, name: string, data: Json): Parts {
  switch (name) {
    case "progress":
      return { ...parts, phase: data["phase"] === "answering" ? "answering" : "searching" };
    case "hits":
      return {
        ...parts,
        hits: objects(data["hits"]),
        isIndexComplete: data["indexing_complete"] !== false,
        ...known("searchedFor", text(data["searched_for"])),
        ...known("wordsOnly", text(data["lexical_only"])),
      };
    case "text":
      return { ...parts, text: parts.text + (text(data["text"]) ?? "") };
    case "citations":
      return { ...parts, citations: objects(data["citations"]) };
    case "source_failed":
      return { ...parts, failures: [...parts.failures, failureOf(data)] };
    default:
      return parts;
  }
}

/** The parts of a whole answer of one of the two tools. */
export function partsOf(tool: Parts["tool"], answer: Json): Parts {
  const ofSources = tool === "rag_ask";
  const results = ofSources ? object(answer["results"]) : answer;
  const about = ofSources ? object(answer["meta_data"]) : answer;
  const model = text(about["model"]);
  return {
    tool,
    phase: undefined,
    text: text(results["answer"]) ?? "",
    hits: objects(results["hits"]),
    citations: objects(results["citations"]),
    failures: objects(about["errors"]).map(failureOf),
    isIndexComplete: answer["indexing_complete"] !== false && about["incomplete"] === undefined,
    model: model === undefined || model === "extractive" ? null : model,
    isShortened: results["shortened"] === true,
    artifacts: objects(answer["artifacts"]) as unknown as Artifact[],
    filesLeftOut: Number(answer["files_left_out"] ?? 0),
    ...(answer["display"] ? { display: answer["display"] as Display } : {}),
    ...known("searchedFor", text(results["searched_for"])),
    ...known("wordsOnly", text(answer["lexical_only"])),
  };
}

/** A citation in a text: as it is written, and what it cites. */
export interface Citation {
  raw: string;
  passage: Passage;
  /** The lines it names, if they are only a part of the passage. */
  lines?: Lines;
}

/** An answer with its passages: cited ones first, by their numbers, and then the others, best first. */
export interface Reading {
  passages: Passage[];
  /** The citation with which a text begins. */
  read: (text: string) => Citation | undefined;
}

export function readingOf(parts: Parts): Reading {
  return parts.tool === "rag_ask" ? readingOfSources(parts) : readingOfCorpus(parts);
}

/** What the corpus cites has a path and a place, so citations are known before the answer is complete. */
function readingOfCorpus(parts: Parts): Reading {
  const found = parts.hits.map(corpusPassage);
  const cited = (parts.citations ?? []).map(corpusPassage);
  const all = uniquely([...found, ...cited.filter((each) => !found.some((hit) => sameDocument(hit, each)))]);
  const read = (text: string): Citation | undefined => {
    if (!text.startsWith("[")) return undefined;
    for (const passage of all) {
      const { document, span } = passage;
      if (document === undefined || span === undefined || !text.startsWith(document.path, 1)) continue;
      const end = text.indexOf("]", document.path.length + 1);
      const written = end < 0 ? undefined : parsePlace(`-${text.slice(document.path.length + 1, end)}`)?.span;
      if (written === undefined || text.slice(0, end).includes("\n")) continue;
      const lines = linesWithin(written, span);
      if (lines !== undefined) return { raw: text.slice(0, end + 1), passage, lines };
      if (suffixOf(written) === suffixOf(span)) return { raw: text.slice(0, end + 1), passage };
    }
    return undefined;
  };
  let last = 0;
  const number = (passage: Passage) => {
    if (passage.number === undefined) passage.number = last += 1;
  };
  for (const { passage } of citationsIn(parts.text, read)) number(passage);
  for (const each of cited) number(all.find((passage) => sameDocument(passage, each)) ?? each);
  return { passages: citedFirst(all), read };
}

/** What the gateway cites has a number, which says nothing before the citations are there. */
function readingOfSources(parts: Parts): Reading {
  const all = parts.hits.map(sourcePassage);
  const byMarker = new Map<string, Passage>();
  for (const citation of parts.citations ?? []) {
    const marker = text(citation["marker"]) ?? "";
    const cited = sourcePassage(citation);
    const hit = all.find((each) => each.number === undefined && isSame(each, cited));
    const passage = hit ?? cited;
    if (hit === undefined) all.push(cited);
    passage.number = Number(/^\[(\d{1,4})\]$/.exec(marker)?.[1] ?? Number.NaN) || byMarker.size + 1;
    byMarker.set(marker, passage);
  }
  const read = (text: string): Citation | undefined => {
    const raw = /^\[\d{1,4}\]/.exec(text)?.[0];
    const passage = raw === undefined ? undefined : byMarker.get(raw);
    return raw === undefined || passage === undefined ? undefined : { raw, passage };
  };
  return { passages: citedFirst(uniquely(all)), read };
}

/** All citations in a text, in order. */
export function* citationsIn(text: string, read: Reading["read"]): Generator<Citation & { at: number }> {
  for (let at = text.indexOf("["); at >= 0; at = text.indexOf("[", at + 1)) {
    const citation = read(text.slice(at));
    if (citation === undefined) continue;
    yield { ...citation, at };
    at += citation.raw.length - 1;
  }
}

/** The answer as text, with the numbers of its citations, and a list of them. */
export function asText(question: string, parts: Parts, { passages, read }: Reading): string {
  let written = "";
  let from = 0;
  for (const { raw, passage, at } of citationsIn(parts.text, read)) {
    written += `${parts.text.slice(from, at)}[${passage.number}]`;
    from = at + raw.length;
  }
  const cited = passages.filter((each) => each.number !== undefined);
  const list = cited.map(
    (each) => `[${each.number}] ${describe(each)}${each.document || !each.uri ? "" : ` <${each.uri}>`}`,
  );
  return [question, written + parts.text.slice(from), list.join("\n")].filter((part) => part !== "").join("\n\n");
}

/** A passage in words. */
export function describe({ title, span }: Passage): string {
  return span === undefined ? shown(title) : `${shown(title)}, ${placeOf(span)}`;
}

/** The passage that an address names although no answer has it; it must be in the indexed directory. */
export function passageOfKey(key: string): Passage | undefined {
  const found = parsePlace(key.replace(/~\d+$/, ""));
  if (found === undefined) return undefined;
  return { key, title: found.path, snippet: "", span: found.span, document: { path: found.path } };
}

/** A passage of the corpus: a hit or a citation of `corpus_ask`. */
function corpusPassage(hit: Json): Passage {
  const path = text(hit["rel_path"]) ?? "";
  const span = hit["span"] as Span;
  const chunkId = hit["chunk_id"];
  return {
    key: path + suffixOf(span),
    title: path,
    snippet: text(hit["snippet"]) ?? "",
    span,
    document: { path, ...(typeof chunkId === "number" ? { chunkId } : {}) },
    ...known("score", numeric(hit["score"])),
    ...known("foundBy", text(hit["found_by"]) as FoundBy | undefined),
    ...known("type", text(hit["doc_type"])),
  };
}

/** A passage of a source: a hit or a citation of `rag_ask`. */
function sourcePassage(hit: Json): Passage {
  const provenance = object(hit["provenance"]);
  const span = spanOf(provenance["span"] ?? hit["offsets"]);
  const uri = text(hit["uri"]);
  const path = uri === undefined ? undefined : pathInCorpus(uri);
  const id = text(hit["id"]);
  const source = text(hit["resourceId"]) ?? text(hit["server"]) ?? "";
  const title = path ?? text(hit["title"]) ?? uri ?? source;
  const chunkId = path !== undefined && id !== undefined && /^\d+$/.test(id) ? Number(id) : undefined;
  return {
    key: path !== undefined && span !== undefined ? path + suffixOf(span) : `${source}/${id ?? uri ?? title}`,
    title,
    snippet: text(hit["snippet"]) ?? text(hit["chunk"]) ?? "",
    source,
    ...known("span", span),
    ...(path === undefined ? {} : { document: { path, ...known("chunkId", chunkId) } }),
    ...known("uri", uri),
    ...known("score", numeric(hit["score"])),
    ...known("type", text(provenance["doc_type"])),
  };
}

/** The path of a document of this server's own directory. */
function pathInCorpus(uri: string): string | undefined {
  const path = /^corpus:\/\/[^/]*\/(.+)$/s.exec(uri)?.[1];
  try {
    return path === undefined ? undefined : decodeURIComponent(path);
  } catch {
    return undefined;
  }
}

function spanOf(value: unknown): Span | undefined {
  const span = object(value);
  const has = (...names: string[]) => names.every((name) => typeof span[name] === "number");
  if (span["kind"] === "lines" && has("start_line", "end_line")) return span as unknown as Span;
  if (span["kind"] === "page" && has("page")) return span as unknown as Span;
  return span["kind"] === "time" && has("start_ms", "end_ms") ? (span as unknown as Span) : undefined;
}

function linesWithin(written: Span, span: Span): Lines | undefined {
  if (written.kind !== "lines" || span.kind !== "lines" || suffixOf(written) === suffixOf(span)) return undefined;
  const isWithin = span.start_line <= written.start_line && written.end_line <= span.end_line;
  return isWithin ? { from: written.start_line, to: written.end_line } : undefined;
}

const sameDocument = (one: Passage, other: Passage) =>
  one.document?.chunkId === other.document?.chunkId && one.title === other.title;

const isSame = (one: Passage, other: Passage) =>
  one.uri === other.uri &&
  one.source === other.source &&
  one.title === other.title &&
  JSON.stringify(one.span) === JSON.stringify(other.span);

/** Several passages can have the same place, such as a page. */
function uniquely(passages: Passage[]): Passage[] {
  const seen = new Map<string, number>();
  for (const passage of passages) {
    const count = (seen.get(passage.key) ?? 0) + 1;
    seen.set(passage.key, count);
    if (count > 1) passage.key += `~${count}`;
  }
  return passages;
}

function citedFirst(passages: Passage[]): Passage[] {
  const cited = passages.filter((each) => each.number !== undefined);
  cited.sort((one, other) => (one.number ?? 0) - (other.number ?? 0));
  return [...cited, ...passages.filter((each) => each.number === undefined)];
}

function failureOf(data: Json): Failure {
  return {
    source: text(data["source"]) ?? "",
    server: text(data["server"]) ?? "",
    code: text(data["code"]) ?? "UNKNOWN",
    message: text(data["message"]) ?? "it did not answer",
    ...known("hint", text(data["hint"])),
  };
}

function object(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function objects(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(object) : [];
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function numeric(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

function known<K extends string, V>(name: K, value: V | undefined): { [name in K]?: V } {
  return (value === undefined ? {} : { [name]: value }) as { [name in K]?: V };
}
