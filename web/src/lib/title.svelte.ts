/** The title of what is on the screen: the heading of the page, and the title of the window. */

class Title {
  /** Set by pages that show one of many things; empty for the title of the area. */
  text = $state("");
}

export const title = new Title();

/** Name what the page shows, such as a file. Returns a function that forgets it, so that an effect can return it. */
export function showTitle(text: string): () => void {
  title.text = text;
  return () => {
    if (title.text === text) title.text = "";
  };
}
