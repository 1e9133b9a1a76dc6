import assert from "node:assert/strict";
import { test } from "node:test";

import { formatFilters, parseFilters } from "../src/lib/filter-text.ts";

const NAMES = ["severity", "rule", "path"];

test("named filters and words are told apart", () => {
  assert.deepEqual(parseFilters('severity:high  sql path:"my notes" severity:low', NAMES), {
    text: "sql",
    named: { severity: ["high", "low"], path: ["my notes"] },
  });
});

test("an unknown name is a part of the text", () => {
  assert.deepEqual(parseFilters("http://x a:b rule:S608", NAMES), { text: "http://x a:b", named: { rule: ["S608"] } });
});

test("what is formatted is parsed back", () => {
  for (const filters of [
    { text: "", named: {} },
    { text: "two words", named: { severity: ["high"] } },
    { text: "x", named: { path: ["a b", "c"], rule: ["E1"] } },
  ]) {
    assert.deepEqual(parseFilters(formatFilters(filters), NAMES), filters);
  }
});
