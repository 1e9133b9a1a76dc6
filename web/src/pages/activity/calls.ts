/** The calls of the activity page: which of them a filter admits, how they are told apart, and what else describes them. */

export interface CallRow {
  /** Tells rows apart: a call with several targets has several rows. */
  key: string;
  /** The number in the audit log; calls that arrive as events have none. */
  id?: number;
  at: string;
  call_id: string;
  surface: string;
  capability: string;
  tool: string;
  principal: string;
  root: string | null;
  path: string | null;
  outcome: string;
  code: string | null;
  duration_ms: number;
  request_bytes: number;
  response_bytes: number;
  cost: number;
  read_only: boolean;
  arguments?: Record<string, unknown>;
}

/** What the address selects, with all values of each facet. */
export interface CallFilters {
  tool: string[];
  capability: string[];
  surface: string[];
  principal: string[];
  root: string[];
  status: string[];
  prefix: string;
  /** Surfaces whose calls of tools that only read are left out. */
  without_reads_over: string[];
}

export const FACETS = ["tool", "capability", "surface", "principal", "root", "status"] as const;

export function rowOf(call: Record<string, unknown>): CallRow {
  const row = call as unknown as Omit<CallRow, "key">;
  return { ...row, key: [row.call_id, row.root ?? "", row.path ?? "", row.tool].join("\n") };
}

/** Whether the filters admit a call that arrives as an event, by the same rules as the server's. */
export function admits(filters: CallFilters, row: CallRow): boolean {
  const oneOf = (wanted: string[], ...found: (string | null)[]) =>
    wanted.length === 0 || found.some((value) => value !== null && wanted.includes(value));
  return (
    oneOf(filters.tool, row.tool) &&
    oneOf(filters.capability, row.capability) &&
    oneOf(filters.surface, row.surface) &&
    oneOf(filters.principal, row.principal) &&
    oneOf(filters.root, row.root) &&
    oneOf(filters.status, row.outcome, row.code) &&
    !(row.read_only && filters.without_reads_over.includes(row.surface)) &&
    (filters.prefix === "" || (row.path ?? "").startsWith(filters.prefix))
  );
}

/** Put new rows first, without those that are there already. */
export function withNew(rows: readonly CallRow[], arrived: readonly CallRow[]): CallRow[] {
  const known = new Set(rows.map((row) => row.key));
  return [...arrived.filter((row) => !known.has(row.key)), ...rows];
}

/** The command that lists the same calls. It takes one value for each filter. */
export function commandFor(filters: CallFilters, since: string): string {
  const options: [string, string | undefined][] = [
    ["--tool", filters.tool[0]],
    ["--capability", filters.capability[0]],
    ["--principal", filters.principal[0]],
    ["--root", filters.root[0]],
    ["--status", filters.status[0]],
    ["--path", filters.prefix],
    ["--since", since],
  ];
  const given = options.filter(([, value]) => value !== undefined && value !== "");
  return ["armarium audit", ...given.map(([name, value]) => `${name} ${quoted(value ?? "")}`)].join(" ");
}

/** A word for a shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

const COLUMNS = [
  ...["at", "call_id", "principal", "surface", "capability", "tool", "root", "path", "outcome", "code"],
  ...["duration_ms", "request_bytes", "response_bytes"],
] as const;

/** The rows as CSV. Text that a spreadsheet would take for a formula is marked as text. */
export function asCsv(rows: readonly CallRow[]): string {
  const cell = (value: unknown) => {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = rows.map((row) => COLUMNS.map((name) => cell(row[name as keyof CallRow])).join(","));
  return [COLUMNS.join(","), ...lines].join("\r\n") + "\r\n";
}
