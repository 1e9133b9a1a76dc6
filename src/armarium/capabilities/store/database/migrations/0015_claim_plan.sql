-- A claim reads only the jobs it takes, whatever the statistics of the table say.
--
-- After a vacuum of a queue that was long and is short now, the planner expects one job in the table. Reading the whole
-- primary key then costs as little as finding one job in it. Three forms keep it from that:
--   - the jobs taken are named by an array and not joined;
--   - the eldest job of a path is looked up in a subquery of its own (FOR UPDATE keeps it apart), where its id is given;
--   - the open jobs of a path are ordered by stage and id, which only the index of paths offers. The stage is given as a
--     range, because an order by a constant counts for nothing.
--
-- Databases may have it from 0011, as it was before.
CREATE OR REPLACE FUNCTION mcp_file_claim_in_turn(
    of_stage TEXT, batch INT, claim TEXT, lease_s FLOAT8, after_tenant BPCHAR, skipped BPCHAR []
)
RETURNS TABLE (
    id BIGINT,
    apikey_hash TEXT,
    project TEXT,
    file_path TEXT,
    operation TEXT,
    retry_count INT,
    credential_ref TEXT,
    available_at TIMESTAMPTZ,
    age_s FLOAT8,
    next_due_s FLOAT8
)
LANGUAGE plpgsql
-- A queue fills and empties faster than the statistics follow. There is one good plan, whatever they say.
SET plan_cache_mode = force_generic_plan
SET join_collapse_limit = 1
SET enable_sort = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    -- A claim that a crash of the database forgets is only made again; nobody waits for the disk.
    PERFORM set_config('synchronous_commit', 'off', TRUE);

    -- Whoever locks the eldest open job of a path in a stage holds the path: the lock looks at the row as it is now, so a
    -- worker that began to look before another one claimed the path, or handed the job on, leaves it alone. Of each path
    -- only the newest job is worked on, and the older ones are done with it: what counts is the state now.
    -- IS TRUE: single jobs are looked up by their ids, and not in an index of states, which the planner takes for as short.
    RETURN QUERY
    WITH RECURSIVE ahead AS (
        (
            SELECT waiting.apikey_hash
            FROM mcp_file_index_jobs AS waiting
            WHERE waiting.stage = of_stage
                AND (waiting.status = 'pending') IS TRUE
                AND waiting.apikey_hash > after_tenant
            ORDER BY waiting.apikey_hash
            LIMIT 1
        )
        UNION ALL
        SELECT following.apikey_hash
        FROM ahead
        CROSS JOIN LATERAL (
            SELECT waiting.apikey_hash
            FROM mcp_file_index_jobs AS waiting
            WHERE waiting.stage = of_stage
                AND (waiting.status = 'pending') IS TRUE
                AND waiting.apikey_hash > ahead.apikey_hash
            ORDER BY waiting.apikey_hash
            LIMIT 1
        ) AS following
    ),
    behind AS (
        (
            SELECT waiting.apikey_hash
            FROM mcp_file_index_jobs AS waiting
            WHERE waiting.stage = of_stage
                AND (waiting.status = 'pending') IS TRUE
                AND waiting.apikey_hash <= after_tenant
            ORDER BY waiting.apikey_hash
            LIMIT 1
        )
        UNION ALL
        SELECT following.apikey_hash
        FROM behind
        CROSS JOIN LATERAL (
            SELECT waiting.apikey_hash
            FROM mcp_file_index_jobs AS waiting
            WHERE waiting.stage = of_stage
                AND (waiting.status = 'pending') IS TRUE
                AND waiting.apikey_hash > behind.apikey_hash
                AND waiting.apikey_hash <= after_tenant
            ORDER BY waiting.apikey_hash
            LIMIT 1
        ) AS following
    ),
    -- The next tenants that have a path to be claimed. A tenant whose work is not due, or is with others, is passed over.
    turn AS MATERIALIZED (
        SELECT one_path.id, next_tenant.apikey_hash, one_path.project, one_path.file_path
        FROM (SELECT apikey_hash FROM ahead UNION ALL SELECT apikey_hash FROM behind) AS next_tenant
        CROSS JOIN LATERAL (
            SELECT eldest.id, eldest.project, eldest.file_path
            FROM (
                SELECT due_job.project, due_job.file_path, due_job.available_at, due_job.id
                FROM mcp_file_index_jobs AS due_job
                WHERE due_job.stage = of_stage
                    AND (due_job.status = 'pending') IS TRUE
                    AND due_job.apikey_hash = next_tenant.apikey_hash
                    AND due_job.available_at <= now()
                ORDER BY due_job.available_at, due_job.id
                LIMIT 50 * batch
            ) AS due
            CROSS JOIN LATERAL (
                SELECT open_job.id
                FROM mcp_file_index_jobs AS open_job
                WHERE open_job.apikey_hash = next_tenant.apikey_hash
                    AND open_job.project = due.project
                    AND open_job.file_path = due.file_path
                    AND open_job.stage BETWEEN of_stage AND of_stage
                    AND open_job.status IN ('pending', 'processing')
                ORDER BY open_job.stage, open_job.id
                LIMIT 1
            ) AS first_open
            CROSS JOIN LATERAL (
                SELECT job.id, job.project, job.file_path
                FROM mcp_file_index_jobs AS job
                WHERE job.id = first_open.id
                    AND job.apikey_hash = next_tenant.apikey_hash
                    AND (job.stage = of_stage AND job.status = 'pending') IS TRUE
                FOR UPDATE SKIP LOCKED
            ) AS eldest
            LIMIT 1
        ) AS one_path
        WHERE next_tenant.apikey_hash <> ALL(skipped)
        LIMIT batch
    ),
    -- The batch is divided among them. Those who share it with enough others have all of theirs already.
    held AS MATERIALIZED (
        SELECT id, apikey_hash, project, file_path FROM turn
        UNION ALL
        SELECT path.id, turn.apikey_hash, path.project, path.file_path
        FROM turn
        CROSS JOIN LATERAL (
            SELECT eldest.id, eldest.project, eldest.file_path
            FROM (
                SELECT due_job.project, due_job.file_path, due_job.available_at, due_job.id
                FROM mcp_file_index_jobs AS due_job
                WHERE due_job.stage = of_stage
                    AND (due_job.status = 'pending') IS TRUE
                    AND due_job.apikey_hash = turn.apikey_hash
                    AND due_job.available_at <= now()
                ORDER BY due_job.available_at, due_job.id
                LIMIT 50 * batch
            ) AS due
            CROSS JOIN LATERAL (
                SELECT open_job.id
                FROM mcp_file_index_jobs AS open_job
                WHERE open_job.apikey_hash = turn.apikey_hash
                    AND open_job.project = due.project
                    AND open_job.file_path = due.file_path
                    AND open_job.stage BETWEEN of_stage AND of_stage
                    AND open_job.status IN ('pending', 'processing')
                ORDER BY open_job.stage, open_job.id
                LIMIT 1
            ) AS first_open
            CROSS JOIN LATERAL (
                SELECT job.id, job.project, job.file_path
                FROM mcp_file_index_jobs AS job
                WHERE job.id = first_open.id
                    AND job.apikey_hash = turn.apikey_hash
                    AND (job.stage = of_stage AND job.status = 'pending') IS TRUE
                FOR UPDATE SKIP LOCKED
            ) AS eldest
            LIMIT (SELECT batch / greatest(1, count(*)) FROM turn)
        ) AS path
        WHERE (SELECT batch / greatest(1, count(*)) FROM turn) > 1
    ),
    taken AS (
        SELECT open_jobs.id, open_jobs.newest
        FROM (SELECT DISTINCT id, apikey_hash, project, file_path FROM held) AS path
        CROSS JOIN LATERAL (
            SELECT job.id, job.id = max(job.id) OVER () AS newest
            FROM mcp_file_index_jobs AS job
            WHERE job.apikey_hash = path.apikey_hash
                AND job.project = path.project
                AND job.file_path = path.file_path
                AND job.stage = of_stage
                AND job.status IN ('pending', 'processing')
        ) AS open_jobs
    )
    UPDATE mcp_file_index_jobs AS job
    SET status = CASE WHEN job.id = ANY(ARRAY(SELECT id FROM taken WHERE newest)) THEN 'processing' ELSE 'done' END,
        worker = CASE WHEN job.id = ANY(ARRAY(SELECT id FROM taken WHERE newest)) THEN claim END,
        lease_until = CASE
            WHEN job.id = ANY(ARRAY(SELECT id FROM taken WHERE newest)) THEN now() + make_interval(secs => lease_s)
        END,
        updated_at = now()
    WHERE job.id = ANY(ARRAY(SELECT id FROM taken)) AND (job.stage = of_stage AND job.status = 'pending') IS TRUE
    RETURNING job.id, job.apikey_hash::text, job.project::text, job.file_path::text, job.operation::text,
        job.retry_count, job.credential_ref::text, job.available_at,
        extract(epoch FROM clock_timestamp() - job.created_at)::float8, NULL::float8;

    IF NOT found THEN
        -- At the same moment, so that no job comes due unseen in between. Only what is not due yet: a due job that was not
        -- claimed waits for another one of its path, and not for a time. Jobs of both stages share this order; when the
        -- first thousand are all of the other one, no time is told, and whoever asks looks again by itself.
        next_due_s := (
            SELECT extract(epoch FROM min(later.available_at) - clock_timestamp())::float8
            FROM (
                SELECT job.available_at, job.stage
                FROM mcp_file_index_jobs AS job
                WHERE current_setting('armarium.tenant') IN (job.apikey_hash, '*')
                    AND job.status = 'pending' AND job.available_at > now()
                ORDER BY job.available_at
                LIMIT 1000
            ) AS later
            WHERE later.stage = of_stage
        );
        RETURN NEXT;
    END IF;
END $$;
