-- Run for a new registry, and for one of version 1, whose indexes also contained removed files.
DROP INDEX IF EXISTS files_by_path;
DROP INDEX IF EXISTS files_by_language;
DROP INDEX IF EXISTS files_by_updated_at;
DROP INDEX IF EXISTS files_by_first_seen;
DROP INDEX IF EXISTS files_at;

-- One covering index per order of a listing, with all columns of its filters: a page is found without reading the table.
-- Removed files are not listed. SQLite still reads `removed_at`, so the index contains it.
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
-- Removed files are also looked up by path.
CREATE INDEX files_at ON files (path, removed_at);
