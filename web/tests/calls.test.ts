import assert from "node:assert/strict";
import { test } from "node:test";

import { admits, asCsv, commandFor, rowOf, withNew, type CallFilters } from "../src/pages/activity/calls.ts";
import { bytes, duration, share } from "../src/pages/status/amounts.ts";

const NONE: CallFilters = {
  tool: [],
  capability: [],
  surface: [],
  principal: [],
  root: [],
  status: [],
  prefix: "",
  without_reads_over: [],
};

function call(values: Record<string, unknown> = {}) {
  return rowOf({
    ...{ at: "2026-01-01T00:00:00Z", call_id: "a-1", surface: "http", capability: "sandbox", tool: "read_file" },
    ...{ principal: "ann", root: "work", path: "src/a.py", outcome: "success", code: null, duration_ms: 1 },
    ...{ request_bytes: 1, response_bytes: 2, cost: 0, ...values },
  });
}

test("an event is admitted by the rules of the list", () => {
  assert.ok(admits(NONE, call()));
  assert.ok(admits({ ...NONE, tool: ["grep", "read_file"], prefix: "src/" }, call()));
  assert.ok(!admits({ ...NONE, tool: ["grep"] }, call()));
  assert.ok(!admits({ ...NONE, prefix: "docs/" }, call()));
  assert.ok(!admits({ ...NONE, root: ["work"] }, call({ root: null })));
  const failed = call({ outcome: "error", code: "NOT_FOUND" });
  assert.ok(admits({ ...NONE, status: ["error"] }, failed));
  assert.ok(admits({ ...NONE, status: ["NOT_FOUND"] }, failed));
  assert.ok(!admits({ ...NONE, status: ["success"] }, failed));
});

test("new rows come first, and none is there twice", () => {
  const [one, two] = [call(), call({ call_id: "a-2" })];
  assert.deepEqual(withNew([one], [two, one]), [two, one]);
});

test("what the console reads for itself can be left out, whatever it reads", () => {
  const others = { ...NONE, without_reads_over: ["console"] };
  assert.ok(!admits(others, call({ surface: "console", read_only: true })));
  assert.ok(admits(others, call({ surface: "console", read_only: false })));
  assert.ok(admits(others, call({ surface: "api", read_only: true })));
  assert.ok(admits(NONE, call({ surface: "console", read_only: true })));
});

test("the command for a shell quotes what it must", () => {
  assert.equal(commandFor(NONE, ""), "armarium audit");
  const wanted = { ...NONE, tool: ["read_file"], root: ["my work"], prefix: "it's" };
  assert.equal(
    commandFor(wanted, "1h"),
    `armarium audit --tool read_file --root 'my work' --path 'it'\\''s' --since 1h`,
  );
});

test("cells of a table cannot become formulas, and quotes stay quotes", () => {
  const csv = asCsv([call({ path: '=cmd|"x"', principal: "a,b" })]);
  assert.match(csv, /"'=cmd\|""x"""/);
  assert.match(csv, /"a,b"/);
  assert.equal(csv.split("\r\n").length, 3);
});

test("amounts are in words", () => {
  assert.deepEqual([0, 999, 1000, 1_440_000, 96_000_000].map(bytes), ["0 B", "999 B", "1 KB", "1.4 MB", "96 MB"]);
  assert.deepEqual([0, 12, 3600, 90_061].map(duration), ["0 s", "12 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([share(1, undefined), share(0, 0), share(1, 4), share(9, 4)], [undefined, 1, 0.25, 1]);
});
