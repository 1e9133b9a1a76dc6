-- `no` columns join tables and are internal; callers use ids. Findings are never deleted.

CREATE TABLE facts (
    name TEXT PRIMARY KEY,               -- prefix: what new ids begin with
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE files (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL,
    language TEXT NOT NULL,
    file_type TEXT NOT NULL,
    first_seen TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    metadata TEXT NOT NULL,
    removed_at TEXT,
    -- The rest is counted by the triggers below and by nobody else.
    total_findings INTEGER NOT NULL DEFAULT 0,
    open_findings INTEGER NOT NULL DEFAULT 0,
    open_critical INTEGER NOT NULL DEFAULT 0,
    open_high INTEGER NOT NULL DEFAULT 0,
    open_medium INTEGER NOT NULL DEFAULT 0,
    open_low INTEGER NOT NULL DEFAULT 0,
    open_info INTEGER NOT NULL DEFAULT 0,
    associations INTEGER NOT NULL DEFAULT 0,
    sources TEXT NOT NULL DEFAULT ''     -- who ever found something, each name between line ends
);
-- A file that was replaced by a move keeps its record, as removed and with its path.
CREATE UNIQUE INDEX files_present ON files (path) WHERE removed_at IS NULL;
-- The indexes of listings are in listing_indexes.sql.

CREATE TABLE issues (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    status TEXT NOT NULL,                -- open | in_progress | closed
    priority INTEGER NOT NULL,
    labels TEXT NOT NULL,                -- a JSON list
    external_ref TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    closed_at TEXT
);
CREATE INDEX issues_by_urgency ON issues (priority, updated_at DESC);

CREATE TABLE findings (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    file_no INTEGER NOT NULL REFERENCES files,
    source TEXT NOT NULL,
    key TEXT NOT NULL,                   -- unique within its file and source; the id, except in earlier versions
    rule_id TEXT NOT NULL,
    severity TEXT NOT NULL,
    status TEXT NOT NULL,                -- open | fixed | false_positive
    suppressed INTEGER NOT NULL DEFAULT 0, -- a false positive by the word of a scan, until a scan takes it back
    message TEXT NOT NULL,
    suggestion TEXT NOT NULL,
    line_start INTEGER,
    line_end INTEGER,
    fingerprint TEXT,
    issue_no INTEGER REFERENCES issues,
    seen_count INTEGER NOT NULL DEFAULT 1,
    scan_run_id TEXT NOT NULL,
    first_seen TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE UNIQUE INDEX findings_by_key ON findings (file_no, source, key);
CREATE INDEX findings_of_file ON findings (file_no, updated_at);
CREATE INDEX findings_by_updated_at ON findings (updated_at, status, severity, source, file_no);

CREATE TABLE associations (
    no INTEGER PRIMARY KEY,
    file_no INTEGER NOT NULL REFERENCES files,
    issue_no INTEGER NOT NULL REFERENCES issues,
    assoc_type TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (file_no, issue_no, assoc_type)
);
CREATE INDEX associations_by_issue ON associations (issue_no);

-- AUTOINCREMENT: ids of events are derived from `seq`, which must never be reused.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    file_no INTEGER NOT NULL REFERENCES files,
    kind TEXT NOT NULL,                  -- finding | association | file_metadata_update
    type TEXT NOT NULL,
    at TEXT NOT NULL,
    source_id TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX events_by_file ON events (file_no, seq, kind);

CREATE TRIGGER finding_counted AFTER INSERT ON findings BEGIN
    UPDATE files SET
        total_findings = total_findings + 1,
        open_findings = open_findings + (NEW.status = 'open'),
        open_critical = open_critical + (NEW.status = 'open' AND NEW.severity = 'critical'),
        open_high = open_high + (NEW.status = 'open' AND NEW.severity = 'high'),
        open_medium = open_medium + (NEW.status = 'open' AND NEW.severity = 'medium'),
        open_low = open_low + (NEW.status = 'open' AND NEW.severity = 'low'),
        open_info = open_info + (NEW.status = 'open' AND NEW.severity = 'info'),
        sources = CASE
            WHEN instr(sources, char(10) || NEW.source || char(10)) THEN sources
            WHEN sources = '' THEN char(10) || NEW.source || char(10)
            ELSE sources || NEW.source || char(10)
        END
    WHERE no = NEW.file_no;
END;

CREATE TRIGGER finding_recounted AFTER UPDATE OF status, severity ON findings
WHEN OLD.status <> NEW.status OR OLD.severity <> NEW.severity BEGIN
    UPDATE files SET
        open_findings = open_findings + (NEW.status = 'open') - (OLD.status = 'open'),
        open_critical = open_critical
            + (NEW.status = 'open' AND NEW.severity = 'critical') - (OLD.status = 'open' AND OLD.severity = 'critical'),
        open_high = open_high
            + (NEW.status = 'open' AND NEW.severity = 'high') - (OLD.status = 'open' AND OLD.severity = 'high'),
        open_medium = open_medium
            + (NEW.status = 'open' AND NEW.severity = 'medium') - (OLD.status = 'open' AND OLD.severity = 'medium'),
        open_low = open_low
            + (NEW.status = 'open' AND NEW.severity = 'low') - (OLD.status = 'open' AND OLD.severity = 'low'),
        open_info = open_info
            + (NEW.status = 'open' AND NEW.severity = 'info') - (OLD.status = 'open' AND OLD.severity = 'info')
    WHERE no = NEW.file_no;
END;

CREATE TRIGGER association_counted AFTER INSERT ON associations BEGIN
    UPDATE files SET associations = associations + 1 WHERE no = NEW.file_no;
END;
