import assert from "node:assert/strict";
import { test } from "node:test";

import { asText, noParts, partsOf, passageOfKey, readingOf, withEvent, type Parts } from "../src/pages/ask/answers.ts";
import { commandOf, fromParams, fromSent, ofCorpus, toParams } from "../src/pages/ask/selection.ts";
import { findQuote, parsePlace, placeOf, suffixOf, type Span } from "../src/pages/ask/spans.ts";

const lines = (from: number, to: number): Span => ({ kind: "lines", start_line: from, end_line: to });
const hit = (chunkId: number, path: string, span: Span) => ({
  chunk_id: chunkId,
  rel_path: path,
  span,
  snippet: "s",
  score: 0.5,
});

test("a place is written and read again", () => {
  const spans: Span[] = [
    lines(3, 9),
    { kind: "page", page: 12 },
    { kind: "time", start_ms: 65_000, end_ms: 6_130_000 },
  ];
  for (const span of spans)
    assert.deepEqual(parsePlace(`a:L1/b#p=2.md${suffixOf(span)}`), { path: "a:L1/b#p=2.md", span });
  assert.deepEqual(spans.map(placeOf), ["lines 3–9", "page 12", "01:05–102:10"]);
  for (const none of ["a.md", ":L1-L2", "a.md:Lx", ""]) assert.equal(parsePlace(none), undefined);
});

test("a quote is found where it is now", () => {
  const text = "one\n two  three\nfour\nfive";
  assert.deepEqual(findQuote("… two three\nfour …", text, 10, { from: 11, to: 12 }), {
    state: "same",
    lines: { from: 11, to: 12 },
  });
  assert.deepEqual(findQuote("two three\nfour", text, 10, { from: 12, to: 13 }), {
    state: "moved",
    lines: { from: 11, to: 12 },
  });
  assert.deepEqual(findQuote("six", text, 10, { from: 11, to: 12 }), { state: "gone" });
  assert.deepEqual(findQuote("", text, 10, { from: 2, to: 3 }), { state: "same", lines: { from: 2, to: 3 } });
});

test("citations are those of the answer, numbered as they come, also with markup and brackets in paths", () => {
  const odd = "app/[slug]/__init__*.md";
  const parts: Parts = {
    ...noParts("corpus_ask"),
    text: `See [b.py:L4-L5] and [${odd}:L1-L9], not [c.md:L1-L2] nor [b.py:L4-L99]. [b.py:L1-L9]`,
    hits: [hit(1, odd, lines(1, 9)), hit(2, "b.py", lines(1, 9)), hit(3, "d.md", lines(1, 2))],
  };
  const reading = readingOf(parts);
  assert.deepEqual(
    reading.passages.map((each) => [each.title, each.number]),
    [
      ["b.py", 1],
      [odd, 2],
      ["d.md", undefined],
    ],
  );
  const narrow = reading.read("[b.py:L4-L5] and");
  assert.deepEqual([narrow?.raw, narrow?.lines, narrow?.passage.number], ["[b.py:L4-L5]", { from: 4, to: 5 }, 1]);
  for (const none of ["[c.md:L1-L2]", "[b.py:L4-L99]", "[b.py:L4-\nL5]", "[b.py", "b.py:L1-L9", "[x]"]) {
    assert.equal(reading.read(none), undefined, none);
  }
  assert.equal(
    asText("Q?", parts, reading),
    `Q?\n\nSee [1] and [2], not [c.md:L1-L2] nor [b.py:L4-L99]. [1]\n\n[1] b.py, lines 1–9\n[2] ${odd}, lines 1–9`,
  );
});

test("passages of one page have names of their own", () => {
  const page: Span = { kind: "page", page: 3 };
  const parts = { ...noParts("corpus_ask"), hits: [hit(1, "a.pdf", page), hit(2, "a.pdf", page)] };
  const keys = readingOf(parts).passages.map((each) => each.key);
  assert.deepEqual(keys, ["a.pdf#p=3", "a.pdf#p=3~2"]);
  assert.deepEqual(passageOfKey("a.pdf#p=3~2")?.span, page);
  assert.equal(passageOfKey("docs:wiki/12"), undefined);
});

test("sources cite by numbers, which mean nothing before the citations are there", () => {
  const uri = "corpus://docs/a%20b/c.md";
  const found = { id: "7", resourceId: "armarium:corpus", server: "armarium", uri, title: "a b/c.md", snippet: "s" };
  const wiki = { id: "x", resourceId: "wiki:legal", server: "wiki", uri: "https://wiki/x", title: "X", snippet: "t" };
  let parts = noParts("rag_ask");
  parts = withEvent(parts, "hits", { hits: [wiki, { ...found, provenance: { span: lines(1, 2) } }] });
  parts = withEvent(parts, "text", { text: "It is so [1]. " });
  assert.equal(readingOf(parts).read("[1]"), undefined);
  const failure = { source: "hr:files", server: "hr", code: "TOKEN_EXPIRED", message: "expired" };
  parts = withEvent(parts, "source_failed", failure);
  parts = withEvent(parts, "citations", {
    citations: [{ marker: "[1]", uri, title: "a b/c.md", resourceId: "armarium:corpus", offsets: lines(1, 2) }],
  });
  const reading = readingOf(parts);
  assert.deepEqual(parts.failures, [failure]);
  assert.deepEqual(
    reading.passages.map((each) => [each.title, each.number, each.document]),
    [
      ["a b/c.md", 1, { path: "a b/c.md", chunkId: 7 }],
      ["X", undefined, undefined],
    ],
  );
  assert.equal(reading.read("[1]. More")?.passage.title, "a b/c.md");
});

test("what is missing or malformed in an answer is empty", () => {
  const parts = partsOf("rag_ask", { results: { answer: 3, hits: [null, "x"] }, meta_data: { errors: [{}] } });
  assert.equal(parts.text, "");
  assert.equal(parts.failures[0]?.code, "UNKNOWN");
  assert.doesNotThrow(() => readingOf(parts));
  assert.doesNotThrow(() => readingOf(partsOf("corpus_ask", {})));
});

test("a selection is the same in the address, in threads and in commands", () => {
  const selection = { sources: ["a:b"], index: "code" as const, path: "src/**", types: ["md", "pdf"] };
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(toParams(selection))) {
    for (const each of [value].flat()) params.append(name, String(each));
  }
  assert.deepEqual(fromParams(params), selection);
  assert.deepEqual(ofCorpus(selection), { index: "code", file_glob: "src/**", doc_types: ["md", "pdf"] });
  assert.deepEqual(fromSent(ofCorpus(selection), "armarium:corpus"), { ...selection, sources: ["armarium:corpus"] });
  assert.equal(
    commandOf("what's `x`?", selection),
    "dir2mcp ask --index code --file-glob 'src/**' --doc-type md --doc-type pdf -- 'what'\\''s `x`?'",
  );
  assert.equal(fromParams(new URLSearchParams("in=nonsense")).index, "auto");
});
