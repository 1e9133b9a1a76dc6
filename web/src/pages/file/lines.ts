/** Passages of a text, in lines from 1. */

export interface Lines {
  from: number;
  to: number;
}

/** The lines that a parameter of the address names: `10`, `10-42`. */
export function linesOf(text: string): Lines | undefined {
  const found = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(text);
  if (!found) return undefined;
  const [one, other] = [Number(found[1]), Number(found[2] ?? found[1])];
  return one < 1 || other < 1 ? undefined : { from: Math.min(one, other), to: Math.max(one, other) };
}

export function linesText({ from, to }: Lines): string {
  return from === to ? String(from) : `${from}-${to}`;
}

/** The lines with these bytes of the text in UTF-8; `bytes` is `120-480`. */
export function linesOfBytes(text: string, bytes: string): Lines | undefined {
  const found = /^(\d{1,12})-(\d{1,12})$/.exec(bytes);
  if (!found) return undefined;
  const [start, end] = [Number(found[1]), Number(found[2])];
  const encoded = new TextEncoder().encode(text);
  let line = 1;
  let from = 1;
  let to = 1;
  for (let at = 0; at < Math.min(end, encoded.length); at += 1) {
    if (at === start) from = line;
    to = line;
    if (encoded[at] === 10) line += 1;
  }
  return start < encoded.length ? { from, to: Math.max(from, to) } : undefined;
}

export type LineEnd = "\n" | "\r\n" | "mixed";

/** How the lines of a text end. */
export function lineEndOf(text: string): LineEnd {
  if (!text.includes("\r")) return "\n";
  return /(^|[^\r])\n|\r(?!\n)/.test(text) ? "mixed" : "\r\n";
}

/** The text as an editor has it, which knows one end of lines only. */
export function withoutReturns(text: string): string {
  return text.replace(/\r\n?/g, "\n");
}

/** The text of an editor with the ends of lines that the file had. */
export function withLineEnd(text: string, end: LineEnd): string {
  return end === "\r\n" ? text.replaceAll("\n", "\r\n") : text;
}

const MEDIA: Record<string, readonly string[]> = {
  image: ["avif", "bmp", "gif", "ico", "jpeg", "jpg", "png", "svg", "webp"],
  audio: ["aac", "flac", "m4a", "mp3", "oga", "ogg", "opus", "wav"],
  video: ["m4v", "mp4", "ogv", "webm"],
  pdf: ["pdf"],
};

export type MediaKind = "image" | "audio" | "video" | "pdf";

/** As what a browser can show a file of this name; undefined for a text, or for what it cannot show. */
export function mediaKindOf(name: string): MediaKind | undefined {
  const end = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  const found = Object.entries(MEDIA).find(([, ends]) => name.includes(".") && ends.includes(end));
  return found?.[0] as MediaKind | undefined;
}
