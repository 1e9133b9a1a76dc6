/** Filters as text: `severity:high rule:S608 text`, as people write them into a query bar. */

export interface Filters {
  /** The words without a name. */
  text: string;
  /** The values of each named filter. */
  named: Record<string, string[]>;
}

/** Parse a query bar. Only known names are filters: `a:b` may as well be a part of a text. */
export function parseFilters(bar: string, names: readonly string[]): Filters {
  const named: Record<string, string[]> = {};
  const words: string[] = [];
  for (const [whole, name, quoted, bare] of bar.matchAll(/(?:([\w-]+):)?(?:"([^"]*)"|(\S+))/g)) {
    const value = quoted ?? bare ?? "";
    if (name !== undefined && names.includes(name)) (named[name] ??= []).push(value);
    else words.push(whole);
  }
  return { text: words.join(" "), named };
}

/** The text of these filters in a query bar. */
export function formatFilters({ text, named }: Filters): string {
  const parts = Object.entries(named).flatMap(([name, values]) =>
    values.map((value) => `${name}:${/[\s"]/.test(value) || value === "" ? `"${value.replaceAll('"', "")}"` : value}`),
  );
  return [...parts, text].filter((part) => part !== "").join(" ");
}
