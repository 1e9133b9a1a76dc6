-- Reads, changes and listings of files. Every range of paths is half open: the file `/a` alone is
-- ['/a', '/a' || chr(1)), and the files below the directory `/a` are ['/a/', '/a0'), since '0' follows '/'. Ranges, not
-- patterns, because under row security only leakproof operators can use an index. Bounds are parameters or columns, never
-- computed in the comparison: `||` is not leakproof on PostgreSQL 15. An ORDER BY and LIMIT tests whether a range is
-- empty: without statistics, the planner may answer EXISTS from the other index and read the whole project.

-- name: inspect_path
-- The file at a path, and whether the path is a directory. $4 and $5: the range of paths below it.
SELECT
    file.size,
    file.version,
    (
        SELECT TRUE FROM mcp_files AS below
        WHERE
            below.apikey_hash = $1 AND below.project = $2 AND below.deleted = FALSE
            AND below.path >= $4 AND below.path < $5
        ORDER BY below.path
        LIMIT 1
    ) AS is_directory
FROM (VALUES (TRUE)) AS always
LEFT JOIN mcp_files AS file
    ON file.apikey_hash = $1 AND file.project = $2 AND file.path = $3 AND file.deleted = FALSE;

-- name: write_file
-- $15: how many projects a tenant may have.
SELECT refusal, version, size, waited_s, file_bytes, other_bytes
FROM mcp_file_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $16, $17, $15);

-- name: delete_files
-- Deletes all files in a range of paths. $5: how many versions to keep of each; the version deleted now is the newest,
-- and this statement does not see it yet. $6: whether to queue index jobs.
WITH gone AS (
    UPDATE mcp_files SET deleted = TRUE, deleted_at = statement_timestamp()
    WHERE apikey_hash = $1 AND project = $2 AND path >= $3 AND path < $4 AND deleted = FALSE
    RETURNING path, size
),

kept AS (
    INSERT INTO mcp_file_versions (apikey_hash, project, path, version, content, size, written_at, replaced_at)
    SELECT $1, $2, old.path, old.version, old.content, old.size, old.updated_at, statement_timestamp()
    FROM mcp_files AS old
    WHERE
        old.apikey_hash = $1 AND old.project = $2 AND old.path >= $3 AND old.path < $4 AND old.deleted = FALSE
        AND $5::int > 0
),

forgotten AS (
    DELETE FROM mcp_file_versions AS surplus
    USING (
        SELECT numbered.id, row_number() OVER (PARTITION BY numbered.path ORDER BY numbered.version DESC) AS place
        FROM mcp_file_versions AS numbered
        WHERE
            numbered.apikey_hash = $1 AND numbered.project = $2 AND numbered.path >= $3 AND numbered.path < $4
            AND $5::int > 0
            AND EXISTS (
                SELECT FROM mcp_files AS old
                WHERE
                    old.apikey_hash = $1 AND old.project = $2 AND old.path = numbered.path AND old.deleted = FALSE
                    AND old.path >= $3 AND old.path < $4
            )
    ) AS placed
    WHERE
        surplus.apikey_hash = $1 AND surplus.project = $2 AND surplus.path >= $3 AND surplus.path < $4
        AND surplus.id = placed.id AND placed.place >= $5::int
    RETURNING surplus.size
),

-- The content stays in the deleted file and, with versions, in the newest one.
counted AS (
    UPDATE mcp_file_projects
    SET
        bytes = bytes - (SELECT coalesce(sum(gone.size), 0) FROM gone),
        kept_bytes = greatest(
            0,
            kept_bytes
            + (SELECT coalesce(sum(gone.size), 0) FROM gone) * CASE WHEN $5::int > 0 THEN 2 ELSE 1 END
            - (SELECT coalesce(sum(forgotten.size), 0) FROM forgotten)
        ),
        revision = revision + 1
    WHERE apikey_hash = $1 AND project = $2
),

queued AS (
    INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at)
    SELECT $1, $2, gone.path, 'DELETE', statement_timestamp() FROM gone WHERE $6::bool
)

SELECT count(*) FROM gone;

-- name: inspect_move
-- The source of a rename, and whether its destination is free. $5: the parent directories of the destination.
SELECT
    (
        SELECT file.version FROM mcp_files AS file
        WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = $3::text AND file.deleted = FALSE
    ) AS source_version,
    below.files AS files_below,
    below.longest AS longest_below,
    EXISTS (
        SELECT FROM mcp_files AS file
        WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = $4::text AND file.deleted = FALSE
    ) AS target_is_file,
    (
        SELECT TRUE FROM mcp_files AS inner_file
        WHERE
            inner_file.apikey_hash = $1 AND inner_file.project = $2 AND inner_file.deleted = FALSE
            AND inner_file.path >= $4::text || '/' AND inner_file.path < $4::text || '0'
        ORDER BY inner_file.path
        LIMIT 1
    ) AS target_is_directory,
    EXISTS (
        SELECT FROM mcp_files AS parent
        WHERE
            parent.apikey_hash = $1 AND parent.project = $2 AND parent.deleted = FALSE
            AND parent.path = ANY($5::text[])
    ) AS target_lies_below_file
FROM (
    SELECT count(*) AS files, max(length(file.path)) AS longest
    FROM (
        SELECT inner_file.path FROM mcp_files AS inner_file
        WHERE
            inner_file.apikey_hash = $1 AND inner_file.project = $2 AND inner_file.deleted = FALSE
            AND inner_file.path >= $3::text || '/' AND inner_file.path < $3::text || '0'
        ORDER BY inner_file.path
    ) AS file
) AS below;

-- name: move_files
-- Moves the files in a range of paths from $5 to $6. Each gets its own revision, so that no path ever has two versions
-- with the same number. Contents and index rows stay: a file whose old version was indexed counts as indexed. One job,
-- for $6, updates the rest of the index. $7: whether to queue it; $8: reference to the caller's key.
WITH moving AS (
    SELECT id, path, version, row_number() OVER (ORDER BY path) AS place FROM mcp_files
    WHERE apikey_hash = $1 AND project = $2 AND path >= $3 AND path < $4 AND deleted = FALSE
),

-- Under the project's lock nobody else changes the revision.
counter AS (
    SELECT revision AS revision_before FROM mcp_file_projects WHERE apikey_hash = $1 AND project = $2
),

moved AS (
    UPDATE mcp_files AS file
    SET
        path = $6::text || substr(file.path, length($5::text) + 1),
        updated_at = statement_timestamp(),
        version = counter.revision_before + moving.place
    FROM moving, counter
    WHERE
        file.apikey_hash = $1 AND file.project = $2 AND file.path >= $3 AND file.path < $4 AND file.deleted = FALSE
        AND file.id = moving.id
    RETURNING file.id, moving.version AS old_version, file.version AS new_version
),

-- Looked up by id (IS TRUE, ANY): a join would read all index rows. Locked in the order in which workers lock them.
held AS MATERIALIZED (
    SELECT indexed.file_id FROM mcp_file_indexed AS indexed
    WHERE (indexed.apikey_hash = $1) IS TRUE AND indexed.file_id = ANY(ARRAY(SELECT id FROM moving))
    ORDER BY indexed.file_id
    FOR NO KEY UPDATE
),

still_indexed AS (
    UPDATE mcp_file_indexed AS indexed SET version = moved.new_version
    FROM moved
    WHERE
        (indexed.apikey_hash = $1) IS TRUE AND indexed.file_id = ANY(ARRAY(SELECT file_id FROM held))
        AND indexed.file_id = moved.id AND indexed.version = moved.old_version
),

history AS (
    UPDATE mcp_file_versions AS earlier SET path = $6::text || substr(earlier.path, length($5::text) + 1)
    WHERE
        earlier.apikey_hash = $1 AND earlier.project = $2 AND earlier.path >= $3 AND earlier.path < $4
        AND EXISTS (
            SELECT FROM mcp_files AS old
            WHERE
                old.apikey_hash = $1 AND old.project = $2 AND old.path = earlier.path AND old.deleted = FALSE
                AND old.path >= $3 AND old.path < $4
        )
    RETURNING earlier.id
),

-- After the versions: whoever holds this row waits for no other one.
counted AS (
    UPDATE mcp_file_projects SET revision = revision + (SELECT count(*) FROM moving)
    WHERE apikey_hash = $1 AND project = $2 AND (SELECT count(*) FROM history) >= 0
),

queued AS (
    INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at, credential_ref)
    SELECT $1, $2, $6::text, 'MOVE', statement_timestamp(), $8
    WHERE $7::bool
)

SELECT count(*) FROM moved;

-- name: stat
-- A file, or a directory with its newest modification. $4: how many files below a directory to read, in path order.
SELECT size, version, created_at, updated_at, newest_below FROM mcp_file_stat($1, $2, $3, $4);

-- name: read
-- A slice of a file's bytes; one row without a size for a directory, and no row if the path does not exist.
SELECT size, version, slice, is_directory FROM mcp_file_read($1, $2, $3, $4, $5);

-- name: first_files
-- The files that determine a listing of $4 levels below $3, at most $5: each file within these levels, and for each
-- directory on the last level the first file below it. The rest of such a directory is skipped without reading it.
-- $6 and $7: the range of paths below $3. OFFSET 0 keeps the computed bound out of the comparison.
WITH RECURSIVE found AS (
    (
        SELECT file.path, file.size, file.version, file.created_at, file.updated_at, 1 AS place
        FROM mcp_files AS file
        WHERE
            file.apikey_hash = $1 AND file.project = $2 AND file.deleted = FALSE
            AND file.path >= $6 AND file.path < $7
        ORDER BY file.path
        LIMIT 1
    )
    UNION ALL
    SELECT following.path, following.size, following.version, following.created_at, following.updated_at, found.place + 1
    FROM found
    CROSS JOIN LATERAL (SELECT string_to_array(substr(found.path, length($3::text) + 2), '/') AS names) AS split
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN cardinality(split.names) > $4::int
                THEN $3::text || '/' || array_to_string(split.names[1:$4::int], '/') || '0'
            ELSE found.path || chr(1)
        END AS next
        OFFSET 0
    ) AS bound
    CROSS JOIN LATERAL (
        SELECT file.path, file.size, file.version, file.created_at, file.updated_at
        FROM mcp_files AS file
        WHERE
            file.apikey_hash = $1 AND file.project = $2 AND file.deleted = FALSE
            AND file.path >= bound.next AND file.path < $7
        ORDER BY file.path
        LIMIT 1
    ) AS following
    WHERE found.place < $5::int
)

SELECT path, size, version, created_at, updated_at FROM found ORDER BY path;

-- name: newest_below
-- For each directory the modification time of its newest file, among the first $6; NULL if it is empty. $4 and $5: the
-- ranges of paths below them.
SELECT
    directory.path,
    (
        SELECT max(first_files.updated_at) FROM (
            SELECT below.updated_at FROM mcp_files AS below
            WHERE
                below.apikey_hash = $1 AND below.project = $2 AND below.deleted = FALSE
                AND below.path >= directory.first_below AND below.path < directory.end_below
            ORDER BY below.path
            LIMIT $6
        ) AS first_files
    ) AS updated_at
FROM unnest($3::text[], $4::text[], $5::text[]) AS directory (path, first_below, end_below);

-- name: versions
-- Newest first, including the current version.
SELECT file.version, file.size, file.updated_at AS written_at, NULL::timestamptz AS replaced_at
FROM mcp_files AS file
WHERE file.apikey_hash = $1 AND file.project = $2 AND file.path = $3 AND file.deleted = FALSE
UNION ALL
SELECT earlier.version, earlier.size, earlier.written_at, earlier.replaced_at
FROM mcp_file_versions AS earlier
WHERE earlier.apikey_hash = $1 AND earlier.project = $2 AND earlier.path = $3
ORDER BY version DESC
LIMIT $4;

-- name: version_content
SELECT content FROM mcp_file_versions WHERE apikey_hash = $1 AND project = $2 AND path = $3 AND version = $4;
