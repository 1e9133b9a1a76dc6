import assert from "node:assert/strict";
import { test } from "node:test";

import { isLetter, nameOf, Sequence } from "../src/lib/keys.ts";
import { rowAfter } from "../src/lib/move.ts";

const plain = { ctrlKey: false, metaKey: false, altKey: false, shiftKey: false };

test("keys have one name on every system", () => {
  assert.equal(nameOf({ ...plain, key: "k", ctrlKey: true }), "Ctrl+K");
  assert.equal(nameOf({ ...plain, key: "k", metaKey: true }), "Ctrl+K");
  assert.equal(nameOf({ ...plain, key: "?", shiftKey: true }), "?");
  assert.equal(nameOf({ ...plain, key: "Tab", shiftKey: true }), "Shift+Tab");
  assert.equal(nameOf({ ...plain, key: "F2" }), "F2");
});

test("what writes a letter is known", () => {
  assert.ok(isLetter("e") && isLetter("g f") && isLetter("?"));
  assert.ok(!isLetter("Ctrl+K") && !isLetter("F2") && !isLetter("Delete"));
});

test("a sequence is completed in time, and a wrong key starts again", () => {
  const known = (keys: string) => (keys === "g" ? "start" : keys === "g f" || keys === "f" ? "whole" : undefined);
  const sequence = new Sequence(1000);
  assert.equal(sequence.press("g", 0, known), undefined);
  assert.equal(sequence.press("f", 500, known), "g f");
  assert.equal(sequence.press("g", 1000, known), undefined);
  assert.equal(sequence.press("f", 3000, known), "f");
  assert.equal(sequence.press("g", 4000, known), undefined);
  assert.equal(sequence.press("x", 4100, known), undefined);
  assert.equal(sequence.press("f", 4200, known), "f");
});

test("keys move within the rows", () => {
  assert.equal(rowAfter("ArrowDown", 0, 3, 10), 1);
  assert.equal(rowAfter("j", 2, 3, 10), 2);
  assert.equal(rowAfter("k", 0, 3, 10), 0);
  assert.equal(rowAfter("PageDown", 5, 100, 20), 25);
  assert.equal(rowAfter("End", 5, 100, 20), 99);
  assert.equal(rowAfter("ArrowDown", 0, 0, 10), undefined);
  assert.equal(rowAfter("x", 0, 3, 10), undefined);
});
