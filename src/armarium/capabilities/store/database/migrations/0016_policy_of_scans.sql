-- A search scans the terms and the vectors of whole projects. The setting is read once for a statement and not twice for
-- each row, and compared in the type of the column.
ALTER POLICY only_own_tenant ON mcp_file_chunk_bm25
USING (
    apikey_hash = (SELECT current_setting('armarium.tenant', TRUE))::BPCHAR
    OR (SELECT current_setting('armarium.tenant', TRUE)) = '*'
);

ALTER POLICY only_own_tenant ON mcp_file_chunk_embeddings
USING (
    apikey_hash = (SELECT current_setting('armarium.tenant', TRUE))::BPCHAR
    OR (SELECT current_setting('armarium.tenant', TRUE)) = '*'
);
