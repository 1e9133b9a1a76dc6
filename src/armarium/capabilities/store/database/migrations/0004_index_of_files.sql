-- Which file a passage is of, by its id: a file that is renamed keeps its passages, and a new file of the same path
-- does not take over those of the old one.

ALTER TABLE mcp_file_chunks ADD COLUMN file_id BIGINT NOT NULL REFERENCES mcp_files (id) ON DELETE CASCADE;
CREATE INDEX idx_mcp_file_chunks_file ON mcp_file_chunks (file_id);
-- Vectors are taken from any passage of the tenant with the same text.
CREATE INDEX idx_mcp_file_chunks_content ON mcp_file_chunks (apikey_hash, content_hash);

-- Here again, so that a scan need not visit the passages themselves to leave out those of deleted files.
ALTER TABLE mcp_file_chunk_embeddings ADD COLUMN file_id BIGINT NOT NULL;
ALTER TABLE mcp_file_chunk_bm25 ADD COLUMN file_id BIGINT NOT NULL;

-- The version of each file that its passages were last made from: what was read earlier never replaces what was read
-- later. The sums are what BM25 needs of a project; counting its passages at every search would read them all.
CREATE TABLE mcp_file_indexed (
    file_id     BIGINT       PRIMARY KEY REFERENCES mcp_files (id) ON DELETE CASCADE,
    apikey_hash CHAR(64)     NOT NULL,
    project     VARCHAR(128) NOT NULL,
    version     BIGINT       NOT NULL,
    made_with   VARCHAR(256) NOT NULL,
    passages    INT          NOT NULL,
    words       BIGINT       NOT NULL,
    languages   TEXT[]       NOT NULL,
    indexed_at  TIMESTAMPTZ  NOT NULL DEFAULT now()
);

CREATE INDEX idx_mcp_file_indexed_project ON mcp_file_indexed (apikey_hash, project);
ALTER TABLE mcp_file_indexed ENABLE ROW LEVEL SECURITY;
ALTER TABLE mcp_file_indexed FORCE ROW LEVEL SECURITY;
CREATE POLICY only_own_tenant ON mcp_file_indexed
USING (current_setting('armarium.tenant', true) IN (apikey_hash, '*'));

-- A scan reads every vector and every word of a project: in the row and as they are, not elsewhere and compressed.
ALTER TABLE mcp_file_chunk_embeddings SET (toast_tuple_target = 8160);
ALTER TABLE mcp_file_chunk_bm25 ALTER COLUMN tokens SET STORAGE EXTERNAL;
ALTER TABLE mcp_file_chunk_bm25 SET (toast_tuple_target = 8160);

-- A slice of what is not compressed is read without the rest, and appending to it does not compress it all anew.
ALTER TABLE mcp_files ALTER COLUMN content SET STORAGE EXTERNAL;
