/** Findings and issues in words, and the filter that an address is. */

import type { components } from "../../api.d.ts";

export type Finding = components["schemas"]["search_findings.answer.Finding"];
export type FindingFilter = components["schemas"]["judge_findings.arguments.FindingFilterArgs"];
export type FindingStatus = Finding["status"];
export type Scanned = components["schemas"]["import_report_file.answer.Scanned"];

export const STATUS_WORDS: Record<string, string> = {
  open: "open",
  fixed: "fixed",
  false_positive: "false positive",
  in_progress: "in progress",
  closed: "closed",
};

/** The names of filters in the address, which are also those in the query bar. */
export const FACETS = ["status", "severity", "source", "rule", "path"] as const;

const STATUSES: readonly string[] = ["open", "fixed", "false_positive"];
const SEVERITIES: readonly string[] = ["critical", "high", "medium", "low", "info"];

/** The filter in an address. Values that no finding can have are left out. */
export function filterIn(params: URLSearchParams): FindingFilter {
  const all = (name: string) => params.getAll(name).filter((value) => value !== "");
  const status = all("status").filter((value) => STATUSES.includes(value)) as FindingFilter["status"];
  const severity = all("severity").filter((value) => SEVERITIES.includes(value)) as FindingFilter["severity"];
  const [source, rule] = [all("source"), all("rule")];
  const [path, text, issue] = [all("path").at(-1), params.get("q") ?? "", params.get("issue") ?? ""];
  return {
    ...(status?.length ? { status } : {}),
    ...(severity?.length ? { severity } : {}),
    ...(source.length > 0 ? { scan_source: source } : {}),
    ...(rule.length > 0 ? { rule_id: rule } : {}),
    ...(path ? { path_prefix: path } : {}),
    ...(text ? { text: text.slice(0, 200) } : {}),
    ...(issue ? { issue_id: issue } : {}),
  };
}

/** `1 finding`, `4,212 findings`. */
export function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Where a finding is: `src/db.py:88`. */
export function placeOf(finding: Pick<Finding, "file_path" | "line_start">): string {
  return finding.line_start === null ? finding.file_path : `${finding.file_path}:${finding.line_start}`;
}

interface Change {
  old_value?: unknown;
  new_value?: unknown;
}

export interface Happened {
  type: string;
  data: Record<string, unknown>;
}

/** What happened to a finding, as a sentence without its subject. */
export function findingEvent({ type, data }: Happened): string {
  const changes = (data["changes"] ?? {}) as Record<string, Change>;
  const status = changes["status"];
  if (data["undoes"] !== undefined) return `undone: ${word(status?.new_value ?? data["status"])} again`;
  if (type === "finding_created") return `found by ${String(data["scan_source"])}`;
  if (data["issue_id"] !== undefined) return `became the issue ${String(data["issue_id"])}`;
  if (data["reopened"] === true) return "found again, and open again";
  if (status !== undefined) return `${word(status.old_value)} → ${word(status.new_value)}`;
  if (changes["suppressed"] !== undefined) return `${word(data["status"])}, as the scanner says`;
  if (type === "finding_closed") {
    return data["reason"] === "file_removed" ? "fixed: the file was removed" : "fixed: no longer found";
  }
  const names = Object.keys(changes).map((name) => name.replaceAll("_", " "));
  return names.length > 0 ? `${names.join(", ")} changed` : "changed";
}

/** What happened to an issue. */
export function issueEvent({ type, data }: Happened): string {
  switch (type) {
    case "issue_created":
      return data["finding_id"] === undefined ? "created the issue" : "made the issue from a finding";
    case "commented":
      return "commented";
    case "file_linked":
      return `linked ${String(data["path"])}`;
    case "file_unlinked":
      return `unlinked ${String(data["path"])}`;
    default: {
      const changes = Object.entries((data["changes"] ?? {}) as Record<string, Change>);
      return changes.map(([name, change]) => changeOf(name, change)).join("; ") || "changed the issue";
    }
  }
}

function changeOf(name: string, { old_value, new_value }: Change): string {
  const shown = name.replaceAll("_", " ");
  if (name === "body") return "changed the description";
  if (name === "priority") return `set the priority from P${String(old_value)} to P${String(new_value)}`;
  return `set the ${shown} from ${textOf(old_value)} to ${textOf(new_value)}`;
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.length > 0 ? value.join(", ") : "nothing";
  return value === "" || value === null || value === undefined ? "nothing" : word(value);
}

function word(value: unknown): string {
  const text = String(value);
  return STATUS_WORDS[text] ?? text;
}

const SKIPPED: Record<string, string> = {
  outside_project: "in files outside the project",
  no_location: "without a place",
  not_a_file: "that are in no file",
  file_removed: "in files that were removed",
  covered_path_outside_project: "scanned paths outside the project",
};

/** Why results of a report were skipped. */
export function skippedOf(scan: Pick<Scanned, "skipped">): string[] {
  return scan.skipped.map((each) => `${each.count.toLocaleString("en")} ${SKIPPED[each.reason] ?? each.reason}`);
}

/** The reference of a file in a root or in the corpus. */
export function referenceOf(scheme: "root" | "corpus", segments: readonly string[]): string {
  return `${scheme}://${segments.map(encodeURIComponent).join("/")}`;
}
