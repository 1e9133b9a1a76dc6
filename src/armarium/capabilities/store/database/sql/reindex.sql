-- Rebuilding the index for all tenants; the tenant in $1 is always '*'.

-- name: count_files
SELECT count(*) AS files, count(DISTINCT apikey_hash) AS callers
FROM mcp_files
WHERE $1::text IN (apikey_hash, '*') AND deleted = FALSE;

-- name: model_of_a_vector
-- The model of any vector; no row if there are no vectors.
SELECT model FROM mcp_file_chunk_embeddings WHERE $1::text IN (apikey_hash, '*') LIMIT 1;

-- name: reset_made_with
-- Chunks and terms stay, so that lexical search works until files have vectors again.
UPDATE mcp_file_indexed SET made_with = '' WHERE $1::text IN (apikey_hash, '*');

-- name: queue_all_files
WITH queued AS (
    INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at)
    SELECT file.apikey_hash, file.project, file.path, 'UPSERT', file.updated_at
    FROM mcp_files AS file
    WHERE $1::text IN (file.apikey_hash, '*') AND file.deleted = FALSE
    ORDER BY file.id
    RETURNING id
)
SELECT count(*) AS jobs, coalesce(min(id), 0) AS first, coalesce(max(id), 0) AS last FROM queued;

-- name: reindex_progress
SELECT
    count(*) FILTER (WHERE status IN ('pending', 'processing')) AS open,
    count(*) FILTER (WHERE status = 'failed') AS failed
FROM mcp_file_index_jobs
WHERE $1::text IN (apikey_hash, '*') AND id BETWEEN $2 AND $3;
