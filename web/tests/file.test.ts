import assert from "node:assert/strict";
import { test } from "node:test";

import {
  lineEndOf,
  linesOf,
  linesOfBytes,
  linesText,
  mediaKindOf,
  withLineEnd,
  withoutReturns,
} from "../src/pages/file/lines.ts";
import { eventOfCall, inOrder, isReading, versionsOf, withWriters } from "../src/pages/file/timeline.ts";

const call = (tool: string, at: string, more = {}) => ({
  at,
  call_id: `${tool} ${at}`,
  tool,
  principal: "agent",
  root: "notes",
  path: "/a.md",
  outcome: "success",
  code: null,
  ...more,
});

test("lines are read from the address and written to it", () => {
  assert.deepEqual(linesOf("10-42"), { from: 10, to: 42 });
  assert.deepEqual(linesOf("42-10"), { from: 10, to: 42 });
  assert.deepEqual(linesOf("7"), { from: 7, to: 7 });
  for (const text of ["", "0", "a", "1-", "-1", "1-2-3"]) assert.equal(linesOf(text), undefined, text);
  assert.equal(linesText({ from: 1, to: 1 }), "1");
  assert.equal(linesText({ from: 1, to: 3 }), "1-3");
});

test("bytes of a passage are found in lines of the text", () => {
  const text = "äö\nzwei\ndrei\n";
  assert.deepEqual(linesOfBytes(text, "0-4"), { from: 1, to: 1 });
  assert.deepEqual(linesOfBytes(text, "5-12"), { from: 2, to: 3 });
  assert.equal(linesOfBytes(text, "99-100"), undefined);
  assert.equal(linesOfBytes(text, "x"), undefined);
});

test("a text keeps the ends of its lines", () => {
  assert.equal(lineEndOf("a\nb"), "\n");
  assert.equal(lineEndOf("a\r\nb\r\n"), "\r\n");
  for (const text of ["a\r\nb\n", "a\rb", "\na\r\n"]) assert.equal(lineEndOf(text), "mixed", JSON.stringify(text));
  const text = "a\r\n\r\nb";
  assert.equal(withLineEnd(withoutReturns(text), lineEndOf(text)), text);
});

test("the name tells what a browser shows of a file", () => {
  assert.equal(mediaKindOf("a.PNG"), "image");
  assert.equal(mediaKindOf("report.pdf"), "pdf");
  assert.equal(mediaKindOf("png"), undefined);
  assert.equal(mediaKindOf("a.md"), undefined);
});

test("a version is told together with the call that wrote it", () => {
  const version = { version: 2, size: 3, current: true, written_at: "2026-01-01T00:00:01Z" };
  const calls = [
    call("file_write", "2026-01-01T00:00:01.020Z"),
    call("file_write", "2026-01-01T00:09:00Z", { outcome: "error", code: "CONFLICT" }),
    call("file_read", "2026-01-01T00:00:01.010Z"),
  ];
  const told = inOrder(withWriters([version], calls));
  assert.deepEqual(
    told.map((each) => [each.text, each.detail]),
    [
      ["agent tried: file_write", "refused with CONFLICT"],
      ["agent read it", "file_read"],
      ["Version 2", "agent · file_write"],
    ],
  );
  assert.ok(eventOfCall(calls[1] ?? assert.fail()).isFault);
});

test("calls that only look are known by their names", () => {
  for (const tool of ["read_file", "file_read", "store_stat", "list_folder"]) assert.ok(isReading(tool), tool);
  for (const tool of ["write_file", "move", "file_restore"]) assert.ok(!isReading(tool), tool);
});

test("two versions to compare are read from the address", () => {
  assert.deepEqual(versionsOf("3..5"), [3, 5]);
  assert.equal(versionsOf("3"), undefined);
});
