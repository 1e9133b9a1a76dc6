-- Rows of one file or one chunk are looked up by id. There the tenant is compared in brackets with IS TRUE: in a table
-- that grew since the last ANALYZE, the planner underestimates the rows of a tenant and would read all of them.

-- name: file_to_index
-- Returns the content only if the file must be indexed.
SELECT
    file.id,
    file.version,
    indexed.made_with,
    indexed.languages,
    CASE WHEN indexed.version >= file.version AND indexed.made_with = ANY($4::text[]) THEN NULL ELSE file.content END
        AS content
FROM mcp_files AS file
LEFT JOIN mcp_file_indexed AS indexed ON indexed.file_id = file.id AND indexed.apikey_hash = file.apikey_hash
WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = $3 AND file.deleted = FALSE;

-- name: chunks_of_file
SELECT
    chunk.chunk_index,
    chunk.start_byte,
    chunk.end_byte,
    chunk.content_hash,
    bm25.token_count,
    EXISTS (
        SELECT FROM mcp_file_chunk_embeddings AS vector
        WHERE (vector.apikey_hash = $1) IS TRUE AND vector.chunk_id = chunk.id AND vector.model = $3
    ) AS embedded
FROM mcp_file_chunks AS chunk
JOIN mcp_file_chunk_bm25 AS bm25 ON bm25.chunk_id = chunk.id AND (bm25.apikey_hash = $1) IS TRUE
WHERE (chunk.apikey_hash = $1) IS TRUE AND chunk.file_id = $2;

-- name: vectors_of_texts
-- Any chunk of the tenant qualifies: equal texts have equal vectors. The hashes are cast to the type of the column,
-- since the index does not serve comparisons with text.
SELECT DISTINCT ON (chunk.content_hash) chunk.content_hash, vector.embedding::text AS embedding
FROM mcp_file_chunks AS chunk
JOIN mcp_file_chunk_embeddings AS vector ON vector.chunk_id = chunk.id AND (vector.apikey_hash = $1) IS TRUE
WHERE chunk.apikey_hash = $1 AND chunk.content_hash = ANY($2::bpchar[]) AND vector.model = $3;

-- name: lock_path
SELECT pg_advisory_xact_lock($1);

-- name: begin_replacing
-- Returns no row if the file is deleted, if a later version is indexed, or if this version is indexed in an accepted
-- way ($9). The row stays locked until the commit, so that a file renamed in the meantime is not indexed twice
-- concurrently under its two names.
INSERT INTO mcp_file_indexed AS indexed (file_id, apikey_hash, project, version, made_with, passages, words, languages)
SELECT file.id, file.apikey_hash, file.project, $4, $5, $6, $7, $8
FROM mcp_files AS file
WHERE file.apikey_hash = $1 AND file.project = $2 AND file.id = $3 AND file.deleted = FALSE
ON CONFLICT (file_id) DO UPDATE SET
    version = excluded.version,
    made_with = excluded.made_with,
    passages = excluded.passages,
    words = excluded.words,
    languages = excluded.languages,
    indexed_at = now()
WHERE indexed.version < excluded.version
    OR (indexed.version = excluded.version AND indexed.made_with <> ALL($9::text[]))
RETURNING file_id;

-- name: chunks_to_replace
-- Chunks of the file under any earlier path, and chunks of deleted files that had this path.
SELECT chunk.id, chunk.chunk_index, chunk.start_byte, chunk.end_byte, chunk.content_hash, chunk.file_path, chunk.file_id
FROM mcp_file_chunks AS chunk
WHERE (chunk.apikey_hash = $1) IS TRUE AND chunk.file_id = $3
UNION ALL
SELECT chunk.id, chunk.chunk_index, chunk.start_byte, chunk.end_byte, chunk.content_hash, chunk.file_path, chunk.file_id
FROM mcp_files AS deleted_file
JOIN mcp_file_chunks AS chunk ON chunk.file_id = deleted_file.id AND (chunk.apikey_hash = $1) IS TRUE
WHERE deleted_file.apikey_hash = $1 AND deleted_file.project = $2 AND deleted_file.path = $4
    AND deleted_file.deleted = TRUE;

-- name: drop_chunks
DELETE FROM mcp_file_chunks WHERE apikey_hash = $1 AND id = ANY($2::bigint[]);

-- name: move_chunks
UPDATE mcp_file_chunks SET file_path = $3, updated_at = now() WHERE apikey_hash = $1 AND id = ANY($2::bigint[]);

-- name: add_chunks
WITH given AS (
    SELECT *
    FROM unnest(
        $6::int[], $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::int[]
    ) AS new_chunk (chunk_index, start_byte, end_byte, content, content_hash, embedding, tokens, token_count)
),
chunk AS (
    INSERT INTO mcp_file_chunks (
        apikey_hash, project, file_path, file_id, chunk_index, start_byte, end_byte, chunk_content, content_hash
    )
    SELECT $1, $2, $3, $4, chunk_index, start_byte, end_byte, content, content_hash FROM given
    RETURNING id, chunk_index
),
vector AS (
    INSERT INTO mcp_file_chunk_embeddings (chunk_id, apikey_hash, project, file_id, embedding, model)
    SELECT chunk.id, $1, $2, $4, given.embedding::vector, $5 FROM chunk JOIN given USING (chunk_index)
    WHERE given.embedding IS NOT NULL
)
INSERT INTO mcp_file_chunk_bm25 (chunk_id, apikey_hash, project, file_id, tokens, token_count, tokenizer)
SELECT chunk.id, $1, $2, $4, given.tokens::jsonb, given.token_count, $14 FROM chunk JOIN given USING (chunk_index);

-- name: lock_file
-- The last statement before the commit. The file cannot be deleted until then, so the cleanup of a deleted file sees
-- its chunks. It comes last because writers must not wait while chunks are written.
SELECT id FROM mcp_files
WHERE (apikey_hash = $1) IS TRUE AND id = $2 AND deleted = FALSE
FOR SHARE;

-- name: chunks_without_vectors
-- Chunks of the file that has this path now. Returns one row without a chunk if all vectors exist and only `made_with`
-- must be updated, and no row if there is nothing to do.
SELECT file.id AS file_id, chunk.content_hash, chunk.chunk_content
FROM mcp_files AS file
JOIN mcp_file_indexed AS indexed ON indexed.file_id = file.id AND indexed.apikey_hash = file.apikey_hash
LEFT JOIN mcp_file_chunks AS chunk
    ON chunk.file_id = file.id
    AND (chunk.apikey_hash = file.apikey_hash) IS TRUE
    AND NOT EXISTS (
        SELECT FROM mcp_file_chunk_embeddings AS vector
        WHERE (vector.apikey_hash = $1) IS TRUE AND vector.chunk_id = chunk.id AND vector.model = $4
    )
WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = $3 AND file.deleted = FALSE AND indexed.made_with = $5
ORDER BY chunk.chunk_index;

-- name: lock_indexed
-- Prevents other workers from replacing the chunks of the file until the commit. A separate statement, because the next
-- one must see what the previous lock holder committed.
SELECT file_id FROM mcp_file_indexed WHERE apikey_hash = $1 AND file_id = $2 FOR NO KEY UPDATE;

-- name: add_vectors
-- Only for existing chunks. Waits for a concurrent deletion of a chunk and then skips it.
WITH chunk AS MATERIALIZED (
    SELECT id, content_hash
    FROM mcp_file_chunks
    WHERE (apikey_hash = $1) IS TRUE AND file_id = $3 AND content_hash = ANY($5::bpchar[])
    ORDER BY id
    FOR KEY SHARE
)
INSERT INTO mcp_file_chunk_embeddings AS vector (chunk_id, apikey_hash, project, file_id, embedding, model)
SELECT chunk.id, $1, $2, $3, given.embedding::vector, $4
FROM chunk
JOIN unnest($5::bpchar[], $6::text[]) AS given (content_hash, embedding) ON given.content_hash = chunk.content_hash
ON CONFLICT (chunk_id) DO UPDATE SET embedding = excluded.embedding, model = excluded.model, updated_at = now()
WHERE vector.model <> excluded.model;

-- name: mark_embedded
-- Only if no chunk lacks its vector: a later version may have added chunks.
UPDATE mcp_file_indexed AS indexed
SET made_with = $5, indexed_at = now()
WHERE indexed.apikey_hash = $1 AND indexed.file_id = $2 AND indexed.made_with = $4
    AND NOT EXISTS (
        SELECT FROM mcp_file_chunks AS chunk
        WHERE (chunk.apikey_hash = $1) IS TRUE AND chunk.file_id = $2
            AND NOT EXISTS (
                SELECT FROM mcp_file_chunk_embeddings AS vector
                WHERE (vector.apikey_hash = $1) IS TRUE AND vector.chunk_id = chunk.id AND vector.model = $3
            )
    )
RETURNING indexed.file_id;

-- name: delete_chunks_of_deleted
-- Chunks of deleted files that had this path, whatever path they were indexed under. Locks the row of a file before its
-- chunks, the lock order of all statements.
WITH gone AS MATERIALIZED (
    SELECT indexed.file_id
    FROM mcp_files AS deleted_file
    JOIN mcp_file_indexed AS indexed ON indexed.file_id = deleted_file.id AND (indexed.apikey_hash = $1) IS TRUE
    WHERE deleted_file.apikey_hash = $1 AND deleted_file.project = $2 AND deleted_file.path = $3
        AND deleted_file.deleted = TRUE
    ORDER BY indexed.file_id
    FOR UPDATE OF indexed
),
left_over AS (
    DELETE FROM mcp_file_chunks AS chunk
    WHERE (chunk.apikey_hash = $1) IS TRUE AND chunk.file_id = ANY(ARRAY(SELECT file_id FROM gone))
)
DELETE FROM mcp_file_indexed AS indexed
WHERE (indexed.apikey_hash = $1) IS TRUE AND indexed.file_id = ANY(ARRAY(SELECT file_id FROM gone));

-- name: queue_moved
-- Queues the files in a range of paths that are not fully indexed: their jobs name their old paths. A job for the new
-- path may have run before the file was there, so each file gets another job. $5: reference to the caller's key.
WITH queued AS (
    INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at, credential_ref)
    SELECT file.apikey_hash, file.project, file.path, 'UPSERT', file.updated_at, $5
    FROM mcp_files AS file
    WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path >= $3 AND file.path < $4 AND file.deleted = FALSE
        AND coalesce(
            (
                SELECT indexed.version < file.version OR indexed.made_with <> $6
                FROM mcp_file_indexed AS indexed
                WHERE indexed.file_id = file.id AND (indexed.apikey_hash = $1) IS TRUE
            ),
            TRUE
        )
    RETURNING id
)
SELECT count(*)::int FROM queued;

-- name: moved_files
-- The next files in a range of paths, starting at $3.
SELECT id, path FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path >= $3 AND path < $4 AND deleted = FALSE
ORDER BY path
LIMIT $5;

-- name: lock_moved
SELECT file_id FROM mcp_file_indexed
WHERE (apikey_hash = $1) IS TRUE AND file_id = ANY($2::bigint[])
ORDER BY file_id
FOR NO KEY UPDATE;

-- name: follow_moved
-- Sets the paths of the chunks to the current paths of their files.
UPDATE mcp_file_chunks AS chunk SET file_path = file.path
FROM mcp_files AS file
WHERE (chunk.apikey_hash = $1) IS TRUE AND chunk.file_id = ANY($2::bigint[])
    AND (file.apikey_hash = $1) IS TRUE AND file.id = chunk.file_id AND file.id = ANY($2::bigint[])
    AND chunk.file_path <> file.path;
