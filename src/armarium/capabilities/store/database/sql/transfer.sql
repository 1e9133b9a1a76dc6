-- Export and import of files.

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
-- One file at a time, so that memory use does not depend on the number of files.
SELECT path, content, updated_at FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path > $3 AND deleted = FALSE
ORDER BY path
LIMIT 1;

-- name: has_content
-- Whether the file has exactly this content; no row if it does not exist. $4: the size, $5: the SHA-256.
SELECT CASE WHEN size = $4 THEN sha256(content) = $5::bytea ELSE FALSE END
FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path = $3 AND deleted = FALSE;
