-- Run for a new registry, and for one of version 1 to 4, which could not judge many findings at once.

-- The order by severity, with all columns that findings are counted and filtered by: neither reads the table.
CREATE INDEX findings_by_severity ON findings (
    CASE severity WHEN 'critical' THEN 0 WHEN 'high' THEN 1 WHEN 'medium' THEN 2 WHEN 'low' THEN 3 ELSE 4 END,
    file_no, no, status, severity, source, rule_id, issue_no
);
CREATE INDEX findings_of_issue ON findings (issue_no) WHERE issue_no IS NOT NULL;

-- The last report of each scanner and category.
CREATE TABLE scans (
    source TEXT NOT NULL,
    category TEXT NOT NULL,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    run_id TEXT NOT NULL,
    failed INTEGER NOT NULL,
    created INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    reopened INTEGER NOT NULL,
    PRIMARY KEY (source, category)
) WITHOUT ROWID;

-- The events of one judgement follow each other, so two numbers say which they are.
CREATE TABLE judgements (
    id TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    undone_at TEXT
) WITHOUT ROWID;

CREATE TABLE issue_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    issue_no INTEGER NOT NULL REFERENCES issues,
    type TEXT NOT NULL,                  -- issue_created | issue_updated | commented | file_linked | file_unlinked
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX issue_events_by_issue ON issue_events (issue_no, seq);

CREATE TRIGGER association_uncounted AFTER DELETE ON associations BEGIN
    UPDATE files SET associations = associations - 1 WHERE no = OLD.file_no;
END;
