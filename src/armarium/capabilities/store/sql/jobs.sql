-- Jobs of the outbox. Jobs of one path have ids in the order of its changes, because changes to a project take turns.
-- In each stage at most one job of a path is being processed, and it is always the eldest open one there.

-- name: claim
-- Takes the paths with the oldest due jobs of a stage. Whoever locks the eldest open job of a path there holds the path:
-- the lock looks at the row as it is now, so a worker that began to look before another one claimed the path, or handed
-- the job on, leaves it alone. Of each path only the newest job is worked on. The older ones are done with it: what
-- counts is the state now. IS TRUE: single jobs are looked up by their ids, and not in an index of states, which the
-- planner takes for as short.
WITH held AS MATERIALIZED (
    SELECT eldest.id, eldest.apikey_hash, eldest.project, eldest.file_path
    FROM mcp_file_index_jobs AS due
    CROSS JOIN LATERAL (
        SELECT open_job.id
        FROM mcp_file_index_jobs AS open_job
        WHERE open_job.apikey_hash = due.apikey_hash
            AND open_job.project = due.project
            AND open_job.file_path = due.file_path
            AND open_job.stage = $4
            AND open_job.status IN ('pending', 'processing')
        ORDER BY open_job.id
        LIMIT 1
    ) AS first_open
    JOIN mcp_file_index_jobs AS eldest ON eldest.id = first_open.id AND eldest.apikey_hash = due.apikey_hash
    WHERE due.stage = $4
        AND (due.status = 'pending') IS TRUE
        AND due.available_at <= now()
        AND (eldest.stage = $4 AND eldest.status = 'pending') IS TRUE
    ORDER BY due.available_at, due.id
    LIMIT $1
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
            AND job.stage = $4
            AND job.status IN ('pending', 'processing')
    ) AS open_jobs
)
UPDATE mcp_file_index_jobs AS job
SET status = CASE WHEN taken.newest THEN 'processing' ELSE 'done' END,
    worker = CASE WHEN taken.newest THEN $2::text END,
    lease_until = CASE WHEN taken.newest THEN now() + make_interval(secs => $3) END,
    updated_at = now()
FROM taken
WHERE job.id = taken.id AND (job.stage = $4 AND job.status = 'pending') IS TRUE
RETURNING job.id, job.apikey_hash, job.project, job.file_path, job.operation, job.retry_count, job.credential_ref,
    job.available_at, job.status, extract(epoch FROM clock_timestamp() - job.created_at)::float8 AS age_s;

-- name: renew
-- Says for which jobs the worker still has the lease.
UPDATE mcp_file_index_jobs AS job
SET lease_until = now() + make_interval(secs => $3)
FROM unnest($1::bigint[], $2::text[]) AS mine (id, worker)
WHERE job.id = mine.id AND job.worker = mine.worker AND job.status = 'processing'
RETURNING job.id, job.apikey_hash, job.worker;

-- name: done
-- A worker that lost its lease changes nothing.
UPDATE mcp_file_index_jobs AS job
SET status = 'done', worker = NULL, lease_until = NULL, error_code = NULL, updated_at = now()
WHERE job.apikey_hash = $1 AND job.id = $2 AND job.worker = $3 AND job.status = 'processing'
RETURNING extract(epoch FROM clock_timestamp() - job.created_at)::float8 AS lag_s;

-- name: hand_on
-- The words are there, and vectors are to come. Older jobs ($4) that the claim made needless come along where callers'
-- keys are kept for them: the next claim finds those keys, too.
WITH handed AS (
    UPDATE mcp_file_index_jobs AS job
    SET stage = 'vectors',
        status = 'pending',
        retry_count = 0,
        available_at = now(),
        worker = NULL,
        lease_until = NULL,
        error_code = NULL,
        updated_at = now()
    WHERE job.apikey_hash = $1 AND job.id = $2 AND job.worker = $3 AND job.status = 'processing'
    RETURNING job.id
),
with_keys AS (
    UPDATE mcp_file_index_jobs AS job
    SET stage = 'vectors', status = 'pending', available_at = now(), updated_at = now()
    WHERE job.apikey_hash = $1
        AND job.id = ANY($4::bigint[])
        AND job.status = 'done'
        AND job.credential_ref IS NOT NULL
        AND EXISTS (SELECT FROM handed)
)
SELECT id FROM handed;

-- name: put_back
-- Tried again later, or given up after $5 retries.
UPDATE mcp_file_index_jobs AS job
SET status = CASE WHEN job.retry_count < $5 THEN 'pending' ELSE 'failed' END,
    retry_count = CASE WHEN job.retry_count < $5 THEN job.retry_count + 1 ELSE job.retry_count END,
    available_at = now() + make_interval(secs => $6),
    worker = NULL,
    lease_until = NULL,
    error_code = $4,
    updated_at = now()
WHERE job.apikey_hash = $1 AND job.id = $2 AND job.worker = $3 AND job.status = 'processing'
RETURNING job.status;

-- name: release
-- Untouched jobs of a worker that ends; they keep their place in the queue.
UPDATE mcp_file_index_jobs AS job
SET status = 'pending', worker = NULL, lease_until = NULL, updated_at = now()
FROM unnest($1::bigint[], $2::text[]) AS mine (id, worker)
WHERE job.id = mine.id AND job.worker = mine.worker AND job.status = 'processing'
RETURNING job.id, job.apikey_hash;

-- name: recover
-- Jobs of workers that are not heard of any more. It counts as a try: a job that brings its worker down must not do so
-- for ever.
UPDATE mcp_file_index_jobs AS job
SET status = CASE WHEN job.retry_count < $1 THEN 'pending' ELSE 'failed' END,
    retry_count = CASE WHEN job.retry_count < $1 THEN job.retry_count + 1 ELSE job.retry_count END,
    worker = NULL,
    lease_until = NULL,
    error_code = 'LEASE_EXPIRED',
    updated_at = now()
WHERE job.status = 'processing' AND job.lease_until < now()
RETURNING job.id, job.apikey_hash, job.status;

-- name: next_due
-- Only what is not due yet: a due job that was not claimed waits for another one of its path, not for a time.
SELECT extract(epoch FROM min(job.available_at) - clock_timestamp())::float8
FROM mcp_file_index_jobs AS job
WHERE $1::text IN (job.apikey_hash, '*')
    AND job.stage = $2
    AND (job.status = 'pending') IS TRUE
    AND job.available_at > now();

-- name: depth
-- Of both stages.
SELECT job.status, count(*) AS jobs
FROM mcp_file_index_jobs AS job
WHERE $1::text IN (job.apikey_hash, '*') AND job.status IN ('pending', 'processing', 'failed')
GROUP BY job.status;

-- name: references_in_use
-- One change of many files keeps one key for all of their jobs.
SELECT DISTINCT job.credential_ref
FROM mcp_file_index_jobs AS job
WHERE job.apikey_hash = $1
    AND job.project = $2
    AND job.status IN ('pending', 'processing')
    AND job.credential_ref = ANY($3::text[]);
