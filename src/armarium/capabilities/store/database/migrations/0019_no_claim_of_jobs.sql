-- Of databases that had it from 0005. Claims go through `mcp_file_claim_at_once` (0013).
DROP FUNCTION IF EXISTS mcp_file_claim_jobs(TEXT, INT, TEXT, FLOAT8);
