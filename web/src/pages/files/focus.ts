/** Where the focus goes when a dialog opens. */

import { tick } from "svelte";

/** Focus a field, and select its text up to the end of the name: `{@attach focusField}`. */
export function focusField(field: HTMLInputElement): void {
  // After the dialog, which focuses its first button.
  void tick().then(() => {
    field.focus();
    const name = field.value.slice(field.value.lastIndexOf("/") + 1);
    const dot = name.lastIndexOf(".");
    field.setSelectionRange(field.value.length - name.length, field.value.length - (dot > 0 ? name.length - dot : 0));
  });
}
