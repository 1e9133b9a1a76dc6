-- name: fact
SELECT value FROM facts WHERE name = ?;

-- name: put_fact
INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: last_event_at
SELECT at FROM events ORDER BY seq DESC LIMIT 1;

-- name: put_event
INSERT INTO events (file_no, kind, type, at, source_id, data) VALUES (?, ?, ?, ?, ?, ?);

-- name: count_events
SELECT count(*) FROM events WHERE file_no = :file_no AND (:kind IS NULL OR kind = :kind);

-- name: list_events
-- Select the numbers first, and read only the rows of the page.
SELECT seq, type, at, source_id, data FROM events WHERE seq IN (
    SELECT seq FROM events WHERE file_no = :file_no AND (:kind IS NULL OR kind = :kind)
    ORDER BY seq DESC LIMIT :limit OFFSET :offset
) ORDER BY seq DESC;

-- name: file_by_id
SELECT {file} FROM files WHERE id = ?;

-- name: file_by_no
SELECT {file} FROM files WHERE no = ?;

-- name: file_at
-- The existing file, otherwise the one that was removed last.
SELECT {file} FROM files WHERE path = ? ORDER BY removed_at IS NOT NULL, removed_at DESC, no DESC LIMIT 1;

-- name: files_at_or_below
-- A file, or those in a directory: '0' is the character after '/'.
SELECT {file} FROM files WHERE removed_at IS NULL AND (path = :path OR (path >= :path || '/' AND path < :path || '0'))
ORDER BY path;

-- name: count_files
SELECT count(*) FROM files WHERE removed_at IS NULL AND {where};

-- name: list_files
-- The index of the order finds the page; only its rows are read.
SELECT {file} FROM (
    SELECT no AS page_no, row_number() OVER () AS place FROM (
        SELECT no FROM files {index} WHERE removed_at IS NULL AND {where} ORDER BY {order} LIMIT :limit OFFSET :offset
    )
) CROSS JOIN files ON no = page_no ORDER BY place;

-- name: put_file
INSERT INTO files (id, path, language, file_type, first_seen, updated_at, metadata)
VALUES (:id, :path, :language, :file_type, :now, :now, :metadata) RETURNING no;

-- name: change_file
UPDATE files SET path = :path, language = :language, file_type = :file_type, metadata = :metadata,
    removed_at = :removed_at, updated_at = :now
WHERE no = :no;

-- name: touch_file
UPDATE files SET updated_at = ? WHERE no = ?;

-- name: set_file_sketch
UPDATE files SET sketch = ? WHERE no = ? AND sketch <> ?;

-- name: sketched_files
SELECT path, sketch FROM files WHERE removed_at IS NULL AND total_findings > 0 AND sketch <> x'';

-- name: taken_file_ids
SELECT id FROM files WHERE id IN (SELECT value FROM json_each(?));

-- name: taken_finding_ids
SELECT id FROM findings WHERE id IN (SELECT value FROM json_each(?));

-- name: taken_issue_ids
SELECT id FROM issues WHERE id IN (SELECT value FROM json_each(?));

-- name: known_findings
-- The findings that a scan compares with reported ones.
SELECT no, id, rule_id, severity, status, message, suggestion, line_start, line_end, suppressed, category, fingerprint,
    context, metadata
FROM findings WHERE file_no = :file_no AND source = :source AND category IN (:category, '') ORDER BY no;

-- name: open_findings_covered
-- Findings that this run reported already have its id.
SELECT n.no, n.id, n.file_no, n.rule_id, n.severity
FROM files f CROSS JOIN findings n ON n.file_no = f.no AND n.source = :source
WHERE n.status = 'open' AND n.category = :category AND n.scan_run_id <> :run AND (f.path = :path OR (f.path >= :path || '/' AND f.path < :path || '0'));

-- name: open_findings_of_source
SELECT n.no, n.id, n.file_no, n.rule_id, n.severity FROM files f CROSS JOIN findings n ON n.file_no = f.no
WHERE n.source = :source AND n.status = 'open' AND n.category = :category AND n.scan_run_id <> :run AND f.open_findings > 0;

-- name: open_findings_of_file
SELECT no, id, source, rule_id, severity FROM findings WHERE file_no = ? AND status = 'open' ORDER BY no;

-- name: put_finding
INSERT INTO findings (id, file_no, source, key, rule_id, severity, status, message, suggestion, line_start, line_end,
    fingerprint, scan_run_id, first_seen, updated_at, last_seen_at, metadata, suppressed, category, context)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_finding_identity
UPDATE findings SET category = ?, fingerprint = ?, context = ? WHERE no = ?;

-- name: mark_finding_seen
UPDATE findings SET seen_count = seen_count + 1, last_seen_at = ?, scan_run_id = ?, metadata = ? WHERE no = ?;

-- name: change_finding
UPDATE findings SET rule_id = ?, severity = ?, status = ?, message = ?, suggestion = ?, line_start = ?, line_end = ?,
    suppressed = ?, updated_at = ?
WHERE no = ?;

-- name: set_finding_status
-- An explicit status ends a scan's suppression.
UPDATE findings SET status = ?, suppressed = FALSE, updated_at = ? WHERE no = ?;

-- name: is_finding_suppressed
SELECT suppressed FROM findings WHERE no = ?;

-- name: set_finding_issue
UPDATE findings SET issue_no = ?, updated_at = ? WHERE no = ?;

-- name: finding_by_id
SELECT {finding} FROM findings n JOIN files f ON f.no = n.file_no LEFT JOIN issues i ON i.no = n.issue_no WHERE n.id = ?;

-- name: contexts
SELECT no, category, context FROM findings WHERE category <> '' OR context <> x'';

-- name: recent_findings
SELECT {finding} FROM findings n JOIN files f ON f.no = n.file_no LEFT JOIN issues i ON i.no = n.issue_no
WHERE n.file_no = ? ORDER BY n.updated_at DESC, n.no DESC LIMIT ?;

-- name: count_findings
SELECT count(*) FROM findings n WHERE {where};

-- name: list_findings
SELECT {finding} FROM (
    SELECT n.no AS page_no, row_number() OVER () AS place FROM (
        SELECT n.no AS no FROM findings n WHERE {where} ORDER BY n.updated_at DESC, n.no DESC LIMIT :limit OFFSET :offset
    ) n
) CROSS JOIN findings n ON n.no = page_no JOIN files f ON f.no = n.file_no LEFT JOIN issues i ON i.no = n.issue_no
ORDER BY place;

-- name: issue_by_id
SELECT {issue} FROM issues i WHERE i.id = ?;

-- name: put_issue
INSERT INTO issues (id, title, body, status, priority, labels, external_ref, created_at, updated_at, closed_at)
VALUES (:id, :title, :body, :status, :priority, :labels, :external_ref, :created_at, :updated_at, :closed_at)
RETURNING no;

-- name: change_issue
UPDATE issues SET title = :title, body = :body, status = :status, priority = :priority, labels = :labels,
    external_ref = :external_ref, updated_at = :updated_at, closed_at = :closed_at
WHERE id = :id;

-- name: count_issues
SELECT count(*) FROM issues i WHERE {where};

-- name: list_issues
SELECT {issue} FROM issues i WHERE {where} ORDER BY i.priority, i.updated_at DESC, i.no LIMIT :limit OFFSET :offset;

-- name: put_association
-- Idempotent.
INSERT INTO associations (file_no, issue_no, assoc_type, actor, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING RETURNING no;

-- name: associations_of_file
SELECT {file_link} FROM associations a JOIN files f ON f.no = a.file_no JOIN issues i ON i.no = a.issue_no
WHERE a.file_no = ? ORDER BY a.no;

-- name: associations_of_issue
SELECT {issue_link} FROM associations a JOIN files f ON f.no = a.file_no JOIN issues i ON i.no = a.issue_no
WHERE a.issue_no = ? ORDER BY a.no;

-- name: association_of_file
SELECT {file_link} FROM associations a JOIN files f ON f.no = a.file_no JOIN issues i ON i.no = a.issue_no
WHERE a.file_no = ? AND a.no = ?;

-- name: delete_association
DELETE FROM associations WHERE no = ?;

-- name: search_findings
-- The order selects the outer table, so that its index finds the page.
SELECT {finding} FROM {tables} LEFT JOIN issues i ON i.no = n.issue_no WHERE {where} ORDER BY {order} LIMIT :limit;

-- name: count_findings_by_facets
SELECT n.status, n.severity, n.source, n.rule_id, count(*) FROM {tables} WHERE {where}
GROUP BY n.status, n.severity, n.source, n.rule_id;

-- name: count_findings_by_directory
-- Counted by file first: there are fewer files. Files that are directly in the directory count for themselves.
SELECT CASE instr(substr(f.path, :skip + 1), '/') WHEN 0 THEN f.path
        ELSE substr(f.path, 1, :skip + instr(substr(f.path, :skip + 1), '/')) END AS entry, sum(of_file.found) AS found
FROM (SELECT n.file_no AS no, count(*) AS found FROM {tables} WHERE {where} GROUP BY n.file_no) of_file
JOIN files f ON f.no = of_file.no GROUP BY entry ORDER BY found DESC, entry LIMIT :limit;

-- name: findings_to_judge
SELECT n.no, n.id, n.file_no, n.source, n.rule_id, n.severity, n.status, n.suppressed, n.updated_at
FROM findings n JOIN files f ON f.no = n.file_no WHERE {where} ORDER BY n.no LIMIT :limit;

-- name: last_event
SELECT seq, at FROM events ORDER BY seq DESC LIMIT 1;

-- name: put_judgement
INSERT INTO judgements (id, at, actor, status, reason, first_event, last_event) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: judgement
SELECT id, at, actor, status, reason, first_event, last_event, undone_at FROM judgements WHERE id = ?;

-- name: mark_judgement_undone
UPDATE judgements SET undone_at = ? WHERE id = ?;

-- name: judged_findings
-- The findings that a judgement changed, with what they were and what they are.
SELECT n.no, n.id, n.file_no, n.source, n.rule_id, n.severity, n.status, n.suppressed, n.updated_at, e.data
FROM events e CROSS JOIN findings n ON n.id = e.source_id WHERE e.seq BETWEEN ? AND ? ORDER BY e.seq;

-- name: restore_finding
UPDATE findings SET status = ?, suppressed = ?, updated_at = ? WHERE no = ?;

-- name: events_of_finding
SELECT seq, type, at, source_id, data FROM events WHERE file_no = ? AND kind = 'finding' AND source_id = ?
ORDER BY seq DESC LIMIT ?;

-- name: put_scan
INSERT INTO scans (source, category, at, actor, run_id, failed, created, closed, reopened)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, category) DO UPDATE SET at = excluded.at, actor = excluded.actor, run_id = excluded.run_id,
    failed = excluded.failed, created = excluded.created, closed = excluded.closed, reopened = excluded.reopened;

-- name: last_scans
SELECT source, category, at, actor, failed, created, closed, reopened FROM scans ORDER BY at DESC LIMIT ?;

-- name: search_issues
SELECT {issue} FROM issues i WHERE {where} ORDER BY i.priority, i.updated_at DESC, i.no LIMIT :limit;

-- name: count_issues_by_status
SELECT i.status, count(*) FROM issues i WHERE {where} GROUP BY i.status;

-- name: put_issue_event
INSERT INTO issue_events (issue_no, type, at, actor, data) VALUES (?, ?, ?, ?, ?);

-- name: list_issue_events
SELECT seq, type, at, actor, data FROM issue_events WHERE issue_no = :issue_no AND seq < :before
ORDER BY seq DESC LIMIT :limit;
