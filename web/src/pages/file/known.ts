/** What the capabilities know of one file. */

import { answer, api } from "../../lib/api.ts";
import type { paths } from "../../api.d.ts";

export interface Known {
  sandbox?: { paths: { root: string; path: string; type: string; size: number; modified_at: string; ref: string }[] };
  corpus?: { rel_path: string; ref: string; doc_type: string; status: string };
  registry?: { id: string; path: string; findings: { total_findings: number; open_findings: number } };
  store?: { project: string; path: string; ref: string };
}

export type Finding =
  paths["/api/registry/findings"]["get"]["responses"]["200"]["content"]["application/json"]["results"][number];

export interface CallRecord {
  at: string;
  call_id: string;
  tool: string;
  principal: string;
  root: string | null;
  path: string | null;
  outcome: string;
  code: string | null;
}

const MOST_FINDINGS = 1000;
const MOST_EVENTS = 200;

export async function knownOf(ref: string, signal: AbortSignal): Promise<Known> {
  return (await answer(api.GET("/api/files", { params: { query: { ref } }, signal }))).known as Known;
}

export async function findingsOf(fileId: string, signal: AbortSignal): Promise<{ total: number; all: Finding[] }> {
  const query = { file_id: fileId, limit: MOST_FINDINGS };
  const found = await answer(api.GET("/api/registry/findings", { params: { query }, signal }));
  return { total: found.total, all: found.results };
}

export async function timelineOf(fileId: string, signal: AbortSignal) {
  const params = { path: { file_id: fileId }, query: { limit: MOST_EVENTS } };
  return (await answer(api.GET("/api/registry/files/{file_id}/timeline", { params, signal }))).results;
}

/** The calls about a path, the last ones first; of what is below it, too, unless it is a file. */
export async function callsAbout(
  space: string,
  path: string,
  cursor: string | undefined,
  signal: AbortSignal,
): Promise<{ calls: CallRecord[]; next?: string | undefined }> {
  const query = { root: [space], path_prefix: path, limit: MOST_EVENTS, ...(cursor ? { cursor } : {}) };
  const found = await answer(api.GET("/api/audit", { params: { query }, signal }));
  const calls = (found.calls as unknown as CallRecord[]).filter((call) => call.path === path);
  return { calls, next: found.next };
}
