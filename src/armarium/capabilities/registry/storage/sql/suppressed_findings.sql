-- Run for a registry of version 1 or 2, which did not store who set a finding's status. The timeline has it: only events
-- caused by a person have an actor.
ALTER TABLE findings ADD COLUMN suppressed INTEGER NOT NULL DEFAULT 0;
UPDATE findings SET suppressed = 1 WHERE status = 'false_positive' AND (
    SELECT json_extract(data, '$.actor') IS NULL FROM events e
    WHERE e.file_no = findings.file_no AND e.kind = 'finding' AND e.source_id = findings.id
        AND (e.type = 'finding_created' OR json_extract(e.data, '$.changes.status.new_value') = 'false_positive')
    ORDER BY e.seq DESC LIMIT 1
);
