import assert from "node:assert/strict";
import { test } from "node:test";

import { opened, shownAs, wantsScripts, type Artifact } from "../src/components/sources/artifacts.ts";
import {
  currentStatus,
  kindFor,
  matching,
  pickedOf,
  ticked,
  timeLeft,
  type Server,
} from "../src/components/sources/model.ts";

function server(name: string, ...ids: string[]): Server {
  const sources = ids.map((id) => ({
    id,
    resourceId: `${name}:${id}`,
    name: id.toUpperCase(),
    selected: id.startsWith("default"),
    status: "ready" as const,
  }));
  return { server: name, displayName: `The ${name}`, sources, status: "ready" };
}

const SERVERS = [server("docs", "handbook", "default"), server("wiki", "pages", "handbook")];
const picked = (selection: object) => [...pickedOf(SERVERS, { from: "session", ...selection })].sort();

test("what is asked is what is selected, or else the default", () => {
  assert.deepEqual([...pickedOf(SERVERS, { from: "none" })], ["docs:default"]);
  assert.deepEqual(picked({ selectedServers: ["wiki"] }), ["wiki:handbook", "wiki:pages"]);
  assert.deepEqual(picked({ selectedServers: ["docs"], selectedResourceIds: ["handbook"] }), ["docs:handbook"]);
  assert.deepEqual(picked({ selectedResourceIds: ["pages", "docs:handbook"] }), ["docs:handbook", "wiki:pages"]);
  assert.deepEqual(picked({ selectedResourceIds: [] }), []);
  // Also what is not listed now.
  assert.deepEqual(picked({ selectedResourceIds: ["gone:x"] }), ["gone:x"]);
});

test("a server has three states", () => {
  const [docs] = SERVERS;
  assert.ok(docs);
  assert.equal(ticked(docs.sources, new Set()), "none");
  assert.equal(ticked(docs.sources, new Set(["docs:default"])), "some");
  assert.equal(ticked(docs.sources, new Set(["docs:default", "docs:handbook"])), "all");
  assert.equal(ticked([], new Set()), "none");
});

test("a search finds servers and sources", () => {
  const found = matching(SERVERS, " PAGES ");
  assert.deepEqual(
    found.map((each) => [each.server, each.sources.length]),
    [["wiki", 1]],
  );
  assert.equal(matching(SERVERS, "the docs")[0]?.sources.length, 2);
  assert.equal(matching(SERVERS, "nothing").length, 0);
  assert.equal(matching(SERVERS, "").length, 2);
});

test("the state of a server is what it said, and what became of its connection since", () => {
  const docs = server("docs", "handbook");
  assert.equal(currentStatus(docs, undefined), "ready");
  assert.equal(currentStatus(docs, "open"), "unavailable");
  assert.equal(currentStatus(docs, "idle"), "on_demand");
  assert.equal(currentStatus({ ...docs, status: "locked" }, "ready"), "locked");
  const needing = { ...docs, sources: docs.sources.map((each) => ({ ...each, status: "action_required" as const })) };
  assert.equal(currentStatus(needing, "ready"), "action_required");
  assert.equal(currentStatus(needing, "failing"), "unavailable");
});

test("the time that a token has left is in words", () => {
  const at = Date.parse("2026-01-01T00:00:00Z");
  const after = (seconds: number) => timeLeft(new Date(at + seconds * 1000).toISOString(), at);
  assert.deepEqual([-5, 0, 59, 60, 3599, 3600 * 8, 86_400 * 3].map(after), [
    "0 s",
    "0 s",
    "59 s",
    "1 min",
    "59 min",
    "8 h 0 min",
    "3 days",
  ]);
  assert.deepEqual(["oauth", "api_key", undefined, "none"].map(kindFor), [
    "oauth_token",
    "api_key",
    "bearer",
    "bearer",
  ]);
});

test("artifacts are shown by their type", () => {
  const artifact = (mime: string, name = "x", size = 1): Artifact => ({ name, mime, size, b64: "" });
  const kinds = [
    "text/html",
    "image/png",
    "image/svg+xml",
    "text/markdown",
    "text/csv",
    "application/json",
    "video/mp4",
  ];
  assert.deepEqual(
    kinds.map((mime) => shownAs(artifact(mime))),
    ["report", "image", "image", "markdown", "text", "text", "none"],
  );
  assert.equal(shownAs(artifact("text/plain", "README.md")), "markdown");
  assert.equal(shownAs(artifact("text/html", "x", 1e8)), "none");
  const all = [artifact("text/html", "a"), artifact("text/html", "b")];
  assert.equal(opened(all, { open_canvas: true, primary_file: "b" })?.name, "b");
  assert.equal(opened(all, { open_canvas: true })?.name, "a");
  assert.equal(opened(all, { primary_file: "b" }), undefined);
});

test("a report that wants scripts is known", () => {
  for (const html of ["<script>1</script>", "<b onclick=x>", "<form>", "<a href='javascript:1'>"]) {
    assert.ok(wantsScripts(html), html);
  }
  assert.ok(!wantsScripts("<style>b { color: red }</style><b>condition = 1</b>"));
});
