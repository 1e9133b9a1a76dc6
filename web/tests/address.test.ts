import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, isOwn, parseAddress, withParams } from "../src/lib/address.ts";

const ORIGIN = "http://127.0.0.1:8091";

test("an address has the area, the path and what filters", () => {
  const path = ["root", "workspace", "a b/ü?#%.py"];
  const address = addressOf("file", path, { L: "10-42", src: ["one", "two"], none: null, no: false, empty: "" });
  assert.equal(address, "/console/file/root/workspace/a%20b%2F%C3%BC%3F%23%25.py?L=10-42&src=one&src=two");
  const parsed = parseAddress(new URL(address, ORIGIN));
  assert.equal(parsed.area, "file");
  assert.deepEqual(parsed.path, path);
  assert.deepEqual(parsed.params.getAll("src"), ["one", "two"]);
});

test("the start page has no area, and a malformed segment is shown as it is", () => {
  assert.equal(addressOf(""), "/console");
  assert.deepEqual(parseAddress(new URL("/console", ORIGIN)).area, "");
  assert.deepEqual(parseAddress(new URL("/console/files/%E0%A4", ORIGIN)).path, ["%E0%A4"]);
});

test("only the console is our own", () => {
  assert.ok(isOwn(new URL("/console", ORIGIN), ORIGIN));
  assert.ok(isOwn(new URL("/console/ask?q=x", ORIGIN), ORIGIN));
  assert.ok(!isOwn(new URL("/consoles", ORIGIN), ORIGIN));
  assert.ok(!isOwn(new URL("/api/raw", ORIGIN), ORIGIN));
  assert.ok(!isOwn(new URL("http://127.0.0.1:8092/console"), ORIGIN));
});

test("parameters are replaced, and others stay", () => {
  const changed = withParams(new URLSearchParams("a=1&a=2&b=3&c=4"), { a: "5", b: [], d: 6 });
  assert.equal(changed.toString(), "c=4&a=5&d=6");
});
