-- A job has two stages: words, written in milliseconds, and vectors, which a model takes its time for. Each stage has a
-- queue of its own, so that the words of a change never wait for the vectors of earlier ones.

ALTER TABLE mcp_file_index_jobs
ADD COLUMN stage VARCHAR(16) NOT NULL DEFAULT 'words' CHECK (stage IN ('words', 'vectors'));

-- Claims walk along this one. It is written so that they cannot take the index of all states instead, which in one
-- stage leads past everything that waits for the other.
CREATE INDEX idx_mcp_file_index_jobs_due ON mcp_file_index_jobs (stage, available_at, id)
WHERE (status = 'pending') IS TRUE;

DROP INDEX idx_mcp_file_index_jobs_path;
CREATE INDEX idx_mcp_file_index_jobs_path ON mcp_file_index_jobs (apikey_hash, project, file_path, stage, id)
WHERE status IN ('pending', 'processing');

-- A file may be renamed and deleted before its passages follow: they are found by the path it had at the end.
CREATE INDEX idx_mcp_files_deleted_path ON mcp_files (apikey_hash, project, path) WHERE deleted = TRUE;
