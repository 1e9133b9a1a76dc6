import assert from "node:assert/strict";
import { test } from "node:test";

import { reasonAgainst } from "../src/pages/files/allowed.ts";
import { filtered, orderOf, sorted, type Entry } from "../src/pages/files/entries.ts";
import { patternOf } from "../src/pages/files/name-pattern.ts";
import {
  besideName,
  fileAddress,
  idOf,
  inside,
  isWithin,
  parentOf,
  placeOf,
  placeOfRef,
  refOf,
  shown,
  sizeText,
  toolPath,
  wayTo,
  wrongName,
  type Place,
} from "../src/pages/files/place.ts";

const root = (path: string): Place => ({ kind: "root", space: "work", path });
const store = (path: string): Place => ({ kind: "store", space: "notes", path });
const entry = (name: string, more: Partial<Entry> = {}): Entry => ({ name, kind: "file", isLink: false, ...more });

test("a place is in an address, and comes back from it", () => {
  assert.deepEqual(placeOf(["root", "work", "a b", "c.md"]), root("a b/c.md"));
  assert.equal(fileAddress(root("a b/50%#?.md")), "/console/file/root/work/a%20b/50%25%23%3F.md");
  assert.equal(placeOf([]), undefined);
  assert.equal(placeOf(["corpus", "a"]), undefined);
  assert.equal(idOf(root("")), "root:work/");
});

test("places know what is above and in them", () => {
  assert.deepEqual(parentOf(root("a/b")), root("a"));
  assert.equal(parentOf(root("")), undefined);
  assert.deepEqual(wayTo(store("a/b")).map(toolPath), ["", "/a", "/a/b"]);
  assert.deepEqual(inside(store(""), "x/y.md"), store("x/y.md"));
  assert.ok(isWithin(root("a/b"), root("a")));
  assert.ok(!isWithin(root("ab"), root("a")));
  assert.ok(!isWithin(root("a"), store("a")));
});

test("a reference names the bytes of names that are not UTF-8", () => {
  assert.equal(refOf(root("caf\\xe9.txt")), "root://work/caf%e9.txt");
  assert.equal(refOf(root("caf\\x5cxe9.txt")), "root://work/caf%5cxe9.txt");
  assert.equal(refOf(root("a b/50%.txt")), "root://work/a%20b/50%25.txt");
  assert.equal(refOf(root("\\x41.txt")), "root://work/%5Cx41.txt");
  assert.deepEqual(placeOfRef("store://notes/a%20b.md"), store("a b.md"));
  assert.equal(placeOfRef("corpus://notes/a.md"), undefined);
  assert.equal(placeOfRef("root://work/%e9"), undefined);
});

test("what cannot be seen in a name is shown", () => {
  assert.equal(shown("tab\there"), "tab⟨U+0009⟩here");
  assert.equal(shown("\u202egpj.exe"), "⟨U+202E⟩gpj.exe");
  assert.equal(shown("שלום.md"), "שלום.md");
});

test("sizes are written in three digits", () => {
  assert.deepEqual([0, 999, 1000, 1_234_567, 123_456_789, 9e14].map(sizeText), [
    "0 B",
    "999 B",
    "1.0 kB",
    "1.2 MB",
    "123 MB",
    "900 TB",
  ]);
});

test("names that cannot be are refused with the reason", () => {
  assert.equal(wrongName("a/b.md", "store"), undefined);
  assert.match(wrongName("ä.md", "store") ?? "", /only/);
  assert.equal(wrongName("ä b.md", "root"), undefined);
  for (const name of ["", "a//b", "/a", "..", "a/../b"]) assert.ok(wrongName(name, "root"), name);
  assert.equal(wrongName("ä".repeat(127), "root"), undefined);
  assert.match(wrongName("ä".repeat(128), "root") ?? "", /255/);
});

test("a copy beside a file has a name that is free", () => {
  assert.equal(besideName("a.md", new Set(["a.md", "a (2).md"]), "root"), "a (3).md");
  assert.equal(besideName(".env", new Set(), "root"), ".env (2)");
  assert.equal(besideName("a.md", new Set(), "store"), "a-2.md");
});

test("folders come first, numbers count, and the order can be turned", () => {
  const all = [
    entry("b10", { size: 1, modifiedAt: "2026-01-02" }),
    entry("z", { kind: "folder" }),
    entry("b9", { size: 3, modifiedAt: "2026-01-01" }),
    entry("a", { kind: "folder" }),
  ];
  const names = (text: string) => sorted(all, orderOf(text)).map((each) => each.name);
  assert.deepEqual(names(""), ["a", "z", "b9", "b10"]);
  assert.deepEqual(names("-name"), ["z", "a", "b10", "b9"]);
  assert.deepEqual(names("size").slice(2), ["b10", "b9"]);
  assert.deepEqual(names("modified").slice(2), ["b9", "b10"]);
  assert.deepEqual(orderOf("-nothing"), { by: "name", isDescending: false });
});

test("a filter has words and patterns", () => {
  const all = [entry("Harbour.md"), entry("harbour.py"), entry("a+b.md")];
  const names = (text: string) => filtered(all, text).map((each) => each.name);
  assert.deepEqual(names("har md"), ["Harbour.md"]);
  assert.deepEqual(names("*.md"), ["Harbour.md", "a+b.md"]);
  assert.deepEqual(names("a+?.md"), ["a+b.md"]);
  assert.equal(filtered(all, " "), all);
});

test("what a root or a key forbids is said", () => {
  const facts = { name: "work", allowed_tools: ["list_folder", "read_file"], read_only: false };
  const against = (action: Parameters<typeof reasonAgainst>[0], more = {}) =>
    reasonAgainst(action, root(""), { root: { ...facts, ...more }, isReadOnlyPerson: false, offers: () => true });
  assert.equal(against("read"), undefined);
  assert.match(against("write") ?? "", /does not allow write_file/);
  assert.match(against("write", { read_only: true, allowed_tools: ["*"] }) ?? "", /read-only/);
  assert.match(
    reasonAgainst("write", store(""), { root: undefined, isReadOnlyPerson: true, offers: () => true }) ?? "",
    /only read/,
  );
  assert.equal(
    reasonAgainst("read", store(""), { root: undefined, isReadOnlyPerson: true, offers: () => true }),
    undefined,
  );
});

test("what is written to find names becomes a pattern or a part of a name", () => {
  assert.deepEqual(patternOf("*.md"), { pattern: "**/*.md" });
  assert.deepEqual(patternOf("src/*.md"), { pattern: "src/*.md" });
  assert.deepEqual(patternOf("a.b"), { regex: "(?i)a\\.b[^/]*$" });
});
