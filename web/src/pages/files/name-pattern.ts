/** What a person writes to find names, in the words of the tool that finds them. */

export type NamePattern = { pattern: string } | { regex: string };

/** `harbour` is a part of a name in any case; `*.md` is a pattern for a name anywhere, `src/*.md` one for a path. */
export function patternOf(text: string): NamePattern {
  const wanted = text.trim();
  if (/[*?{[]/.test(wanted)) return { pattern: wanted.includes("/") ? wanted : `**/${wanted}` };
  const escaped = wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return { regex: `(?i)${escaped}[^/]*$` };
}
