-- Tenants take turns in the queue: a claim (0015) walks along the tenants that have work and takes some jobs of each. What
-- it costs depends neither on how many jobs one of them has waiting nor on how many tenants there are behind the next few.

CREATE INDEX idx_mcp_file_index_jobs_turn ON mcp_file_index_jobs (stage, apikey_hash, available_at, id)
WHERE (status = 'pending') IS TRUE;
DROP INDEX idx_mcp_file_index_jobs_due;
