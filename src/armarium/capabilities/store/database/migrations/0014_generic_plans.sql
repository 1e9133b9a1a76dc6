-- Every statement in these functions finds its rows by key, so one plan fits all tenants. Left to itself, PostgreSQL
-- plans a statement anew for each call once a table is large, because it expects a plan for one tenant to be cheaper:
-- that took 0.2 ms of each write.
ALTER FUNCTION mcp_file_stat(BPCHAR, TEXT, TEXT, INT) SET plan_cache_mode = force_generic_plan;

ALTER FUNCTION mcp_file_read(BPCHAR, TEXT, TEXT, INT, INT) SET plan_cache_mode = force_generic_plan;
