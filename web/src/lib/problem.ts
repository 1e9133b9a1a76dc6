/** What went wrong, in the words of the server. */

interface Described {
  code?: unknown;
  message?: unknown;
  hint?: unknown;
  retryable?: unknown;
}

export class Problem extends Error {
  readonly code: string;
  readonly hint: string | undefined;
  /** The status of the response; 0 if there was none. */
  readonly status: number;
  /** Whether the same request can succeed later. */
  readonly retryable: boolean;
  /** Everything that the server said about it. */
  readonly details: Record<string, unknown>;

  constructor(
    message: string,
    options: {
      code: string;
      hint?: string;
      status?: number;
      retryable?: boolean;
      details?: Record<string, unknown>;
    },
  ) {
    super(message);
    this.name = "Problem";
    this.code = options.code;
    this.hint = options.hint;
    this.status = options.status ?? 0;
    this.retryable = options.retryable ?? false;
    this.details = options.details ?? {};
  }

  /** All of it as text, for the person who runs the server. */
  get asText(): string {
    const facts = Object.keys(this.details).length > 0 ? JSON.stringify(this.details, null, 2) : "";
    return [this.message, this.hint && `hint: ${this.hint}`, `code: ${this.code}, status: ${this.status}`, facts]
      .filter(Boolean)
      .join("\n");
  }
}

/** The problem that the body of a response describes. Every capability has a form of its own for errors. */
export function problemOf(status: number, body: unknown): Problem {
  const outer = asObject(body);
  const inResults = asObject(asObject(outer["results"])["error"]);
  const inner = asObject(outer["error"]);
  const described: Described =
    Object.keys(inner).length > 0 ? inner : Object.keys(inResults).length > 0 ? inResults : outer;
  // The sources of an answer may each have failed for another reason.
  const { errors } = asObject(outer["meta_data"]);
  const message = text(described.message) ?? text(outer["error"]) ?? `the server answered with status ${status}`;
  return new Problem(message, {
    code: text(described.code) ?? text(outer["code"]) ?? "UNKNOWN",
    hint: text(described.hint),
    status,
    retryable: described.retryable === true,
    details: { ...described, ...(Array.isArray(errors) ? { errors } : {}) } as Record<string, unknown>,
  });
}

/** A problem, whatever was thrown. */
export function asProblem(thrown: unknown): Problem {
  if (thrown instanceof Problem) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new Problem(message, { code: "CONSOLE_FAILED", hint: "reload the page; if it happens again, report it" });
}

/** Whether this was thrown because a request was cancelled. */
export function isCancelled(thrown: unknown): boolean {
  return thrown instanceof DOMException && thrown.name === "AbortError";
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
