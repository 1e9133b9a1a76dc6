import assert from "node:assert/strict";
import { test } from "node:test";

import {
  count,
  filterIn,
  findingEvent,
  issueEvent,
  placeOf,
  referenceOf,
  skippedOf,
} from "../src/pages/findings/words.ts";

test("an address is a filter, without values that nothing can have", () => {
  const params = new URLSearchParams(
    "status=open&status=gone&severity=high&rule=S608&path=a/&path=src/&q=x+y&sort=path",
  );
  assert.deepEqual(filterIn(params), {
    status: ["open"],
    severity: ["high"],
    rule_id: ["S608"],
    path_prefix: "src/",
    text: "x y",
  });
  assert.deepEqual(filterIn(new URLSearchParams("status=&source=&issue=p-1&status=nothing")), { issue_id: "p-1" });
});

test("numbers and places are told in words", () => {
  assert.equal(count(1, "finding"), "1 finding");
  assert.equal(count(4212, "finding"), "4,212 findings");
  assert.equal(placeOf({ file_path: "src/db.py", line_start: 88 }), "src/db.py:88");
  assert.equal(placeOf({ file_path: "src/db.py", line_start: null }), "src/db.py");
});

test("every event of a finding is a sentence", () => {
  const changed = { changes: { status: { old_value: "open", new_value: "false_positive" } } };
  const sentences = [
    findingEvent({ type: "finding_created", data: { scan_source: "ruff" } }),
    findingEvent({ type: "finding_updated", data: changed }),
    findingEvent({
      type: "finding_updated",
      data: { undoes: "j", changes: { status: { old_value: "false_positive", new_value: "open" } } },
    }),
    findingEvent({ type: "finding_updated", data: { changes: { line_start: {} } } }),
    findingEvent({ type: "finding_closed", data: { scan_run_id: "r" } }),
    findingEvent({ type: "finding_closed", data: { reason: "file_removed" } }),
    findingEvent({ type: "finding_updated", data: { issue_id: "p-1" } }),
    findingEvent({ type: "finding_updated", data: { reopened: true, ...changed } }),
  ];
  assert.deepEqual(sentences, [
    "found by ruff",
    "open → false positive",
    "undone: open again",
    "line start changed",
    "fixed: no longer found",
    "fixed: the file was removed",
    "became the issue p-1",
    "found again, and open again",
  ]);
});

test("every event of an issue is a sentence", () => {
  const changes = {
    status: { old_value: "open", new_value: "in_progress" },
    priority: { old_value: 2, new_value: 0 },
    labels: { old_value: [], new_value: ["a", "b"] },
    body: {},
  };
  assert.equal(issueEvent({ type: "issue_created", data: {} }), "created the issue");
  assert.equal(issueEvent({ type: "issue_created", data: { finding_id: "f" } }), "made the issue from a finding");
  assert.equal(issueEvent({ type: "file_linked", data: { path: "a.py" } }), "linked a.py");
  assert.equal(
    issueEvent({ type: "issue_updated", data: { changes } }),
    "set the status from open to in progress; set the priority from P2 to P0; " +
      "set the labels from nothing to a, b; changed the description",
  );
});

test("skipped results are told with their reason", () => {
  assert.deepEqual(
    skippedOf({
      skipped: [
        { reason: "no_location", count: 1200 },
        { reason: "new_one", count: 1 },
      ],
    }),
    ["1,200 without a place", "1 new_one"],
  );
});

test("a reference encodes each name of a path", () => {
  assert.equal(referenceOf("root", ["work", "a b", "50%.py"]), "root://work/a%20b/50%25.py");
});
