-- Jobs of the outbox. The ids of the jobs of one path follow the order of its changes, because changes to a project are
-- serialised. In each stage at most one job of a path is being processed: the oldest open one.

-- name: claim
-- Returns one row without a job if none can be claimed, with the seconds until the next job is due.
SELECT id, apikey_hash, project, file_path, operation, retry_count, credential_ref, available_at, age_s, next_due_s
FROM mcp_file_claim_at_once($1, $2, $3, $4, $5, $6);

-- name: renew
-- Returns the jobs whose lease the worker still holds.
UPDATE mcp_file_index_jobs AS job
SET lease_until = now() + make_interval(secs => $3)
FROM unnest($1::bigint[], $2::text[]) AS mine (id, worker)
WHERE job.id = mine.id AND job.worker = mine.worker AND job.status = 'processing'
RETURNING job.id, job.apikey_hash, job.worker;

-- name: done
-- No effect if the worker has lost its lease.
UPDATE mcp_file_index_jobs AS job
SET status = 'done', worker = NULL, lease_until = NULL, error_code = NULL, updated_at = now()
WHERE job.apikey_hash = $1 AND job.id = $2 AND job.worker = $3 AND job.status = 'processing'
RETURNING extract(epoch FROM clock_timestamp() - job.created_at)::float8 AS lag_s;

-- name: advance
-- Moves a job to the stage `vectors`. Superseded jobs ($4) that refer to a caller's key move with it, so that the next
-- claim finds those keys too.
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
        AND (job.status = 'done') IS TRUE
        AND job.credential_ref IS NOT NULL
        AND EXISTS (SELECT FROM handed)
)
SELECT id FROM handed;

-- name: reschedule
-- Schedules a retry, or marks the job as failed after $5 retries.
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
-- Returns unfinished jobs of a worker that stops; they keep their position in the queue.
UPDATE mcp_file_index_jobs AS job
SET status = 'pending', worker = NULL, lease_until = NULL, updated_at = now()
FROM unnest($1::bigint[], $2::text[]) AS mine (id, worker)
WHERE job.id = mine.id AND job.worker = mine.worker AND job.status = 'processing'
RETURNING job.id, job.apikey_hash;

-- name: recover
-- Jobs whose lease has expired. This counts as a retry, so that a job that crashes its worker fails in the end.
UPDATE mcp_file_index_jobs AS job
SET status = CASE WHEN job.retry_count < $1 THEN 'pending' ELSE 'failed' END,
    retry_count = CASE WHEN job.retry_count < $1 THEN job.retry_count + 1 ELSE job.retry_count END,
    worker = NULL,
    lease_until = NULL,
    error_code = 'LEASE_EXPIRED',
    updated_at = now()
WHERE job.status = 'processing' AND job.lease_until < now()
RETURNING job.id, job.apikey_hash, job.status;

-- name: depth
-- Number of jobs by status, in both stages together.
SELECT job.status, count(*) AS jobs
FROM mcp_file_index_jobs AS job
WHERE $1::text IN (job.apikey_hash, '*') AND job.status IN ('pending', 'processing', 'failed')
GROUP BY job.status;

-- name: references_in_use
-- A change of many files stores one key for all of their jobs.
SELECT DISTINCT job.credential_ref
FROM mcp_file_index_jobs AS job
WHERE job.apikey_hash = $1
    AND job.project = $2
    AND job.status IN ('pending', 'processing')
    AND job.credential_ref = ANY($3::text[]);
