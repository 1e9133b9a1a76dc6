/** The text of a file while a person reads and edits it. Nothing that they wrote is lost without their decision. */

import { asProblem, isCancelled, Problem } from "../../lib/problem.ts";
import { session } from "../../lib/session.svelte.ts";
import { toast } from "../../lib/toasts.svelte.ts";
import { createFile, readText, saveText, type Text } from "../files/operations.ts";
import { refOf, type Place } from "../files/place.ts";
import { draftOf, forgetDraft, keepDraft, keyOf, type Draft } from "./drafts.ts";
import { lineEndOf, withLineEnd, withoutReturns, type LineEnd } from "./lines.ts";

const CONFLICTS = new Set(["CONFLICT", "NOT_FOUND", "ALREADY_EXISTS", "IS_DIRECTORY"]);

export class FileDocument {
  readonly place: Place;
  loaded = $state.raw<Text>();
  problem = $state.raw<Problem>();
  isLoading = $state(false);
  isEditing = $state(false);
  isSaving = $state(false);
  /** What is in the editor. */
  text = $state("");
  saveProblem = $state.raw<Problem>();
  /** The file as it is now, when it is not the one that the text was made from; null if it is gone. */
  theirs = $state.raw<Text | null>();
  /** A text whose saving failed the last time. */
  kept = $state.raw<Draft>();

  readonly original: string = $derived(withoutReturns(this.loaded?.content ?? ""));
  readonly isDirty: boolean = $derived(this.isEditing && this.text !== this.original);
  readonly lineEnd: LineEnd = $derived(lineEndOf(this.loaded?.content ?? ""));

  #running: AbortController | undefined;

  constructor(place: Place) {
    this.place = place;
  }

  get #key(): string {
    return keyOf(session.current?.principal.name ?? "", refOf(this.place));
  }

  /** Load the text; of a large file, the part with this line. */
  async load(line: number): Promise<void> {
    void session.generation;
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    this.isLoading = true;
    try {
      const loaded = await readText(this.place, line, running.signal);
      if (running.signal.aborted || this.isDirty) return;
      this.#take(loaded);
      this.problem = undefined;
      this.kept = await draftOf(this.#key).catch(() => undefined);
    } catch (thrown) {
      if (!running.signal.aborted && !isCancelled(thrown)) this.problem = asProblem(thrown);
    } finally {
      if (this.#running === running) this.isLoading = false;
    }
  }

  cancel(): void {
    this.#running?.abort();
  }

  /** Somebody may have changed the file. */
  async check(line: number): Promise<void> {
    if (this.loaded?.state === undefined || this.isSaving) return;
    if (!this.isEditing) {
      await this.load(line);
      return;
    }
    const before = this.loaded.state;
    const present = await this.#present().catch(() => undefined);
    if (present === undefined || this.isSaving || this.loaded.state !== before) return;
    if (present === null || present.state !== before) this.#noteChange(present);
  }

  edit(): void {
    if (this.loaded?.state === undefined || this.loaded.isLossy) return;
    this.isEditing = true;
    this.text = this.original;
  }

  /** Stop editing, and forget what was written. */
  async discard(): Promise<void> {
    this.isEditing = false;
    this.text = this.original;
    this.saveProblem = undefined;
    await forgetDraft(this.#key).catch(() => undefined);
    this.kept = undefined;
    if (this.theirs !== undefined) {
      const theirs = this.theirs;
      this.theirs = undefined;
      if (theirs) this.#take(theirs);
    }
  }

  /** Continue with the text whose saving failed. */
  resume(): void {
    const draft = this.kept;
    if (draft === undefined || this.loaded === undefined) return;
    const present = this.loaded;
    this.kept = undefined;
    this.isEditing = true;
    this.text = draft.text;
    // It was made from another state: what is there now is theirs.
    if (draft.base !== present.state) this.theirs = present;
  }

  async forget(): Promise<void> {
    await forgetDraft(this.#key).catch(() => undefined);
    this.kept = undefined;
  }

  /** Save, if the file is still the one that was loaded. */
  async save(): Promise<void> {
    const state = this.loaded?.state;
    if (!this.isDirty || this.isSaving || state === undefined) return;
    // While there is a conflict, only a decision saves.
    if (this.theirs !== undefined) return;
    await this.#saving((content) => saveText(this.place, content, state));
  }

  /** Save over what somebody else wrote, unless it changed once more. */
  async overwrite(): Promise<void> {
    const theirs = this.theirs;
    if (theirs === undefined || this.isSaving) return;
    this.theirs = undefined;
    await this.#saving(async (content) => {
      if (theirs === null) {
        await createFile(this.place, content);
        return (await readText(this.place, 1)).state ?? "";
      }
      return saveText(this.place, content, theirs.state ?? "");
    });
  }

  /** Take what somebody else wrote. The own text can be brought back for a moment. */
  async takeTheirs(): Promise<void> {
    const [theirs, mine] = [this.theirs, this.text];
    if (!theirs) return;
    this.theirs = undefined;
    this.saveProblem = undefined;
    this.#take(theirs);
    this.text = this.original;
    await forgetDraft(this.#key).catch(() => undefined);
    const back = () => {
      this.isEditing = true;
      this.text = mine;
    };
    toast("Reloaded; your text was set aside", { action: { title: "Bring it back", run: back } });
  }

  async #saving(write: (content: string) => Promise<string>): Promise<void> {
    const written = this.text;
    const content = withLineEnd(written, this.lineEnd);
    this.isSaving = true;
    this.saveProblem = undefined;
    try {
      const state = await write(content);
      this.loaded = { content, size: new TextEncoder().encode(content).length, isBinary: false, state };
      await forgetDraft(this.#key).catch(() => undefined);
      toast("Saved", { tone: "ok" });
    } catch (thrown) {
      const problem = asProblem(thrown);
      await this.#keep(written);
      if (CONFLICTS.has(problem.code)) await this.#noteConflict(problem);
      else this.saveProblem = problem;
    } finally {
      this.isSaving = false;
    }
  }

  /** Keep what could not be saved. */
  async #keep(text: string): Promise<void> {
    const draft = { text, base: this.loaded?.state ?? "", at: new Date().toISOString() };
    await keepDraft(this.#key, draft).catch(() => undefined);
  }

  async #noteConflict(problem: Problem): Promise<void> {
    try {
      this.#noteChange(await this.#present());
    } catch (thrown) {
      this.saveProblem = thrown instanceof Problem ? thrown : problem;
    }
  }

  #noteChange(present: Text | null): void {
    // Both wrote the same.
    if (present && withoutReturns(present.content) === this.text) {
      this.theirs = undefined;
      this.#take(present);
      return;
    }
    if (present && !this.isDirty) {
      this.#take(present);
      this.text = this.original;
      return;
    }
    this.theirs = present;
  }

  async #present(): Promise<Text | null> {
    try {
      return await readText(this.place, 1);
    } catch (thrown) {
      if (thrown instanceof Problem && thrown.code === "NOT_FOUND") return null;
      throw thrown;
    }
  }

  #take(loaded: Text): void {
    this.loaded = loaded;
    if (!this.isEditing) this.text = this.original;
  }
}
