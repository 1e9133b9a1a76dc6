-- Passages, what they are found by, and the jobs that make them. {dimensions} is filled in from the settings.

CREATE TABLE mcp_file_chunks (
    id             BIGSERIAL     PRIMARY KEY,
    apikey_hash    CHAR(64)      NOT NULL,
    project        VARCHAR(128)  NOT NULL,
    file_path      VARCHAR(1024) COLLATE "C" NOT NULL,
    chunk_index    INT           NOT NULL,
    start_byte     BIGINT        NOT NULL,
    end_byte       BIGINT        NOT NULL,
    chunk_content  TEXT          NOT NULL,
    content_hash   CHAR(64)      NOT NULL,
    created_at     TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at     TIMESTAMPTZ   NOT NULL DEFAULT now(),
    last_served_at TIMESTAMPTZ,
    UNIQUE (apikey_hash, project, file_path, chunk_index),
    CHECK (0 <= start_byte AND start_byte < end_byte)
);

-- Tenant and project stand here again: a scan for one project reads only its own rows.
CREATE TABLE mcp_file_chunk_embeddings (
    chunk_id    BIGINT       PRIMARY KEY REFERENCES mcp_file_chunks (id) ON DELETE CASCADE,
    apikey_hash CHAR(64)     NOT NULL,
    project     VARCHAR(128) NOT NULL,
    embedding   VECTOR({dimensions}) NOT NULL,
    model       VARCHAR(128) NOT NULL,
    created_at  TIMESTAMPTZ  NOT NULL DEFAULT now(),
    updated_at  TIMESTAMPTZ  NOT NULL DEFAULT now()
);

CREATE INDEX idx_mcp_file_chunk_embeddings_project ON mcp_file_chunk_embeddings (apikey_hash, project);

CREATE TABLE mcp_file_chunk_bm25 (
    chunk_id    BIGINT       PRIMARY KEY REFERENCES mcp_file_chunks (id) ON DELETE CASCADE,
    apikey_hash CHAR(64)     NOT NULL,
    project     VARCHAR(128) NOT NULL,
    tokens      JSONB        NOT NULL,
    token_count INT          NOT NULL,
    tokenizer   VARCHAR(64)  NOT NULL,
    created_at  TIMESTAMPTZ  NOT NULL DEFAULT now(),
    updated_at  TIMESTAMPTZ  NOT NULL DEFAULT now()
);

CREATE INDEX idx_mcp_file_chunk_bm25_project ON mcp_file_chunk_bm25 (apikey_hash, project);

CREATE TABLE mcp_file_index_jobs (
    id              BIGSERIAL     PRIMARY KEY,
    apikey_hash     CHAR(64)      NOT NULL,
    project         VARCHAR(128)  NOT NULL,
    file_path       VARCHAR(1024) COLLATE "C" NOT NULL,
    operation       VARCHAR(16)   NOT NULL CHECK (operation IN ('UPSERT', 'DELETE')),
    file_updated_at TIMESTAMPTZ,
    status          VARCHAR(16)   NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'processing', 'done', 'failed')),
    retry_count     INT           NOT NULL DEFAULT 0,
    available_at    TIMESTAMPTZ   NOT NULL DEFAULT now(),
    created_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    credential_ref  VARCHAR(64),
    lease_until     TIMESTAMPTZ,
    worker          VARCHAR(64),
    error_code      VARCHAR(64)
);

CREATE INDEX idx_mcp_file_index_jobs_pending ON mcp_file_index_jobs (status, available_at, id);
CREATE INDEX idx_mcp_file_index_jobs_path ON mcp_file_index_jobs (apikey_hash, project, file_path, id)
WHERE status IN ('pending', 'processing');
