import assert from "node:assert/strict";
import { test } from "node:test";

import { fieldsOf, lineOf, mistakeOf, valueAt, withValue, type Schema } from "../src/pages/admin/schema.ts";

const SCHEMA: Schema = {
  type: "object",
  properties: {
    timeouts: { $ref: "#/$defs/Timeouts" },
    sources: { type: "array", items: { $ref: "#/$defs/Source" }, description: "Its sources." },
    groups: { type: "array", items: { type: "string" }, default: [] },
    url: { anyOf: [{ type: "string" }, { type: "null" }], default: null, description: "Where it is." },
    type: { anyOf: [{ enum: ["stdio", "http"], type: "string" }, { type: "null" }] },
    env: { type: "object", additionalProperties: { type: "string" } },
    enabled: { type: "boolean", default: true },
  },
  $defs: {
    Timeouts: { type: "object", properties: { call_s: { anyOf: [{ type: "number" }, { type: "null" }] } } },
    Source: { type: "object", properties: { id: { type: "string" }, order: { type: "integer" } }, required: ["id"] },
  },
};

test("a schema becomes fields, those that matter first", () => {
  const fields = fieldsOf(SCHEMA);
  assert.deepEqual(
    fields.map(({ name, kind }) => `${name}:${kind}`),
    ["enabled:switch", "groups:lines", "url:text", "env:pairs", "timeouts:object", "sources:list", "type:choice"],
  );
  assert.equal(fields[2]?.description, "Where it is.");
  assert.deepEqual(fields[6]?.choices, ["stdio", "http"]);
  assert.deepEqual(
    fields[5]?.fields.map(({ name, isRequired, isWhole }) => [name, isRequired, isWhole]),
    [
      ["id", true, false],
      ["order", false, true],
    ],
  );
  assert.deepEqual(
    fields[4]?.fields.map(({ kind }) => kind),
    ["number"],
  );
});

test("values are changed and removed at their place, in a copy", () => {
  const before = { a: { b: [{ c: 1 }, { c: 2 }] } };
  assert.deepEqual(withValue(before, ["a", "b", 1, "c"], 3), { a: { b: [{ c: 1 }, { c: 3 }] } });
  assert.deepEqual(withValue(before, ["a", "b", 0], undefined), { a: { b: [{ c: 2 }] } });
  assert.deepEqual(withValue({}, ["x", "y"], "z"), { x: { y: "z" } });
  assert.deepEqual(withValue({ x: 1, y: 2 }, ["x"], undefined), { y: 2 });
  assert.equal(valueAt(before, ["a", "b", 1, "c"]), 2);
  assert.equal(valueAt(before, ["a", "x", 1]), undefined);
});

test("mistakes have their place", () => {
  const told = "`docs.dataSources[1].authMod` is not a known key; did you mean `authMode`?";
  assert.deepEqual(mistakeOf(told, "docs").path, ["dataSources", 1, "authMod"]);
  assert.deepEqual(mistakeOf("`docs.headers.Authorization` is masked", "docs").path, ["headers", "Authorization"]);
  assert.deepEqual(mistakeOf("`docs`: has neither `command` nor `url`", "docs").path, []);
  assert.deepEqual(mistakeOf("`other.url` must be unique", "docs").path, []);
});

test("a place has a line in the text", () => {
  const entry = { url: "x", dataSources: [{ id: "a" }, { id: "b", authMod: "y" }] };
  assert.equal(lineOf(entry, ["url"]), 2);
  assert.equal(lineOf(entry, ["dataSources", 1, "authMod"]), 9);
  assert.equal(lineOf(entry, ["dataSources", 1]), 7);
  assert.equal(lineOf(entry, ["dataSources", 1, "missing"]), 7);
  assert.equal(lineOf(entry, []), 1);
});
