/** CodeMirror as the console uses it. Loaded when the first file is shown. */

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, syntaxHighlighting, type LanguageSupport } from "@codemirror/language";
import { MergeView } from "@codemirror/merge";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, RangeSet, StateEffect, StateField, type Extension } from "@codemirror/state";
import {
  Decoration,
  drawSelection,
  EditorView,
  gutter,
  GutterMarker,
  highlightActiveLine,
  keymap,
  lineNumbers,
  type DecorationSet,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

export interface LineRange {
  /** Counted from 1; both ends belong to it. */
  from: number;
  to: number;
}

export interface Mark {
  line: number;
  title: string;
  tone: "critical" | "high" | "medium" | "low" | "info";
}

type Language = () => Promise<Extension | LanguageSupport>;

const clike =
  (dialect: "c" | "cpp" | "java" | "csharp" | "kotlin" | "scala"): Language =>
  async () => {
    const modes = await import("@codemirror/legacy-modes/mode/clike");
    return StreamLanguage.define(modes[dialect]);
  };
const javascript =
  (options: { typescript?: boolean; jsx?: boolean }): Language =>
  async () =>
    (await import("@codemirror/lang-javascript")).javascript(options);
const html: Language = async () => (await import("@codemirror/lang-html")).html();
const markdown: Language = async () => (await import("@codemirror/lang-markdown")).markdown();
const yaml: Language = async () => (await import("@codemirror/lang-yaml")).yaml();
const shell: Language = async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/shell")).shell);

/** Languages by the end of a file's name. */
const LANGUAGES: Record<string, Language> = {
  py: async () => (await import("@codemirror/lang-python")).python(),
  js: javascript({}),
  mjs: javascript({}),
  jsx: javascript({ jsx: true }),
  ts: javascript({ typescript: true }),
  tsx: javascript({ typescript: true, jsx: true }),
  json: async () => (await import("@codemirror/lang-json")).json(),
  sarif: async () => (await import("@codemirror/lang-json")).json(),
  md: markdown,
  markdown,
  html,
  htm: html,
  svelte: html,
  svg: html,
  css: async () => (await import("@codemirror/lang-css")).css(),
  yaml,
  yml: yaml,
  sh: shell,
  bash: shell,
  c: clike("c"),
  h: clike("c"),
  cc: clike("cpp"),
  cpp: clike("cpp"),
  hpp: clike("cpp"),
  java: clike("java"),
  cs: clike("csharp"),
  kt: clike("kotlin"),
  scala: clike("scala"),
  go: async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/go")).go),
  rs: async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/rust")).rust),
  rb: async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/ruby")).ruby),
  sql: async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/sql")).standardSQL),
  toml: async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/toml")).toml),
  xml: async () => StreamLanguage.define((await import("@codemirror/legacy-modes/mode/xml")).xml),
};

const LOOK = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--paper)", color: "var(--ink)" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", fontSize: "12.5px", lineHeight: "20px", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--paper)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "var(--chosen)",
  },
  ".cm-cited": { backgroundColor: "var(--cited)", boxShadow: "inset 3px 0 0 var(--cited-bar)" },
  // Forced colours remove backgrounds and shadows.
  "@media (forced-colors: active)": {
    ".cm-cited": { borderLeft: "3px solid Highlight", paddingLeft: "3px" },
    ".cm-changedLine": { outline: "1px dashed" },
  },
  ".cm-mark": { padding: "0 3px", cursor: "default" },
  ".cm-mark-critical": { color: "var(--critical)" },
  ".cm-mark-high": { color: "var(--high)" },
  ".cm-mark-medium": { color: "var(--medium)" },
  ".cm-mark-low, .cm-mark-info": { color: "var(--low)" },
  ".cm-panels": { backgroundColor: "var(--sunk)", color: "var(--ink)" },
  ".cm-panels input, .cm-panels button": { color: "inherit", background: "var(--raised)" },
  ".cm-changedLine": { backgroundColor: "var(--added) !important" },
  "&.cm-merge-a .cm-changedLine, .cm-deletedChunk": { backgroundColor: "var(--removed) !important" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--ok)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--medium)" },
  { tag: [tags.comment, tags.meta], color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.className, tags.tagName, tags.heading], color: "var(--low)", fontWeight: "600" },
  { tag: [tags.function(tags.variableName), tags.attributeName, tags.propertyName], color: "var(--ink)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const SHAPES: Record<Mark["tone"], string> = { critical: "◆", high: "▲", medium: "◇", low: "▽", info: "○" };

class MarkInGutter extends GutterMarker {
  readonly mark: Mark;
  readonly count: number;

  /** The gravest of the marks of a line, and how many there are. */
  constructor(mark: Mark, count: number) {
    super();
    this.mark = mark;
    this.count = count;
  }

  override toDOM(): Node {
    const element = document.createElement("span");
    element.className = `cm-mark cm-mark-${this.mark.tone}`;
    element.textContent = SHAPES[this.mark.tone] + (this.count > 1 ? this.count : "");
    element.title = this.mark.title;
    return element;
  }
}

const TONES = Object.keys(SHAPES);

function byLine(found: readonly Mark[]): Map<number, Mark[]> {
  const lines = new Map<number, Mark[]>();
  for (const mark of found) lines.set(mark.line, [...(lines.get(mark.line) ?? []), mark]);
  return lines;
}

function together(all: readonly Mark[]): MarkInGutter {
  const gravest = all.reduce((one, other) => (TONES.indexOf(other.tone) < TONES.indexOf(one.tone) ? other : one));
  return new MarkInGutter({ ...gravest, title: all.map((mark) => mark.title).join("\n") }, all.length);
}

const setCited = StateEffect.define<LineRange | undefined>();
const setMarks = StateEffect.define<readonly Mark[]>();

const cited = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(before, change) {
    let decorations = before.map(change.changes);
    for (const effect of change.effects) {
      if (!effect.is(setCited)) continue;
      const range = effect.value;
      const lines: number[] = [];
      if (range)
        for (let line = range.from; line <= Math.min(range.to, change.state.doc.lines); line += 1) lines.push(line);
      const band = Decoration.line({ class: "cm-cited" });
      decorations = Decoration.set(lines.map((line) => band.range(change.state.doc.line(line).from)));
    }
    return decorations;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const marks = StateField.define<RangeSet<MarkInGutter>>({
  create: () => RangeSet.empty,
  update(before, change) {
    let set = before.map(change.changes);
    for (const effect of change.effects) {
      if (!effect.is(setMarks)) continue;
      const inFile = effect.value.filter((mark) => mark.line >= 1 && mark.line <= change.state.doc.lines);
      set = RangeSet.of(
        [...byLine(inFile)].map(([line, all]) => together(all).range(change.state.doc.line(line).from)),
        true,
      );
    }
    return set;
  },
});

export interface EditorOptions {
  text: string;
  /** The path of the file, whose end tells the language. */
  path: string;
  label: string;
  isEditable: boolean;
  isWrapped?: boolean;
  onChange?: (text: string) => void;
  onSave?: () => void;
  /** Called when a line number or a mark is clicked, and whether the range is to be extended to it. */
  onLine?: (line: number, extend: boolean) => void;
}

export class Editor {
  readonly view: EditorView;
  readonly #language = new Compartment();
  readonly #access = new Compartment();
  readonly #numbers = new Compartment();

  constructor(host: HTMLElement, options: EditorOptions) {
    const root = shadowOf(host);
    this.view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: options.text,
        extensions: [
          common(options),
          gutter({ class: "cm-marks", markers: (view) => view.state.field(marks) }),
          marks,
          cited,
          this.#access.of(access(options.isEditable)),
          this.#language.of([]),
          this.#numbers.of([]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) options.onChange?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    void this.setLanguage(options.path);
  }

  async setLanguage(path: string): Promise<void> {
    const language = await languageOf(path);
    this.view.dispatch({ effects: this.#language.reconfigure(language) });
  }

  setEditable(isEditable: boolean): void {
    this.view.dispatch({ effects: this.#access.reconfigure(access(isEditable)) });
  }

  /** Replace the text, if it is another one. */
  setText(text: string): void {
    if (text === this.view.state.doc.toString()) return;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  /** Number the lines from this one, if the text is a part of a file. */
  setFirst(first: number): void {
    const numbered = lineNumbers({ formatNumber: (line) => String(line + first - 1) });
    this.view.dispatch({ effects: this.#numbers.reconfigure(numbered) });
  }

  /** Mark a passage, and scroll to it. */
  cite(range: LineRange | undefined): void {
    const inFile = range && range.from >= 1 && range.from <= this.view.state.doc.lines ? range : undefined;
    const effects: StateEffect<unknown>[] = [setCited.of(inFile)];
    if (inFile) {
      const line = this.view.state.doc.line(inFile.from);
      effects.push(EditorView.scrollIntoView(line.from, { y: "start", yMargin: 60 }));
    }
    this.view.dispatch({ effects });
  }

  setMarks(found: readonly Mark[]): void {
    this.view.dispatch({ effects: setMarks.of(found) });
  }

  focus(): void {
    this.view.focus();
  }

  destroy(): void {
    this.view.destroy();
  }
}

/** Two versions of a text beside each other. Returns what removes them. */
export async function showDifferences(
  host: HTMLElement,
  before: { text: string; label: string },
  after: { text: string; label: string },
  path: string,
): Promise<() => void> {
  const root = shadowOf(host);
  const language = await languageOf(path);
  const side = ({ text, label }: { text: string; label: string }) => ({
    doc: text,
    extensions: [common({ label }), access(false), language],
  });
  const view = new MergeView({
    parent: root,
    root,
    a: side(before),
    b: side(after),
    collapseUnchanged: { margin: 3, minSize: 6 },
    gutter: true,
  });
  view.dom.style.height = "100%";
  view.dom.style.overflow = "auto";
  return () => view.destroy();
}

function common(options: Partial<EditorOptions> & { label: string }): Extension {
  return [
    lineNumbers({
      domEventHandlers: {
        click(view, block, event) {
          options.onLine?.(view.state.doc.lineAt(block.from).number, (event as MouseEvent).shiftKey);
          return true;
        },
      },
    }),
    drawSelection(),
    highlightActiveLine(),
    highlightSelectionMatches(),
    history(),
    LOOK,
    syntaxHighlighting(COLOURS),
    options.isWrapped === true ? EditorView.lineWrapping : [],
    EditorView.contentAttributes.of({ "aria-label": options.label, tabindex: "0" }),
    keymap.of([
      { key: "Mod-s", preventDefault: true, run: () => (options.onSave?.(), true) },
      ...searchKeymap,
      ...historyKeymap,
      ...defaultKeymap,
    ]),
  ];
}

/** Read-only text can have the focus, too: so the keys scroll and select in it. */
function access(isEditable: boolean): Extension {
  // Tab indents only in what can be edited; Escape and then Tab leaves.
  return isEditable ? keymap.of([indentWithTab]) : [EditorState.readOnly.of(true)];
}

async function languageOf(path: string): Promise<Extension> {
  const end = path.toLowerCase().match(/\.([^./]+)$/)?.[1] ?? "";
  return (await LANGUAGES[end]?.()) ?? [];
}

/** CodeMirror makes style sheets: in the document the policy forbids them, in a shadow root they are adopted. */
function shadowOf(host: HTMLElement): ShadowRoot {
  return host.shadowRoot ?? host.attachShadow({ mode: "open" });
}
