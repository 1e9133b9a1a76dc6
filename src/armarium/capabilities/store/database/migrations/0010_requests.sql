-- Changes that came with an id of their caller's choice, and what they were answered: the same change asked for again, by a
-- caller who did not get the answer, is answered again and not made again.

CREATE TABLE mcp_file_requests (
    apikey_hash CHAR(64)     NOT NULL,
    project     VARCHAR(128) NOT NULL,
    request_id  VARCHAR(128) COLLATE "C" NOT NULL,
    digest      CHAR(64)     NOT NULL,
    answer      JSONB        NOT NULL,
    made_at     TIMESTAMPTZ  NOT NULL DEFAULT now(),
    PRIMARY KEY (apikey_hash, project, request_id)
);

CREATE INDEX idx_mcp_file_requests_age ON mcp_file_requests (made_at);
ALTER TABLE mcp_file_requests ENABLE ROW LEVEL SECURITY;
ALTER TABLE mcp_file_requests FORCE ROW LEVEL SECURITY;
CREATE POLICY only_own_tenant ON mcp_file_requests
USING (current_setting('armarium.tenant', true) IN (apikey_hash, '*'));
