-- A write from the project's lock to the outbox, in the database: the lock is held while the database works, and never
-- while a question or an answer travels. What stands in the way of a write is told in a word, with the file as it is;
-- nothing was changed then.

CREATE FUNCTION mcp_file_write(
    tenant TEXT,
    of_project TEXT,
    at_path TEXT,
    parents TEXT [],
    given BYTEA,
    mode TEXT,
    at_byte INT,
    create_only BOOLEAN,
    if_version BIGINT,
    max_file_bytes BIGINT,
    max_project_bytes BIGINT,
    versions_kept INT,
    searchable BOOLEAN,
    credential TEXT,
    project_lock BIGINT,
    lock_timeout_ms INT
) RETURNS TABLE (refusal TEXT, version BIGINT, size BIGINT, waited_s FLOAT8)
LANGUAGE plpgsql
AS $$
DECLARE
    asked TIMESTAMPTZ := clock_timestamp();
    moment TIMESTAMPTZ;
    was RECORD;
    before BIGINT;
    after BIGINT;
    revised BIGINT;
BEGIN
    PERFORM set_config('armarium.tenant', tenant, TRUE), set_config('lock_timeout', lock_timeout_ms::text, TRUE);
    PERFORM pg_advisory_xact_lock(project_lock);
    -- From here on each statement sees all that those did who had the lock before.
    moment := clock_timestamp();
    waited_s := extract(EPOCH FROM moment - asked);

    -- What lies below a path is a range that ends at '0', which follows '/'. It is asked for with ORDER BY and LIMIT:
    -- without statistics, EXISTS was seen to go by another index and read the whole project.
    SELECT
        file.size,
        file.version,
        -- A byte 10xxxxxx goes on with a character that began before it.
        substring(file.content FROM at_byte + 1 FOR 1) BETWEEN '\x80' AND '\xbf' AS begins_in_character,
        substring(file.content FROM at_byte + octet_length(given) + 1 FOR 1) BETWEEN '\x80' AND '\xbf'
            AS ends_in_character,
        (
            SELECT TRUE FROM mcp_files AS below
            WHERE
                below.apikey_hash = tenant AND below.project = of_project AND below.deleted = FALSE
                AND below.path >= at_path || '/' AND below.path < at_path || '0'
            ORDER BY below.path
            LIMIT 1
        ) AS is_directory,
        EXISTS (
            SELECT FROM mcp_files AS parent
            WHERE
                parent.apikey_hash = tenant AND parent.project = of_project AND parent.deleted = FALSE
                AND parent.path = ANY(parents)
        ) AS lies_below_file,
        coalesce(counter.bytes, 0) AS project_bytes
    INTO was
    FROM (VALUES (TRUE)) AS always
    LEFT JOIN mcp_files AS file
        ON file.apikey_hash = tenant AND file.project = of_project AND file.path = at_path AND file.deleted = FALSE
    LEFT JOIN mcp_file_projects AS counter ON counter.apikey_hash = tenant AND counter.project = of_project;

    version := was.version;
    size := was.size;
    before := coalesce(was.size, 0);
    after := CASE mode
        WHEN 'TRUNCATE' THEN octet_length(given)
        WHEN 'APPEND' THEN before + octet_length(given)
        ELSE greatest(before, at_byte::BIGINT + octet_length(given))
    END;
    refusal := CASE
        WHEN was.is_directory THEN 'is_directory'
        WHEN was.lies_below_file THEN 'lies_below_file'
        WHEN create_only AND was.size IS NOT NULL THEN 'exists'
        WHEN if_version IS NOT NULL AND was.version IS DISTINCT FROM if_version THEN 'other_version'
        WHEN mode = 'OVERWRITE' AND at_byte > before THEN 'behind_end'
        WHEN mode = 'OVERWRITE' AND given <> '' AND (was.begins_in_character OR was.ends_in_character)
            THEN 'cuts_character'
        WHEN after > max_file_bytes THEN 'file_too_large'
        WHEN was.project_bytes - before + after > max_project_bytes THEN 'project_full'
    END;
    IF refusal IS NOT NULL OR (was.size IS NOT NULL AND given = '' AND mode <> 'TRUNCATE') THEN
        RETURN NEXT;
        RETURN;
    END IF;

    size := after;
    INSERT INTO mcp_file_projects AS counter (apikey_hash, project, bytes, revision)
    VALUES (tenant, of_project, after, 1)
    ON CONFLICT (apikey_hash, project)
    DO UPDATE SET bytes = counter.bytes - before + after, revision = counter.revision + 1
    RETURNING counter.revision INTO revised;
    version := revised;

    IF was.size IS NULL THEN
        INSERT INTO mcp_files (apikey_hash, project, path, content, size, created_at, updated_at, version)
        VALUES (tenant, of_project, at_path, given, after, moment, moment, revised);
    ELSE
        IF versions_kept > 0 THEN
            INSERT INTO mcp_file_versions (apikey_hash, project, path, version, content, size, written_at, replaced_at)
            SELECT tenant, of_project, old.path, old.version, old.content, old.size, old.updated_at, moment
            FROM mcp_files AS old
            WHERE old.apikey_hash = tenant AND old.project = of_project AND old.path = at_path AND old.deleted = FALSE;

            DELETE FROM mcp_file_versions AS kept
            WHERE
                kept.apikey_hash = tenant AND kept.project = of_project AND kept.path = at_path
                AND kept.version <= (
                    SELECT surplus.version FROM mcp_file_versions AS surplus
                    WHERE surplus.apikey_hash = tenant AND surplus.project = of_project AND surplus.path = at_path
                    ORDER BY surplus.version DESC
                    OFFSET versions_kept LIMIT 1
                );
        END IF;
        -- The old content never travels.
        UPDATE mcp_files AS file
        SET
            content = CASE mode
                WHEN 'TRUNCATE' THEN given
                WHEN 'APPEND' THEN file.content || given
                ELSE overlay(file.content PLACING given FROM at_byte + 1)
            END,
            size = after,
            updated_at = moment,
            version = revised
        WHERE file.apikey_hash = tenant AND file.project = of_project AND file.path = at_path AND file.deleted = FALSE;
    END IF;

    IF searchable THEN
        INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at, credential_ref)
        VALUES (tenant, of_project, at_path, 'UPSERT', moment, credential);
    END IF;
    RETURN NEXT;
END $$;
