-- Maintenance statements. Each works on one batch.

-- name: purge_files
-- Index rows of a file are deleted by cascade. Its versions up to the deletion are deleted here.
WITH old AS MATERIALIZED (
    SELECT file.apikey_hash, file.id
    FROM mcp_files AS file
    WHERE file.deleted = TRUE AND file.deleted_at < now() - make_interval(secs => $1)
    ORDER BY file.deleted_at
    LIMIT $2
),
purged AS (
    DELETE FROM mcp_files AS file
    USING old
    WHERE file.apikey_hash = old.apikey_hash AND file.id = old.id AND file.deleted = TRUE
    RETURNING file.apikey_hash, file.project, file.path, file.version, file.size
),
forgotten AS (
    DELETE FROM mcp_file_versions AS earlier
    USING purged
    WHERE earlier.apikey_hash = purged.apikey_hash AND earlier.project = purged.project AND earlier.path = purged.path
        AND earlier.version <= purged.version
    RETURNING earlier.apikey_hash, earlier.project, earlier.size
),
freed AS (
    SELECT gone.apikey_hash, gone.project, sum(gone.size) AS bytes
    FROM (
        SELECT purged.apikey_hash, purged.project, purged.size FROM purged
        UNION ALL
        SELECT forgotten.apikey_hash, forgotten.project, forgotten.size FROM forgotten
    ) AS gone
    GROUP BY gone.apikey_hash, gone.project
),
counted AS (
    UPDATE mcp_file_projects AS counter SET kept_bytes = greatest(0, counter.kept_bytes - freed.bytes)
    FROM freed
    WHERE counter.apikey_hash = freed.apikey_hash AND counter.project = freed.project
)
SELECT count(*)::int FROM purged;

-- name: purge_versions
WITH old AS MATERIALIZED (
    SELECT earlier.apikey_hash, earlier.id
    FROM mcp_file_versions AS earlier
    WHERE earlier.replaced_at < now() - make_interval(secs => $1)
    ORDER BY earlier.replaced_at
    LIMIT $2
),
purged AS (
    DELETE FROM mcp_file_versions AS earlier
    USING old
    WHERE earlier.apikey_hash = old.apikey_hash AND earlier.id = old.id
    RETURNING earlier.apikey_hash, earlier.project, earlier.size
),
counted AS (
    UPDATE mcp_file_projects AS counter SET kept_bytes = greatest(0, counter.kept_bytes - freed.bytes)
    FROM (SELECT apikey_hash, project, sum(size) AS bytes FROM purged GROUP BY apikey_hash, project) AS freed
    WHERE counter.apikey_hash = freed.apikey_hash AND counter.project = freed.project
)
SELECT count(*)::int FROM purged;

-- name: purge_jobs
-- Jobs with the status $3. A job is available before it is done, so the index on `available_at` bounds the search.
WITH old AS MATERIALIZED (
    SELECT job.apikey_hash, job.id
    FROM mcp_file_index_jobs AS job
    WHERE job.status = $3
        AND job.available_at < now() - make_interval(secs => $1)
        AND job.updated_at < now() - make_interval(secs => $1)
    ORDER BY job.available_at
    LIMIT $2
),
purged AS (
    DELETE FROM mcp_file_index_jobs AS job
    USING old
    WHERE job.apikey_hash = old.apikey_hash AND job.id = old.id AND job.status = $3
    RETURNING job.id
)
SELECT count(*)::int FROM purged;

-- name: purge_requests
WITH old AS MATERIALIZED (
    SELECT request.apikey_hash, request.project, request.request_id
    FROM mcp_file_requests AS request
    WHERE request.made_at < now() - make_interval(secs => $1)
    ORDER BY request.made_at
    LIMIT $2
),
purged AS (
    DELETE FROM mcp_file_requests AS request
    USING old
    WHERE request.apikey_hash = old.apikey_hash AND request.project = old.project
        AND request.request_id = old.request_id
    RETURNING request.apikey_hash, request.project
),
counted AS (
    UPDATE mcp_file_projects AS counter SET kept_bytes = greatest(0, counter.kept_bytes - 256 * freed.requests)
    FROM (SELECT apikey_hash, project, count(*) AS requests FROM purged GROUP BY apikey_hash, project) AS freed
    WHERE counter.apikey_hash = freed.apikey_hash AND counter.project = freed.project
)
SELECT count(*)::int FROM purged;

-- name: delete_indexed_of_deleted
-- Index rows of files that were deleted while they were being indexed; the index job of the deletion removes all others.
-- Rows that a worker has locked are skipped until the next run.
WITH gone AS MATERIALIZED (
    SELECT file_id
    FROM mcp_file_indexed
    WHERE ($1::text IN (apikey_hash, '*')) IS TRUE
        AND file_id = ANY(
            ARRAY(
                SELECT id
                FROM mcp_files
                WHERE ($1::text IN (apikey_hash, '*')) IS TRUE
                    AND deleted = TRUE
                    AND deleted_at > now() - make_interval(secs => $2)
            )
        )
    FOR UPDATE SKIP LOCKED
),
left_over AS (
    DELETE FROM mcp_file_chunks
    WHERE ($1::text IN (apikey_hash, '*')) IS TRUE AND file_id = ANY(ARRAY(SELECT file_id FROM gone))
)
DELETE FROM mcp_file_indexed
WHERE ($1::text IN (apikey_hash, '*')) IS TRUE AND file_id = ANY(ARRAY(SELECT file_id FROM gone));

-- name: last_file
SELECT coalesce(max(id), 0) FROM mcp_files WHERE $1::text IN (apikey_hash, '*');

-- name: queue_unindexed
-- Queues files with ids from $2 to $3 that were written while search was disabled, or whose job failed. Each is looked
-- up: a join would read all index rows every time. A range, not a limit: under row security the planner expects so few
-- files that it would sort all of them instead of scanning by id.
WITH queued AS (
    INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at)
    SELECT file.apikey_hash, file.project, file.path, 'UPSERT', file.updated_at
    FROM mcp_files AS file
    WHERE ($1::text IN (file.apikey_hash, '*')) IS TRUE AND file.deleted = FALSE AND file.id BETWEEN $2 AND $3
        AND coalesce(
            (
                SELECT indexed.version < file.version
                FROM mcp_file_indexed AS indexed
                WHERE indexed.file_id = file.id AND (indexed.apikey_hash = file.apikey_hash) IS TRUE
            ),
            TRUE
        )
        AND (
            SELECT job.id
            FROM mcp_file_index_jobs AS job
            WHERE job.apikey_hash = file.apikey_hash AND job.project = file.project AND job.file_path = file.path
                AND job.status IN ('pending', 'processing')
            LIMIT 1
        ) IS NULL
    ORDER BY file.id
    RETURNING id
)
SELECT count(*)::int FROM queued;
