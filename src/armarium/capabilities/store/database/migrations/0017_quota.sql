-- The quota counts what a project keeps: its files (`bytes`), and in `kept_bytes` earlier versions, deleted files and 256
-- bytes for each remembered request. Every statement that adds or removes one of them changes the counter, always as the
-- last of its locks. A project's row with an empty name has the highest revision of the tenant's purged projects.

SELECT set_config('armarium.tenant', '*', TRUE);

ALTER TABLE mcp_file_projects ADD COLUMN kept_bytes BIGINT NOT NULL DEFAULT 0;

UPDATE mcp_file_projects AS counter SET kept_bytes = kept.bytes
FROM (
    SELECT each.apikey_hash, each.project, sum(each.size) AS bytes
    FROM (
        SELECT earlier.apikey_hash, earlier.project, earlier.size FROM mcp_file_versions AS earlier
        UNION ALL
        SELECT file.apikey_hash, file.project, file.size FROM mcp_files AS file WHERE file.deleted = TRUE
        UNION ALL
        SELECT request.apikey_hash, request.project, 256 FROM mcp_file_requests AS request
    ) AS each
    GROUP BY each.apikey_hash, each.project
) AS kept
WHERE counter.apikey_hash = kept.apikey_hash AND counter.project = kept.project;

SELECT set_config('armarium.tenant', '', TRUE);

-- Of databases that had it from 0007.
DROP FUNCTION IF EXISTS mcp_file_write(
    BPCHAR, TEXT, TEXT, TEXT [], BYTEA, TEXT, INT, BOOLEAN, BIGINT, BIGINT, BIGINT, INT, BOOLEAN, TEXT, BIGINT, INT
);

CREATE FUNCTION mcp_file_write(
    tenant BPCHAR,
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
    lock_timeout_ms INT,
    max_projects INT DEFAULT NULL
)
RETURNS TABLE (refusal TEXT, version BIGINT, size BIGINT, waited_s FLOAT8, file_bytes BIGINT, other_bytes BIGINT)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    asked TIMESTAMPTZ := clock_timestamp();
    moment TIMESTAMPTZ;
    was RECORD;
    before BIGINT;
    after BIGINT;
    revised BIGINT;
    changes BOOLEAN;
    begins BOOLEAN;
    -- What the project keeps more, and less, of earlier versions.
    replaced BIGINT;
    freed BIGINT := 0;
    last_surplus BIGINT;
    forgotten RECORD;
    -- The range of paths below this one. Computed here: `||` is not leakproof on PostgreSQL 15.
    first_below TEXT := at_path || '/';
    end_below TEXT := at_path || '0';
BEGIN
    PERFORM set_config('armarium.tenant', tenant, TRUE), set_config('lock_timeout', lock_timeout_ms::text, TRUE);
    PERFORM pg_advisory_xact_lock(project_lock);
    -- From here on each statement sees all that those did who had the lock before.
    moment := clock_timestamp();
    waited_s := extract(EPOCH FROM moment - asked);

    -- ORDER BY and LIMIT: without statistics, the planner may answer EXISTS from another index and read the whole
    -- project.
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
                AND below.path >= first_below AND below.path < end_below
            ORDER BY below.path
            LIMIT 1
        ) AS is_directory,
        EXISTS (
            SELECT FROM mcp_files AS parent
            WHERE
                parent.apikey_hash = tenant AND parent.project = of_project AND parent.deleted = FALSE
                AND parent.path = ANY(parents)
        ) AS lies_below_file,
        counter.bytes,
        counter.kept_bytes,
        counter.revision
    INTO was
    FROM (VALUES (TRUE)) AS always
    LEFT JOIN mcp_files AS file
        ON file.apikey_hash = tenant AND file.project = of_project AND file.path = at_path AND file.deleted = FALSE
    LEFT JOIN mcp_file_projects AS counter ON counter.apikey_hash = tenant AND counter.project = of_project;

    version := was.version;
    size := was.size;
    file_bytes := coalesce(was.bytes, 0);
    other_bytes := coalesce(was.kept_bytes, 0);
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
    END;
    begins := was.revision IS NULL;
    changes := was.size IS NULL OR given <> '' OR mode = 'TRUNCATE';
    replaced := CASE WHEN was.size IS NOT NULL AND versions_kept > 0 AND changes THEN before ELSE 0 END;

    IF refusal IS NULL AND file_bytes + other_bytes - before + after + replaced > max_project_bytes THEN
        -- Only now: surplus versions, which this write removes, make room.
        IF replaced > 0 THEN
            SELECT coalesce(sum(surplus.size), 0) INTO freed
            FROM (
                SELECT earlier.size FROM mcp_file_versions AS earlier
                WHERE earlier.apikey_hash = tenant AND earlier.project = of_project AND earlier.path = at_path
                ORDER BY earlier.version DESC
                OFFSET versions_kept - 1
            ) AS surplus;
        END IF;
        IF file_bytes + other_bytes - before + after + replaced - freed > max_project_bytes THEN
            refusal := 'project_full';
        END IF;
        freed := 0;
    END IF;

    IF refusal IS NULL AND begins THEN
        -- A new project. New projects of a tenant take turns, so that none is overlooked.
        PERFORM pg_advisory_xact_lock(hashtextextended('projects:' || tenant, 0));
        was.revision := coalesce(
            (
                SELECT purged.revision FROM mcp_file_projects AS purged
                WHERE purged.apikey_hash = tenant AND purged.project = ''
            ),
            0
        );
        IF (
            SELECT count(*) FROM (
                SELECT FROM mcp_file_projects AS known
                WHERE known.apikey_hash = tenant AND known.project <> ''
                LIMIT max_projects
            ) AS first_known
        ) >= max_projects AND (
            -- Projects of which nothing is left do not count.
            SELECT count(*) FROM mcp_file_projects AS known
            WHERE
                known.apikey_hash = tenant AND known.project <> ''
                AND (
                    known.bytes > 0 OR known.kept_bytes > 0
                    OR (
                        SELECT TRUE FROM mcp_files AS empty_file
                        WHERE
                            empty_file.apikey_hash = tenant AND empty_file.project = known.project
                            AND empty_file.deleted = FALSE
                        LIMIT 1
                    )
                )
        ) >= max_projects THEN
            refusal := 'too_many_projects';
        END IF;
    END IF;

    IF refusal IS NOT NULL OR NOT changes THEN
        RETURN NEXT;
        RETURN;
    END IF;

    size := after;
    -- Under the project's lock nobody else changes the revision.
    revised := was.revision + 1;
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

            SELECT surplus.version INTO last_surplus FROM mcp_file_versions AS surplus
            WHERE surplus.apikey_hash = tenant AND surplus.project = of_project AND surplus.path = at_path
            ORDER BY surplus.version DESC
            OFFSET versions_kept LIMIT 1;
            IF last_surplus IS NOT NULL THEN
                -- A loop costs less than a sum: there is one row, unless fewer versions are kept than before.
                FOR forgotten IN
                    DELETE FROM mcp_file_versions AS kept
                    WHERE
                        kept.apikey_hash = tenant AND kept.project = of_project AND kept.path = at_path
                        AND kept.version <= last_surplus
                    RETURNING kept.size
                LOOP
                    freed := freed + forgotten.size;
                END LOOP;
            END IF;
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

    -- Last, as in every statement: whoever holds this row waits for no other one. Maintenance changes it, too.
    IF begins THEN
        INSERT INTO mcp_file_projects (apikey_hash, project, bytes, revision)
        VALUES (tenant, of_project, after, revised);
    ELSE
        UPDATE mcp_file_projects AS counter
        SET
            bytes = counter.bytes - before + after,
            kept_bytes = greatest(0, counter.kept_bytes + replaced - freed),
            revision = revised
        WHERE counter.apikey_hash = tenant AND counter.project = of_project;
    END IF;

    IF searchable THEN
        INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at, credential_ref)
        VALUES (tenant, of_project, at_path, 'UPSERT', moment, credential);
    END IF;
    RETURN NEXT;
END $$;
