/** What a person prefers in this browser. Nothing else than preferences, and the proof, is stored in it. */

export type Theme = "system" | "light" | "dark";

interface Stored {
  theme: Theme;
  /** Whether rows are higher, for easier reading and touching. */
  isRoomy: boolean;
  /** Whether single letters are shortcuts. */
  hasLetterShortcuts: boolean;
  /** Sizes of panes in pixels, by their name. */
  sizes: Record<string, number>;
}

const KEY = "armarium.preferences";
const DEFAULTS: Stored = { theme: "system", isRoomy: false, hasLetterShortcuts: true, sizes: {} };

export const preferences = $state<Stored>({ ...DEFAULTS, ...stored() });

/** Change preferences, and keep them. */
export function prefer(changes: Partial<Stored>): void {
  Object.assign(preferences, changes);
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // A browser that stores nothing forgets them.
  }
  applyPreferences();
}

/** Let the style sheets know. */
export function applyPreferences(): void {
  const { dataset } = document.documentElement;
  if (preferences.theme === "system") delete dataset["theme"];
  else dataset["theme"] = preferences.theme;
  dataset["density"] = preferences.isRoomy ? "roomy" : "dense";
}

/** The height of a row in lists. */
export function rowHeight(): number {
  return preferences.isRoomy ? 36 : 28;
}

function stored(): Partial<Stored> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Stored>;
  } catch {
    return {};
  }
}
