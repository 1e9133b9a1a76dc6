-- Deletes for good what a project keeps besides its files. All statements run under the project's lock.

-- name: deleted_files
-- The next $5 deleted files in a range of paths.
SELECT id FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path >= $3 AND path < $4 AND deleted = TRUE
ORDER BY path
LIMIT $5;

-- name: lock_index_of_deleted
-- Before the files, as workers lock them; otherwise the cascade of the deletion and a worker would wait for each other.
SELECT file_id FROM mcp_file_indexed
WHERE (apikey_hash = $1) IS TRUE AND file_id = ANY($2::bigint[])
ORDER BY file_id
FOR UPDATE;

-- name: purge_history
-- The next $5 earlier versions in a range of paths, and these deleted files ($6) with their index (by cascade).
WITH versions AS (
    DELETE FROM mcp_file_versions
    WHERE apikey_hash = $1 AND project = $2
        AND id = ANY(
            ARRAY(
                SELECT earlier.id
                FROM mcp_file_versions AS earlier
                WHERE earlier.apikey_hash = $1 AND earlier.project = $2 AND earlier.path >= $3 AND earlier.path < $4
                ORDER BY earlier.path, earlier.version
                LIMIT $5
            )
        )
    RETURNING size
),

files AS (
    DELETE FROM mcp_files
    WHERE (apikey_hash = $1) IS TRUE AND id = ANY($6::bigint[]) AND deleted = TRUE
    RETURNING size
),

freed AS (
    -- Files first, as in maintenance.
    SELECT
        (SELECT count(*) FROM files) AS purged_files,
        (SELECT count(*) FROM versions) AS purged_versions,
        (SELECT coalesce(sum(size), 0) FROM versions) + (SELECT coalesce(sum(size), 0) FROM files) AS purged_bytes
),

counted AS (
    UPDATE mcp_file_projects AS counter SET kept_bytes = greatest(0, counter.kept_bytes - freed.purged_bytes)
    FROM freed
    WHERE counter.apikey_hash = $1 AND counter.project = $2
)

SELECT purged_versions, purged_files, purged_bytes::bigint FROM freed;

-- name: purge_open_jobs
-- Jobs of paths without a file. Those that a worker has end by themselves, and those of renames name directories. Ended
-- jobs are left to maintenance: an index to find them by path would cost every write.
DELETE FROM mcp_file_index_jobs AS job
WHERE job.apikey_hash = $1 AND job.project = $2 AND job.file_path >= $3 AND job.file_path < $4
    AND job.status IN ('pending', 'processing') AND job.status = 'pending' AND job.operation IN ('UPSERT', 'DELETE')
    AND NOT EXISTS (
        SELECT FROM mcp_files AS file
        WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = job.file_path AND file.deleted = FALSE
    );

-- name: lock_projects
-- As `mcp_file_write` does for a new project.
SELECT pg_advisory_xact_lock(hashtextextended('projects:' || $1::text, 0));

-- name: forget_project
-- A project without files: its requests, and its row. The tenant's next project continues with its revision, so that no
-- version is used twice.
WITH emptied AS (
    SELECT counter.revision FROM mcp_file_projects AS counter
    WHERE counter.apikey_hash = $1 AND counter.project = $2
        AND (
            SELECT file.id FROM mcp_files AS file
            WHERE file.apikey_hash = $1 AND file.project = $2 AND file.deleted = FALSE
            LIMIT 1
        ) IS NULL
),

requests AS (
    DELETE FROM mcp_file_requests
    WHERE apikey_hash = $1 AND project = $2 AND EXISTS (SELECT FROM emptied)
),

continued AS (
    INSERT INTO mcp_file_projects AS highest (apikey_hash, project, revision)
    SELECT $1, '', emptied.revision FROM emptied
    ON CONFLICT (apikey_hash, project) DO UPDATE SET revision = greatest(highest.revision, excluded.revision)
)

DELETE FROM mcp_file_projects
WHERE apikey_hash = $1 AND project = $2 AND EXISTS (SELECT FROM emptied);
