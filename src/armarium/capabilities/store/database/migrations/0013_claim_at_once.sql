-- A claim is about all tenants. Said in the database, it takes one round trip instead of three. (A function may not be
-- given the setting once and for all: only a superuser may do that with a setting of our own.)
CREATE FUNCTION mcp_file_claim_at_once(
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
AS $$
BEGIN
    PERFORM set_config('armarium.tenant', '*', TRUE);
    RETURN QUERY SELECT * FROM mcp_file_claim_in_turn(of_stage, batch, claim, lease_s, after_tenant, skipped);
END $$;
