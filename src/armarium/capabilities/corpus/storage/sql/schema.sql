-- The source of truth of a corpus. The lexical and vector indexes are derived from it.

CREATE TABLE documents (
    doc_id INTEGER PRIMARY KEY,
    rel_path TEXT NOT NULL UNIQUE,
    source_type TEXT NOT NULL,           -- file | archive_member
    doc_type TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    mtime_unix INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,           -- the full timestamp; with the size it identifies an unchanged file
    content_hash TEXT NOT NULL,          -- empty if the content is not stored: an excluded or failed file
    status TEXT NOT NULL,                -- ok | skipped | error
    error TEXT,
    container TEXT,                      -- the archive that contains a member
    deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX documents_by_container ON documents (container) WHERE container IS NOT NULL;
CREATE INDEX documents_in_trouble ON documents (status, rel_path) WHERE deleted = 0 AND status <> 'ok';

CREATE TABLE representations (
    rep_id INTEGER PRIMARY KEY,
    doc_id INTEGER NOT NULL REFERENCES documents,
    rep_type TEXT NOT NULL,
    rep_hash TEXT NOT NULL,
    created_unix INTEGER NOT NULL,
    meta_json TEXT NOT NULL,
    content BLOB,                        -- the text, zlib-compressed, if the file itself is not text
    deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX representations_by_document ON representations (doc_id);

CREATE TABLE chunks (
    chunk_id INTEGER PRIMARY KEY,        -- the key in the lexical and vector indexes; never reused
    rep_id INTEGER NOT NULL REFERENCES representations,
    ordinal INTEGER NOT NULL,
    text TEXT NOT NULL,
    context TEXT NOT NULL,
    text_hash BLOB NOT NULL,             -- of context and text, which are embedded together
    tokens_est INTEGER NOT NULL,
    index_kind TEXT NOT NULL,            -- text | code
    embedding_status TEXT NOT NULL,      -- ok | pending | error
    embedding_error TEXT,
    deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX chunks_by_representation ON chunks (rep_id);
CREATE INDEX chunks_to_embed ON chunks (chunk_id) WHERE embedding_status = 'pending' AND deleted = 0;

CREATE TABLE spans (
    chunk_id INTEGER PRIMARY KEY REFERENCES chunks,
    span_kind TEXT NOT NULL,             -- lines | page | time
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    extra_json TEXT                      -- {"crc32": …} of the row and of the chunk it belongs to
);

-- Vectors by the hash of their text: the same text, in any file, is embedded once.
CREATE TABLE embeddings (
    model TEXT NOT NULL,
    text_hash BLOB NOT NULL,
    vector BLOB NOT NULL,                -- float16, little-endian; then a checksum
    PRIMARY KEY (model, text_hash)
) WITHOUT ROWID;

-- Each value has a second row with its checksum, under its key and `#`.
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
