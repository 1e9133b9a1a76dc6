-- Files, the counter of each project, and earlier versions. Files that are there already (adopt.sql) are kept.

CREATE TABLE IF NOT EXISTS mcp_files (
    id          BIGSERIAL     PRIMARY KEY,
    apikey_hash CHAR(64)      NOT NULL,
    project     VARCHAR(128)  NOT NULL,
    path        VARCHAR(1024) COLLATE "C" NOT NULL,
    content     BYTEA         NOT NULL,
    size        BIGINT        NOT NULL DEFAULT 0,
    created_at  TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at  TIMESTAMPTZ   NOT NULL DEFAULT now(),
    deleted     BOOLEAN       NOT NULL DEFAULT FALSE,
    deleted_at  TIMESTAMPTZ,
    version     BIGINT        NOT NULL,
    CHECK (size = octet_length(content))
);

-- Paths are compared byte by byte, so this one serves prefixes, too.
CREATE UNIQUE INDEX IF NOT EXISTS uq_mcp_files_active ON mcp_files (apikey_hash, project, path) WHERE deleted = FALSE;
CREATE INDEX IF NOT EXISTS idx_mcp_files_deleted_at ON mcp_files (deleted_at) WHERE deleted = TRUE;

-- A sum over all files at every write would read them all.
CREATE TABLE IF NOT EXISTS mcp_file_projects (
    apikey_hash CHAR(64)     NOT NULL,
    project     VARCHAR(128) NOT NULL,
    bytes       BIGINT       NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    revision    BIGINT       NOT NULL DEFAULT 0,
    PRIMARY KEY (apikey_hash, project)
);

CREATE TABLE IF NOT EXISTS mcp_file_versions (
    id          BIGSERIAL     PRIMARY KEY,
    apikey_hash CHAR(64)      NOT NULL,
    project     VARCHAR(128)  NOT NULL,
    path        VARCHAR(1024) COLLATE "C" NOT NULL,
    version     BIGINT        NOT NULL,
    content     BYTEA         NOT NULL,
    size        BIGINT        NOT NULL,
    written_at  TIMESTAMPTZ   NOT NULL,
    replaced_at TIMESTAMPTZ   NOT NULL DEFAULT now()
);

CREATE INDEX IF NOT EXISTS idx_mcp_file_versions_path ON mcp_file_versions (apikey_hash, project, path, version);
CREATE INDEX IF NOT EXISTS idx_mcp_file_versions_age ON mcp_file_versions (replaced_at);

-- Of files that were there already.
INSERT INTO mcp_file_projects (apikey_hash, project, bytes, revision)
SELECT apikey_hash, project, coalesce(sum(size) FILTER (WHERE deleted = FALSE), 0), max(version)
FROM mcp_files
GROUP BY apikey_hash, project;
