import assert from "node:assert/strict";
import { test } from "node:test";

import { asProblem, problemOf } from "../src/lib/problem.ts";

test("the errors of all capabilities are understood", () => {
  const forms = [
    { error: { code: "NOT_FOUND", message: "there is no such file", hint: "list_folder shows them" } },
    { code: "NOT_FOUND", message: "there is no such file", retryable: false },
    { error: "there is no such file", code: "NOT_FOUND" },
    { results: { error: { code: "NOT_FOUND", message: "there is no such file" } }, hits: [] },
  ];
  for (const form of forms) {
    const problem = problemOf(404, form);
    assert.deepEqual([problem.message, problem.code, problem.status], ["there is no such file", "NOT_FOUND", 404]);
  }
  assert.equal(problemOf(404, forms[0]).hint, "list_folder shows them");
  const errors = [{ source: "docs:a", server: "docs", code: "token_expired", message: "connect" }];
  const failed = { results: { error: { code: "token_expired", message: "connect" } }, meta_data: { errors } };
  assert.deepEqual(problemOf(401, failed).details["errors"], errors);
});

test("what is no error of ours has a message, too", () => {
  assert.equal(problemOf(502, null).message, "the server answered with status 502");
  assert.equal(problemOf(500, "text").code, "UNKNOWN");
  assert.equal(asProblem(new TypeError("x is not a function")).code, "CONSOLE_FAILED");
});

test("the text for the operator has everything", () => {
  const text = problemOf(409, { code: "CONFLICT", message: "changed", hint: "compare", version: 5 }).asText;
  for (const part of ["changed", "hint: compare", "CONFLICT", "409", '"version": 5'])
    assert.ok(text.includes(part), part);
});
