-- What is purged, a batch at a time.

-- name: purge_files
-- What may still be indexed of a file goes with it: its rows refer to the file. So do the versions it had by then.
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
    RETURNING file.apikey_hash, file.project, file.path, file.version
),
forgotten AS (
    DELETE FROM mcp_file_versions AS earlier
    USING purged
    WHERE earlier.apikey_hash = purged.apikey_hash AND earlier.project = purged.project AND earlier.path = purged.path
        AND earlier.version <= purged.version
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
    RETURNING earlier.id
)
SELECT count(*)::int FROM purged;

-- name: purge_done_jobs
-- A job becomes available before it is done, so the index of what is due bounds the search.
WITH old AS MATERIALIZED (
    SELECT job.apikey_hash, job.id
    FROM mcp_file_index_jobs AS job
    WHERE job.status = 'done'
        AND job.available_at < now() - make_interval(secs => $1)
        AND job.updated_at < now() - make_interval(secs => $1)
    ORDER BY job.available_at
    LIMIT $2
),
purged AS (
    DELETE FROM mcp_file_index_jobs AS job
    USING old
    WHERE job.apikey_hash = old.apikey_hash AND job.id = old.id AND job.status = 'done'
    RETURNING job.id
)
SELECT count(*)::int FROM purged;

-- name: purge_failed_jobs
WITH old AS MATERIALIZED (
    SELECT job.apikey_hash, job.id
    FROM mcp_file_index_jobs AS job
    WHERE job.status = 'failed'
        AND job.available_at < now() - make_interval(secs => $1)
        AND job.updated_at < now() - make_interval(secs => $1)
    ORDER BY job.available_at
    LIMIT $2
),
purged AS (
    DELETE FROM mcp_file_index_jobs AS job
    USING old
    WHERE job.apikey_hash = old.apikey_hash AND job.id = old.id AND job.status = 'failed'
    RETURNING job.id
)
SELECT count(*)::int FROM purged;
