BEGIN TRANSACTION;
CREATE TABLE associations (
    no INTEGER PRIMARY KEY,
    file_no INTEGER NOT NULL REFERENCES files,
    issue_no INTEGER NOT NULL REFERENCES issues,
    assoc_type TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (file_no, issue_no, assoc_type)
);
INSERT INTO "associations" VALUES(1,1,1,'bug_in','ada','2026-11-18T20:16:22.720229+00:00');
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    file_no INTEGER NOT NULL REFERENCES files,
    kind TEXT NOT NULL,                  -- finding | association | file_metadata_update
    type TEXT NOT NULL,
    at TEXT NOT NULL,
    source_id TEXT NOT NULL,
    data TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,1,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-baf46f8cbf','{"scan_source":"probe","rule_id":"R1","severity":"medium","status":"open","message":"R1 is broken","scan_run_id":"old-run-524dffc7cde82c12","line_start":3}');
INSERT INTO "events" VALUES(2,1,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-fb8757ff6d','{"scan_source":"probe","rule_id":"R1","severity":"medium","status":"open","message":"R1 is broken","scan_run_id":"old-run-524dffc7cde82c12","line_start":9}');
INSERT INTO "events" VALUES(3,1,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-8deb6c59db','{"scan_source":"probe","rule_id":"R2","severity":"medium","status":"open","message":"R2 is broken","scan_run_id":"old-run-524dffc7cde82c12","line_start":9}');
INSERT INTO "events" VALUES(4,1,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-621e55bb2f','{"scan_source":"probe","rule_id":"R3","severity":"medium","status":"open","message":"no line","scan_run_id":"old-run-524dffc7cde82c12"}');
INSERT INTO "events" VALUES(5,1,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-ef4d4bfd7d','{"scan_source":"probe","rule_id":"R4","severity":"medium","status":"open","message":"R4 is broken","scan_run_id":"old-run-524dffc7cde82c12","line_start":12}');
INSERT INTO "events" VALUES(6,1,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-ccf3395aaf','{"scan_source":"probe","rule_id":"R5","severity":"medium","status":"false_positive","message":"R5 is broken","scan_run_id":"old-run-524dffc7cde82c12","line_start":14}');
INSERT INTO "events" VALUES(7,2,'finding','finding_created','2026-11-18T20:16:22.681402+00:00','old-sf-90918a96c8','{"scan_source":"probe","rule_id":"R1","severity":"medium","status":"open","message":"R1 is broken","scan_run_id":"old-run-524dffc7cde82c12","line_start":1}');
INSERT INTO "events" VALUES(8,1,'finding','finding_created','2026-11-18T20:16:22.683405+00:00','old-sf-6f23849408','{"scan_source":"codeql","rule_id":"py/sql","severity":"medium","status":"open","message":"py/sql is broken","scan_run_id":"old-run-b65636b3fda3988e","line_start":20}');
INSERT INTO "events" VALUES(9,1,'finding','finding_updated','2026-11-18T20:16:22.688724+00:00','old-sf-baf46f8cbf','{"scan_source":"probe","rule_id":"R1","severity":"medium","status":"false_positive","changes":{"status":{"old_value":"open","new_value":"false_positive"}},"actor":"ada"}');
INSERT INTO "events" VALUES(10,1,'finding','finding_updated','2026-11-18T20:16:22.696888+00:00','old-sf-621e55bb2f','{"scan_source":"probe","rule_id":"R3","severity":"medium","status":"false_positive","changes":{"status":{"old_value":"open","new_value":"false_positive"}},"actor":"ada"}');
INSERT INTO "events" VALUES(11,1,'finding','finding_updated','2026-11-18T20:16:22.704233+00:00','old-sf-ef4d4bfd7d','{"scan_source":"probe","rule_id":"R4","severity":"medium","status":"false_positive","changes":{"status":{"old_value":"open","new_value":"false_positive"}},"actor":"ada"}');
INSERT INTO "events" VALUES(12,1,'finding','finding_updated','2026-11-18T20:16:22.712259+00:00','old-sf-6f23849408','{"scan_source":"codeql","rule_id":"py/sql","severity":"medium","status":"false_positive","changes":{"status":{"old_value":"open","new_value":"false_positive"}},"actor":"ada"}');
INSERT INTO "events" VALUES(13,1,'finding','finding_updated','2026-11-18T20:16:22.720229+00:00','old-sf-8deb6c59db','{"scan_source":"probe","rule_id":"R2","severity":"medium","status":"open","issue_id":"old-9c9563","actor":"ada"}');
INSERT INTO "events" VALUES(14,1,'association','association_created','2026-11-18T20:16:22.720229+00:00','old-9c9563','{"issue_id":"old-9c9563","issue_title":"R2 is broken","assoc_type":"bug_in","actor":"ada"}');
CREATE TABLE facts (
    name TEXT PRIMARY KEY,               -- prefix: what new ids begin with
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "facts" VALUES('prefix','old');
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
INSERT INTO "files" VALUES(1,'old-f-494c8b1ec2','app.py','python','','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.720229+00:00','{}',NULL,7,2,0,0,2,0,0,1,'
probe
codeql
');
INSERT INTO "files" VALUES(2,'old-f-42c63b8784','lib/util.py','python','','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','{}',NULL,1,1,0,0,1,0,0,0,'
probe
');
CREATE TABLE findings (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    file_no INTEGER NOT NULL REFERENCES files,
    source TEXT NOT NULL,
    key TEXT NOT NULL,                   -- what a later scan knows it by, within its file and source
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
INSERT INTO "findings" VALUES(1,'old-sf-baf46f8cbf',1,'probe','line:3:R1','R1','medium','false_positive',0,'R1 is broken','',3,3,NULL,NULL,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.688724+00:00','2026-11-18T20:16:22.681402+00:00','{"column":5}');
INSERT INTO "findings" VALUES(2,'old-sf-fb8757ff6d',1,'probe','line:9:R1','R1','medium','open',0,'R1 is broken','',9,9,NULL,NULL,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','{}');
INSERT INTO "findings" VALUES(3,'old-sf-8deb6c59db',1,'probe','line:9:R2','R2','medium','open',0,'R2 is broken','',9,9,NULL,1,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.720229+00:00','2026-11-18T20:16:22.681402+00:00','{}');
INSERT INTO "findings" VALUES(4,'old-sf-621e55bb2f',1,'probe','message:a6345c2272adba766ccf7751bb9d919b0759dd67dd34cd433ce8cdc9f54c6e3f:R3','R3','medium','false_positive',0,'no line','',NULL,NULL,NULL,NULL,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.696888+00:00','2026-11-18T20:16:22.681402+00:00','{}');
INSERT INTO "findings" VALUES(5,'old-sf-ef4d4bfd7d',1,'probe','fingerprint:abcdef0123456789','R4','medium','false_positive',0,'R4 is broken','',12,12,'abcdef0123456789',NULL,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.704233+00:00','2026-11-18T20:16:22.681402+00:00','{}');
INSERT INTO "findings" VALUES(6,'old-sf-ccf3395aaf',1,'probe','line:14:R5','R5','medium','false_positive',1,'R5 is broken','',14,14,NULL,NULL,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','{}');
INSERT INTO "findings" VALUES(7,'old-sf-90918a96c8',2,'probe','line:1:R1','R1','medium','open',0,'R1 is broken','',1,1,NULL,NULL,1,'old-run-524dffc7cde82c12','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','2026-11-18T20:16:22.681402+00:00','{}');
INSERT INTO "findings" VALUES(8,'old-sf-6f23849408',1,'codeql','fingerprint:0123456789abcdef','py/sql','medium','false_positive',0,'py/sql is broken','',20,20,'0123456789abcdef',NULL,1,'old-run-b65636b3fda3988e','2026-11-18T20:16:22.683405+00:00','2026-11-18T20:16:22.712259+00:00','2026-11-18T20:16:22.683405+00:00','{}');
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
INSERT INTO "issues" VALUES(1,'old-9c9563','R2 is broken','app.py:9
probe R2 (medium), finding old-sf-8deb6c59db

R2 is broken','open',2,'[]','','2026-11-18T20:16:22.720229+00:00','2026-11-18T20:16:22.720229+00:00',NULL);
CREATE UNIQUE INDEX files_present ON files (path) WHERE removed_at IS NULL;
CREATE INDEX issues_by_urgency ON issues (priority, updated_at DESC);
CREATE UNIQUE INDEX findings_by_key ON findings (file_no, source, key);
CREATE INDEX findings_of_file ON findings (file_no, updated_at);
CREATE INDEX findings_by_updated_at ON findings (updated_at, status, severity, source, file_no);
CREATE INDEX associations_by_issue ON associations (issue_no);
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
CREATE INDEX files_by_path ON files (
    path, no, language, open_findings, open_critical, open_high, open_medium, open_low, open_info, sources,
    removed_at
) WHERE removed_at IS NULL;
CREATE INDEX files_by_language ON files (
    language, path, no, open_findings, open_critical, open_high, open_medium, open_low, open_info, sources,
    removed_at
) WHERE removed_at IS NULL;
CREATE INDEX files_by_updated_at ON files (
    updated_at DESC, path, no, language, open_findings, open_critical, open_high, open_medium, open_low, open_info, sources,
    removed_at
) WHERE removed_at IS NULL;
CREATE INDEX files_by_first_seen ON files (
    first_seen DESC, path, no, language, open_findings, open_critical, open_high, open_medium, open_low, open_info, sources,
    removed_at
) WHERE removed_at IS NULL;
CREATE INDEX files_at ON files (path, removed_at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',14);
COMMIT;
PRAGMA user_version = 3;
