-- A job has two stages: words, written in milliseconds, and vectors, which a model takes its time for. Each stage has a
-- queue of its own, so that the words of a change never wait for the vectors of earlier ones.

ALTER TABLE mcp_file_index_jobs
ADD COLUMN stage VARCHAR(16) NOT NULL DEFAULT 'words' CHECK (stage IN ('words', 'vectors'));

-- Claims walk along this one. It is written so that they cannot take the index of all states instead, which in one
-- stage leads past everything that waits for the other.
CREATE INDEX idx_mcp_file_index_jobs_due ON mcp_file_index_jobs (stage, available_at, id)
WHERE (status = 'pending') IS TRUE;

DROP INDEX idx_mcp_file_index_jobs_path;
CREATE INDEX idx_mcp_file_index_jobs_path ON mcp_file_index_jobs (apikey_hash, project, file_path, stage, id)
WHERE status IN ('pending', 'processing');

-- A file may be renamed and deleted before its passages follow: they are found by the path it had at the end.
CREATE INDEX idx_mcp_files_deleted_path ON mcp_files (apikey_hash, project, path) WHERE deleted = TRUE;

-- A queue fills and empties faster than the database's statistics follow, and with old ones it reads and sorts all of it
-- to take twenty jobs. There is one good plan, whatever the statistics say: along the index of what is due.
CREATE FUNCTION mcp_file_claim_jobs(of_stage TEXT, batch INT, claim TEXT, lease_s FLOAT8)
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

    -- Takes the paths with the oldest due jobs of a stage. Whoever locks the eldest open job of a path there holds the
    -- path: the lock looks at the row as it is now, so a worker that began to look before another one claimed the path,
    -- or handed the job on, leaves it alone. Of each path only the newest job is worked on. The older ones are done with
    -- it: what counts is the state now. IS TRUE: single jobs are looked up by their ids, and not in an index of states,
    -- which the planner takes for as short.
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT eldest.id, eldest.apikey_hash, eldest.project, eldest.file_path
        FROM mcp_file_index_jobs AS due
        CROSS JOIN LATERAL (
            SELECT open_job.id
            FROM mcp_file_index_jobs AS open_job
            WHERE open_job.apikey_hash = due.apikey_hash
                AND open_job.project = due.project
                AND open_job.file_path = due.file_path
                AND open_job.stage = of_stage
                AND open_job.status IN ('pending', 'processing')
            ORDER BY open_job.id
            LIMIT 1
        ) AS first_open
        JOIN mcp_file_index_jobs AS eldest ON eldest.id = first_open.id AND eldest.apikey_hash = due.apikey_hash
        WHERE due.stage = of_stage
            AND (due.status = 'pending') IS TRUE
            AND due.available_at <= now()
            AND (eldest.stage = of_stage AND eldest.status = 'pending') IS TRUE
        ORDER BY due.available_at, due.id
        LIMIT batch
        FOR UPDATE OF eldest SKIP LOCKED
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
    SET status = CASE WHEN taken.newest THEN 'processing' ELSE 'done' END,
        worker = CASE WHEN taken.newest THEN claim END,
        lease_until = CASE WHEN taken.newest THEN now() + make_interval(secs => lease_s) END,
        updated_at = now()
    FROM taken
    WHERE job.id = taken.id AND (job.stage = of_stage AND job.status = 'pending') IS TRUE
    RETURNING job.id, job.apikey_hash::text, job.project::text, job.file_path::text, job.operation::text,
        job.retry_count, job.credential_ref::text, job.available_at,
        extract(epoch FROM clock_timestamp() - job.created_at)::float8, NULL::float8;

    IF NOT found THEN
        -- At the same moment, so that no job comes due unseen in between. Only what is not due yet: a due job that was not
        -- claimed waits for another one of its path, and not for a time.
        next_due_s := (
            SELECT extract(epoch FROM min(job.available_at) - clock_timestamp())::float8
            FROM mcp_file_index_jobs AS job
            WHERE current_setting('armarium.tenant') IN (job.apikey_hash, '*') AND job.stage = of_stage
                AND (job.status = 'pending') IS TRUE AND job.available_at > now()
        );
        RETURN NEXT;
    END IF;
END $$;
