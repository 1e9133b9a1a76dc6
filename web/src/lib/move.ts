/** Where the keys of lists, grids and trees lead. */

/** The row to which a key leads; undefined if the key is for something else. */
export function rowAfter(key: string, current: number, count: number, page: number): number | undefined {
  if (count === 0) return undefined;
  const last = count - 1;
  const to = (index: number) => Math.max(0, Math.min(last, index));
  switch (key) {
    case "ArrowDown":
    case "j":
      return to(current + 1);
    case "ArrowUp":
    case "k":
      return to(current - 1);
    case "PageDown":
      return to(current + page);
    case "PageUp":
      return to(current - page);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return undefined;
  }
}
