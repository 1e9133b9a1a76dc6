-- Files on their way out of the store and into it.

-- name: projects_with_files
SELECT project.project FROM mcp_file_projects AS project
WHERE
    project.apikey_hash = $1
    AND EXISTS (
        SELECT FROM mcp_files AS file
        WHERE file.apikey_hash = $1 AND file.project = project.project AND file.deleted = FALSE
    )
ORDER BY project.project;

-- name: next_file
-- One at a time: what is in memory does not depend on how much there is.
SELECT path, content, updated_at FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path > $3 AND deleted = FALSE
ORDER BY path
LIMIT 1;

-- name: has_content
-- Whether the file has exactly this content; no row when it is not there. $4: the size, $5: the SHA-256.
SELECT CASE WHEN size = $4 THEN sha256(content) = $5::bytea ELSE FALSE END
FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path = $3 AND deleted = FALSE;
