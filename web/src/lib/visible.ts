/** Names and texts that others wrote, with everything in them visible. */

// Controls, marks that change the direction of the text around them, and what has no width.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** A name with everything in it visible: a mark that turns the text around is shown as `⟨U+202E⟩`, a tab as `⟨U+0009⟩`. */
export function shown(name: string): string {
  return name.replace(
    INVISIBLE,
    (character) => `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}
