-- What the contract's schema has and ours had not: its two indexes for prefixes, and rows that may be added without the
-- columns that only we have. A passage of which no file is known is never found.

CREATE INDEX IF NOT EXISTS idx_mcp_files_prefix
ON mcp_files (apikey_hash, project, path text_pattern_ops) WHERE deleted = FALSE;

CREATE INDEX IF NOT EXISTS idx_mcp_file_chunks_prefix
ON mcp_file_chunks (apikey_hash, project, file_path text_pattern_ops);

ALTER TABLE mcp_files ALTER COLUMN version SET DEFAULT 1;
ALTER TABLE mcp_file_chunks ALTER COLUMN file_id DROP NOT NULL;

ALTER TABLE mcp_file_chunk_embeddings
ALTER COLUMN apikey_hash SET DEFAULT current_setting('armarium.tenant'),
ALTER COLUMN project SET DEFAULT '',
ALTER COLUMN file_id SET DEFAULT 0;

ALTER TABLE mcp_file_chunk_bm25
ALTER COLUMN apikey_hash SET DEFAULT current_setting('armarium.tenant'),
ALTER COLUMN project SET DEFAULT '',
ALTER COLUMN file_id SET DEFAULT 0;
