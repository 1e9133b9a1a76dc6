-- What people browse and agents do not need: projects, deleted files, earlier content, and the state of the index.

-- name: projects
-- The projects after $2 by name, at most $4, without those that match one of the regular expressions $3. Of each, up to
-- $5 files and waiting index jobs are counted.
SELECT
    counter.project,
    counter.bytes,
    counter.kept_bytes,
    counter.updated_at,
    (
        SELECT count(*) FROM (
            SELECT file.path FROM mcp_files AS file
            WHERE file.apikey_hash = $1 AND file.project = counter.project AND file.deleted = FALSE
            ORDER BY file.path
            LIMIT $5
        ) AS first_files
    ) AS files,
    (
        SELECT count(*) FROM (
            SELECT job.file_path FROM mcp_file_index_jobs AS job
            WHERE
                job.apikey_hash = $1 AND job.project = counter.project
                AND job.status IN ('pending', 'processing')
            ORDER BY job.file_path
            LIMIT $5
        ) AS first_jobs
    ) AS pending
FROM mcp_file_projects AS counter
WHERE
    counter.apikey_hash = $1 AND counter.project > $2::text AND NOT counter.project ~ ANY($3::text[])
    AND (
        counter.bytes > 0 OR counter.kept_bytes > 0
        OR (
            SELECT TRUE FROM mcp_files AS empty_file
            WHERE
                empty_file.apikey_hash = $1 AND empty_file.project = counter.project
                AND empty_file.deleted = FALSE
            LIMIT 1
        )
    )
ORDER BY counter.project
LIMIT $4;

-- name: deleted
-- The next $5 deletions of files in a range of paths ($3, $4) whose last version is stored, and whose path is free. A
-- path can have several, the last one first.
SELECT file.path, file.size, file.version, file.deleted_at
FROM mcp_files AS file
WHERE
    file.apikey_hash = $1 AND file.project = $2 AND file.path >= $3 AND file.path < $4 AND file.deleted = TRUE
    AND (
        SELECT TRUE FROM mcp_file_versions AS earlier
        WHERE
            earlier.apikey_hash = $1 AND earlier.project = $2 AND earlier.path = file.path
            AND earlier.version = file.version
        LIMIT 1
    )
    AND (
        SELECT TRUE FROM mcp_files AS current_file
        WHERE
            current_file.apikey_hash = $1 AND current_file.project = $2 AND current_file.path = file.path
            AND current_file.deleted = FALSE
        LIMIT 1
    ) IS NULL
ORDER BY file.path, file.version DESC
LIMIT $5;

-- name: version_slice
-- Bytes of one version of a file, the current or an earlier one. $5: from which byte; $6: how many.
SELECT file.size, substring(file.content FROM $5::int + 1 FOR $6::int) AS slice
FROM mcp_files AS file
WHERE
    file.apikey_hash = $1 AND file.project = $2 AND file.path = $3 AND file.deleted = FALSE AND file.version = $4
UNION ALL
SELECT earlier.size, substring(earlier.content FROM $5::int + 1 FOR $6::int) AS slice
FROM mcp_file_versions AS earlier
WHERE earlier.apikey_hash = $1 AND earlier.project = $2 AND earlier.path = $3 AND earlier.version = $4
LIMIT 1;

-- name: index_state
-- Whether the current version of a file is in the index, and whether a job of its path waits.
SELECT
    (
        SELECT indexed.version = file.version FROM mcp_file_indexed AS indexed
        WHERE (indexed.apikey_hash = $1) IS TRUE AND indexed.file_id = file.id
    ) IS TRUE AS is_indexed,
    (
        SELECT TRUE FROM mcp_file_index_jobs AS job
        WHERE
            job.apikey_hash = $1 AND job.project = $2 AND job.file_path = $3
            AND job.status IN ('pending', 'processing')
        ORDER BY job.file_path
        LIMIT 1
    ) IS TRUE AS is_pending
FROM mcp_files AS file
WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = $3 AND file.deleted = FALSE;
