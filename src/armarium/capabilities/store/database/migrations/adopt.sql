-- Tables that another program made by the contract's own statements, before the first migration: files are kept and get
-- what the first migration would have given them. Everything else in these tables is made from the files, and is made
-- anew.

DROP TABLE IF EXISTS mcp_file_chunk_embeddings, mcp_file_chunk_bm25, mcp_file_chunks, mcp_file_index_jobs;

CREATE TABLE IF NOT EXISTS mcp_files (
    id BIGSERIAL PRIMARY KEY,
    apikey_hash CHAR(64) NOT NULL,
    project VARCHAR(128) NOT NULL,
    path VARCHAR(1024) NOT NULL,
    content BYTEA NOT NULL
);

ALTER TABLE mcp_files
ADD COLUMN IF NOT EXISTS size BIGINT,
ADD COLUMN IF NOT EXISTS created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
ADD COLUMN IF NOT EXISTS updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
ADD COLUMN IF NOT EXISTS deleted BOOLEAN NOT NULL DEFAULT FALSE,
ADD COLUMN IF NOT EXISTS deleted_at TIMESTAMPTZ,
ADD COLUMN IF NOT EXISTS version BIGINT;

-- Policies are joined by OR: one that was there before would show rows to every tenant.
DO $$
DECLARE
    earlier RECORD;
BEGIN
    FOR earlier IN SELECT polname FROM pg_policy WHERE polrelid = 'mcp_files'::regclass LOOP
        EXECUTE format('DROP POLICY %I ON mcp_files', earlier.polname);
    END LOOP;
END $$;
ALTER TABLE mcp_files NO FORCE ROW LEVEL SECURITY;

-- Every file of a project has a version of its own, as if they had been written one after the other.
UPDATE mcp_files AS file
SET
    version = numbered.version,
    size = octet_length(file.content),
    created_at = coalesce(file.created_at, now()),
    updated_at = coalesce(file.updated_at, file.created_at, now()),
    deleted = coalesce(file.deleted, FALSE),
    deleted_at = CASE WHEN file.deleted THEN coalesce(file.deleted_at, now()) END
FROM (
    SELECT id, row_number() OVER (PARTITION BY apikey_hash, project ORDER BY updated_at, id) AS version
    FROM mcp_files
) AS numbered
WHERE file.id = numbered.id;

-- Paths are compared byte by byte. A column that has the type already is not rewritten.
ALTER TABLE mcp_files
ALTER COLUMN apikey_hash TYPE CHAR(64),
ALTER COLUMN project TYPE VARCHAR(128),
ALTER COLUMN content TYPE BYTEA,
ALTER COLUMN path TYPE VARCHAR(1024) COLLATE "C",
ALTER COLUMN version SET NOT NULL,
ALTER COLUMN size SET NOT NULL,
ALTER COLUMN size SET DEFAULT 0,
ALTER COLUMN created_at SET NOT NULL,
ALTER COLUMN created_at SET DEFAULT now(),
ALTER COLUMN updated_at SET NOT NULL,
ALTER COLUMN updated_at SET DEFAULT now(),
ALTER COLUMN deleted SET NOT NULL,
ALTER COLUMN deleted SET DEFAULT FALSE,
ADD CHECK (size = octet_length(content));
