-- Functions take the tenant in the type of its column. Compared with TEXT, the column itself is cast, and no index that
-- leads with `apikey_hash` can be used: a write then reads the files of all tenants.

-- Of databases that had it from 0006. 0017 has the function.
DROP FUNCTION IF EXISTS mcp_file_write(
    TEXT, TEXT, TEXT, TEXT [], BYTEA, TEXT, INT, BOOLEAN, BIGINT, BIGINT, BIGINT, INT, BOOLEAN, TEXT, BIGINT, INT
);

-- The two most frequent reads. A function sets the tenant for its own transaction and reads in one round trip.
CREATE FUNCTION mcp_file_stat(tenant BPCHAR, of_project TEXT, at_path TEXT, files_asked INT)
RETURNS TABLE (size BIGINT, version BIGINT, created_at TIMESTAMPTZ, updated_at TIMESTAMPTZ, newest_below TIMESTAMPTZ)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    first_below TEXT := at_path || '/';
    end_below TEXT := at_path || '0';
BEGIN
    PERFORM set_config('armarium.tenant', tenant, TRUE);
    RETURN QUERY
    SELECT
        file.size,
        file.version,
        file.created_at,
        file.updated_at,
        (
            SELECT max(first_files.updated_at) FROM (
                SELECT below.updated_at FROM mcp_files AS below
                WHERE
                    below.apikey_hash = tenant AND below.project = of_project AND below.deleted = FALSE
                    AND below.path >= first_below AND below.path < end_below
                    AND file.size IS NULL
                ORDER BY below.path
                LIMIT files_asked
            ) AS first_files
        )
    FROM (VALUES (TRUE)) AS always
    LEFT JOIN mcp_files AS file
        ON file.apikey_hash = tenant AND file.project = of_project AND file.path = at_path AND file.deleted = FALSE;
END $$;

CREATE FUNCTION mcp_file_read(tenant BPCHAR, of_project TEXT, at_path TEXT, first_byte INT, length INT)
RETURNS TABLE (size BIGINT, version BIGINT, slice BYTEA, is_directory BOOLEAN)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    first_below TEXT := at_path || '/';
    end_below TEXT := at_path || '0';
BEGIN
    PERFORM set_config('armarium.tenant', tenant, TRUE);
    RETURN QUERY
    SELECT file.size, file.version, substring(file.content FROM first_byte + 1 FOR length), FALSE
    FROM mcp_files AS file
    WHERE file.apikey_hash = tenant AND file.project = of_project AND file.path = at_path AND file.deleted = FALSE;
    IF NOT found THEN
        RETURN QUERY
        SELECT NULL::BIGINT, NULL::BIGINT, NULL::BYTEA, TRUE
        FROM mcp_files AS below
        WHERE
            below.apikey_hash = tenant AND below.project = of_project AND below.deleted = FALSE
            AND below.path >= first_below AND below.path < end_below
        ORDER BY below.path
        LIMIT 1;
    END IF;
END $$;
