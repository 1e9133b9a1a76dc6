-- Idempotent requests: changes with an id that the caller chose. Both statements run under the project's lock, in the
-- transaction of the change itself.

-- name: earlier_request
SELECT digest, answer FROM mcp_file_requests WHERE apikey_hash = $1 AND project = $2 AND request_id = $3;

-- name: remember_request
-- Each counts as 256 bytes of what the project keeps.
WITH remembered AS (
    INSERT INTO mcp_file_requests (apikey_hash, project, request_id, digest, answer)
    VALUES ($1, $2, $3, $4, $5::text::jsonb)
)
UPDATE mcp_file_projects SET kept_bytes = kept_bytes + 256 WHERE apikey_hash = $1 AND project = $2;
