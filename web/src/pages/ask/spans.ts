/** Where a passage is in its document, and how that is written in answers and in addresses. */

export type Span =
  | { kind: "lines"; start_line: number; end_line: number }
  | { kind: "page"; page: number }
  | { kind: "time"; start_ms: number; end_ms: number };

export interface Lines {
  /** Counted from 1; both ends belong to it. */
  from: number;
  to: number;
}

/** A place as people read it. */
export function placeOf(span: Span): string {
  switch (span.kind) {
    case "lines":
      return span.start_line === span.end_line
        ? `line ${span.start_line}`
        : `lines ${span.start_line}–${span.end_line}`;
    case "page":
      return `page ${span.page}`;
    case "time":
      return `${clock(span.start_ms)}–${clock(span.end_ms)}`;
  }
}

/** The end of a citation: `:L3-L9`, `#p=3`, `@t=00:05-01:10`. */
export function suffixOf(span: Span): string {
  switch (span.kind) {
    case "lines":
      return `:L${span.start_line}-L${span.end_line}`;
    case "page":
      return `#p=${span.page}`;
    case "time":
      return `@t=${clock(span.start_ms)}-${clock(span.end_ms)}`;
  }
}

/** The place in the address of the file's page. */
export function paramsOf(span: Span | undefined, lines?: Lines): Record<string, string> {
  if (span === undefined) return {};
  if (span.kind === "lines") {
    const { from, to } = lines ?? { from: span.start_line, to: span.end_line };
    return { L: from === to ? String(from) : `${from}-${to}` };
  }
  if (span.kind === "page") return { p: String(span.page) };
  return { t: `${Math.floor(span.start_ms / 1000)}-${Math.ceil(span.end_ms / 1000)}` };
}

/** The path and the place of a text that ends like a citation. */
export function parsePlace(text: string): { path: string; span: Span } | undefined {
  const found = /^(.+?)(?::L(\d{1,9})(?:-L?(\d{1,9}))?|#p=(\d{1,9})|@t=(\d+):(\d\d)-(\d+):(\d\d))$/s.exec(text);
  if (found === null) return undefined;
  const [, path = "", first, last, page, ...times] = found;
  if (first !== undefined) {
    const start = Number(first);
    return { path, span: { kind: "lines", start_line: start, end_line: Math.max(start, Number(last ?? first)) } };
  }
  if (page !== undefined) return { path, span: { kind: "page", page: Number(page) } };
  const [fromMinutes, fromSeconds, toMinutes, toSeconds] = times.map(Number) as [number, number, number, number];
  const ms = (minutes: number, seconds: number) => (minutes * 60 + seconds) * 1000;
  return { path, span: { kind: "time", start_ms: ms(fromMinutes, fromSeconds), end_ms: ms(toMinutes, toSeconds) } };
}

function clock(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const two = (count: number) => String(count).padStart(2, "0");
  return `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}`;
}

/** Where a quote of a file is now. */
export type Found = { state: "same" | "moved"; lines: Lines } | { state: "gone" };

/**
 * Look for a quote in the lines of a file, of which the first has the number `first`. White space does not count, and an
 * excerpt may begin and end with an ellipsis.
 */
export function findQuote(quote: string, content: string, first: number, expected: Lines): Found {
  const wanted = squeezed(quote.replace(/^… /, "").replace(/ …$/, ""));
  const lines = content.split("\n").map(squeezed);
  const at = (number: number) => number - first;
  if (
    wanted === "" ||
    lines
      .slice(Math.max(0, at(expected.from)), at(expected.to) + 1)
      .join("")
      .includes(wanted)
  ) {
    return { state: "same", lines: expected };
  }
  const begins = lines.join("").indexOf(wanted);
  if (begins < 0) return { state: "gone" };
  const lineAt = (place: number) => {
    let passed = 0;
    return first + lines.findIndex((line) => (passed += line.length) > place);
  };
  return { state: "moved", lines: { from: lineAt(begins), to: lineAt(begins + wanted.length - 1) } };
}

const squeezed = (text: string) => text.replaceAll(/\s+/g, "");
