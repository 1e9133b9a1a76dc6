-- Every statement names the tenant. The database says it again: a row of another tenant does not exist.
-- `armarium.tenant` is set at the beginning of each transaction; '*' is for the chores that go over all tenants.

DO $$
DECLARE
    tenant_table TEXT;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY[
        'mcp_files', 'mcp_file_projects', 'mcp_file_versions', 'mcp_file_chunks', 'mcp_file_chunk_embeddings',
        'mcp_file_chunk_bm25', 'mcp_file_index_jobs'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY only_own_tenant ON %I USING (current_setting(''armarium.tenant'', true) IN (apikey_hash, ''*''))',
            tenant_table
        );
    END LOOP;
END $$;
