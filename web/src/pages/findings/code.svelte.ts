/** The text of the file that a finding is in, from whichever capability shows it to this person. */

import { answer, api } from "../../lib/api.ts";
import { Problem } from "../../lib/problem.ts";
import { session } from "../../lib/session.svelte.ts";
import { referenceOf, type Finding } from "./words.ts";

export interface Code {
  text: string;
  /** The line of the file that the text begins with. */
  firstLine: number;
  /** The root that has the file; undefined if it is the corpus. */
  root?: string | undefined;
}

/** A place that has the files of the project at the same paths. */
type Place = { root: string } | "corpus";

const AROUND = 400;

let known: { generation: number; place: Place } | undefined;

/** The text of the file of a finding. Throws a `Problem` if nobody shows it. */
export async function codeOf(finding: Finding, signal: AbortSignal): Promise<Code> {
  const place = await placeFor(finding, signal);
  if (place === undefined) {
    throw new Problem("no root or corpus that you may read has this file", {
      code: "NO_CODE",
      hint: "serve the project's directory: armarium up DIR",
    });
  }
  return place === "corpus" ? inCorpus(finding, signal) : inRoot(finding, place.root, signal);
}

async function inRoot(finding: Finding, root: string, signal: AbortSignal): Promise<Code> {
  const read = (lines: { offset_lines?: number; limit_lines?: number }) =>
    answer(
      api.GET("/api/sandbox/{root}/file", {
        params: { path: { root }, query: { path: finding.file_path, ...lines } },
        signal,
      }),
    );
  try {
    const file = await read({});
    if (file.binary) throw new Problem("the file is not text", { code: "BINARY" });
    return { text: file.content, firstLine: 1, root };
  } catch (thrown) {
    const line = finding.line_start;
    if (!(thrown instanceof Problem) || thrown.status !== 413 || line === null) throw thrown;
    // A large file: the part around the finding.
    const before = Math.max(0, line - 1 - AROUND);
    const part = await read({ offset_lines: before, limit_lines: 2 * AROUND });
    return { text: part.content, firstLine: before + 1, root };
  }
}

async function inCorpus(finding: Finding, signal: AbortSignal): Promise<Code> {
  const first = Math.max(1, (finding.line_start ?? 1) - AROUND);
  const query = { rel_path: finding.file_path, start_line: first, end_line: first + 2 * AROUND };
  const part = await answer(api.GET("/api/corpus/file", { params: { query }, signal }));
  return { text: part.content, firstLine: first };
}

/** Where the files of the project are: the place whose file at this path is the finding's file. */
async function placeFor(finding: Finding, signal: AbortSignal): Promise<Place | undefined> {
  if (known?.generation === session.generation) return known.place;
  for (const place of await places(signal)) {
    const segments = finding.file_path.split("/");
    const ref = place === "corpus" ? referenceOf("corpus", segments) : referenceOf("root", [place.root, ...segments]);
    try {
      const described = await answer(api.GET("/api/files", { params: { query: { ref } }, signal }));
      if (described.known["registry"]?.["id"] !== finding.file_id) continue;
    } catch (thrown) {
      if (thrown instanceof Problem) continue;
      throw thrown;
    }
    known = { generation: session.generation, place };
    return place;
  }
  return undefined;
}

async function places(signal: AbortSignal): Promise<Place[]> {
  const roots = session.has("sandbox") ? await answer(api.GET("/api/sandbox/roots", { signal })) : { roots: [] };
  const readable = roots.roots.filter((root) => root.allowed_tools.includes("read_file"));
  return [...readable.map((root) => ({ root: root.name })), ...(session.has("corpus") ? (["corpus"] as const) : [])];
}
