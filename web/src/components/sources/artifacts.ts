/** The files and pages that servers attach to an answer, and how each can be shown. */

export interface Artifact {
  name: string;
  b64: string;
  mime: string;
  size: number;
  description?: string;
  server?: string;
}

export interface Display {
  open_canvas?: boolean;
  primary_file?: string;
  server?: string;
  /** A page elsewhere. It is not embedded: this page loads nothing from other places. */
  canvas?: { url: string; title?: string };
}

export type Shown = "report" | "image" | "markdown" | "text" | "none";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const TEXTS = /^(text\/[a-z0-9.+-]+|application\/(json|xml|x-ndjson|yaml|sql)|[a-z]+\/[a-z0-9.-]+\+(json|xml))$/;
const MOST_TEXT = 1_000_000;

/** How an artifact is shown here. Everything can be downloaded. */
export function shownAs(artifact: Artifact): Shown {
  const { mime, name, size } = artifact;
  if (IMAGES.test(mime)) return "image";
  if (size > MOST_TEXT) return "none";
  if (mime === "text/html") return "report";
  if (mime === "text/markdown" || (mime.startsWith("text/") && /\.(md|markdown)$/i.test(name))) return "markdown";
  return TEXTS.test(mime) ? "text" : "none";
}

/** Whether a report has something that runs or sends: that part does not work where it is shown. */
export function wantsScripts(html: string): boolean {
  return /<script|<form|\son\w+\s*=|javascript:/i.test(html);
}

export function bytesOf(artifact: Artifact): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(artifact.b64), (character) => character.charCodeAt(0));
}

export function textOf(artifact: Artifact): string {
  return new TextDecoder().decode(bytesOf(artifact));
}

/** The artifact that a display opens, and whether it opens it by itself. */
export function opened(artifacts: readonly Artifact[], display: Display | undefined): Artifact | undefined {
  if (display?.open_canvas !== true) return undefined;
  return artifacts.find((each) => each.name === display.primary_file) ?? artifacts[0];
}

export function sizeInWords(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
