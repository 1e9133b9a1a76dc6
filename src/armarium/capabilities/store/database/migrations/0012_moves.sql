-- A rename is one job, however many files it moves. Passages belong to files by id, and searches take the path from the
-- file: nothing about passages has to change before the new paths are found and the old ones are not. Two files may stand
-- under the same path in their passages for a while, until the job of the rename has brought the paths up to date.

ALTER TABLE mcp_file_chunks
DROP CONSTRAINT IF EXISTS mcp_file_chunks_apikey_hash_project_file_path_chunk_index_key;
CREATE UNIQUE INDEX uq_mcp_file_chunks_place ON mcp_file_chunks (file_id, chunk_index);
DROP INDEX idx_mcp_file_chunks_file;
CREATE INDEX IF NOT EXISTS idx_mcp_file_chunks_prefix
ON mcp_file_chunks (apikey_hash, project, file_path text_pattern_ops);

ALTER TABLE mcp_file_index_jobs DROP CONSTRAINT mcp_file_index_jobs_operation_check;
ALTER TABLE mcp_file_index_jobs
ADD CONSTRAINT mcp_file_index_jobs_operation_check CHECK (operation IN ('UPSERT', 'DELETE', 'MOVE'));
