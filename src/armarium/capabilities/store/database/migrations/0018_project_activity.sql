-- When the files of a project last changed: finding it out would read all of them. A trigger, so that earlier releases
-- that still run keep it, too.

SELECT set_config('armarium.tenant', '*', TRUE);

ALTER TABLE mcp_file_projects ADD COLUMN updated_at TIMESTAMPTZ;

UPDATE mcp_file_projects AS counter SET updated_at = newest.changed_at
FROM (
    SELECT apikey_hash, project, max(greatest(updated_at, deleted_at)) AS changed_at FROM mcp_files
    GROUP BY apikey_hash, project
) AS newest
WHERE counter.apikey_hash = newest.apikey_hash AND counter.project = newest.project;

SELECT set_config('armarium.tenant', '', TRUE);

CREATE FUNCTION mcp_file_project_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;

CREATE TRIGGER project_changed BEFORE INSERT OR UPDATE OF revision ON mcp_file_projects
FOR EACH ROW EXECUTE FUNCTION mcp_file_project_changed();
