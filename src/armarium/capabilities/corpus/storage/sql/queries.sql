-- name: get_setting
SELECT value FROM settings WHERE key = ?;

-- name: get_checked_setting
-- A setting and its checksum.
SELECT key, value FROM settings WHERE key IN (?, ?);

-- name: all_settings
SELECT key, value FROM settings;

-- name: put_setting
INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: known_documents
-- The recorded documents, which a scan compares with the directory.
SELECT rel_path, doc_id, size_bytes, mtime_ns, content_hash, status, container, error IS NOT NULL AND error GLOB 'FORBIDDEN:*'
FROM documents WHERE deleted = 0;

-- name: known_document
SELECT rel_path, doc_id, size_bytes, mtime_ns, content_hash, status, container, error IS NOT NULL AND error GLOB 'FORBIDDEN:*'
FROM documents WHERE rel_path = ? AND deleted = 0;

-- name: documents_below
-- Not LIKE: `_` and `%` in a directory's name are literal.
SELECT rel_path FROM documents WHERE deleted = 0 AND (substr(rel_path, 1, length(:prefix)) = :prefix);

-- name: members_of
SELECT rel_path FROM documents WHERE container = ? AND deleted = 0;

-- name: put_document
INSERT INTO documents (rel_path, source_type, doc_type, size_bytes, mtime_unix, mtime_ns, content_hash, status, error, container)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (rel_path) DO UPDATE SET
    source_type = excluded.source_type, doc_type = excluded.doc_type, size_bytes = excluded.size_bytes,
    mtime_unix = excluded.mtime_unix, mtime_ns = excluded.mtime_ns, content_hash = excluded.content_hash,
    status = excluded.status, error = excluded.error, container = excluded.container, deleted = 0
RETURNING doc_id;

-- name: touch_document
-- The file was written again with the same content.
UPDATE documents SET size_bytes = ?, mtime_unix = ?, mtime_ns = ? WHERE doc_id = ?;

-- name: mark_document_deleted
UPDATE documents SET deleted = 1 WHERE rel_path = ? AND deleted = 0 RETURNING doc_id, doc_type;

-- name: live_document
SELECT doc_id, doc_type FROM documents WHERE rel_path = ? AND deleted = 0;

-- name: live_representations
SELECT rep_id, rep_type, rep_hash FROM representations WHERE doc_id = ? AND deleted = 0;

-- name: put_representation
INSERT INTO representations (doc_id, rep_type, rep_hash, created_unix, meta_json, content)
VALUES (?, ?, ?, ?, ?, ?) RETURNING rep_id;

-- name: mark_representation_deleted
UPDATE representations SET deleted = 1 WHERE rep_id = ?;

-- name: live_chunks_of
SELECT chunk_id, text_hash, embedding_status = 'ok', index_kind = 'code' FROM chunks WHERE rep_id = ? AND deleted = 0;

-- name: put_chunk
INSERT INTO chunks (chunk_id, rep_id, ordinal, text, context, text_hash, tokens_est, index_kind, embedding_status)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending');

-- name: move_chunk
-- The same chunk in a new version of its document.
UPDATE chunks SET rep_id = ?, ordinal = ? WHERE chunk_id = ?;

-- name: mark_chunk_deleted
UPDATE chunks SET deleted = 1 WHERE chunk_id = ?;

-- name: put_span
INSERT INTO spans (chunk_id, span_kind, start, "end", extra_json) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (chunk_id) DO UPDATE SET
    span_kind = excluded.span_kind, start = excluded.start, "end" = excluded."end", extra_json = excluded.extra_json;

-- name: spans_to_check
-- The columns that the checksum of a span covers, in that order.
SELECT c.chunk_id, r.rep_type, c.index_kind, c.context, c.text, c.text_hash, s.span_kind, s.start, s."end"
FROM chunks c JOIN representations r USING (rep_id) JOIN spans s USING (chunk_id)
WHERE c.chunk_id > ? ORDER BY c.chunk_id LIMIT ?;

-- name: put_span_check
UPDATE spans SET extra_json = ? WHERE chunk_id = ?;

-- name: representation_text
SELECT r.content, r.meta_json FROM representations r JOIN documents d USING (doc_id)
WHERE d.rel_path = ? AND d.deleted = 0 AND r.deleted = 0 AND r.content IS NOT NULL;

-- name: document_state
SELECT doc_type, status, error FROM documents WHERE rel_path = ? AND deleted = 0;

-- name: all_documents
-- For the in-memory catalogue.
SELECT doc_id, rel_path, doc_type FROM documents WHERE deleted = 0;

-- name: all_chunks
SELECT c.chunk_id, r.doc_id, c.index_kind = 'code' FROM chunks c JOIN representations r USING (rep_id)
WHERE c.deleted = 0 ORDER BY c.chunk_id;

-- name: list_documents
SELECT rel_path, doc_type, size_bytes, mtime_unix, status, deleted FROM documents
WHERE deleted = 0 AND substr(rel_path, 1, length(:prefix)) = :prefix ORDER BY rel_path LIMIT :limit OFFSET :offset;

-- name: count_documents
SELECT count(*) FROM documents WHERE deleted = 0 AND substr(rel_path, 1, length(:prefix)) = :prefix;

-- name: paths_below
SELECT rel_path, doc_type, size_bytes, mtime_unix, status, deleted FROM documents
WHERE deleted = 0 AND substr(rel_path, 1, length(:prefix)) = :prefix ORDER BY rel_path;

-- name: index_documents_in_trouble
-- For files that an earlier version created.
CREATE INDEX IF NOT EXISTS documents_in_trouble ON documents (status, rel_path) WHERE deleted = 0 AND status <> 'ok';

-- name: documents_in_trouble
SELECT rel_path, doc_type, size_bytes, error FROM documents
WHERE deleted = 0 AND status <> 'ok' AND status = :state AND rel_path > :after ORDER BY rel_path LIMIT :limit;

-- name: count_in_trouble
-- Up to a limit.
SELECT count(*) FROM (SELECT 1 FROM documents WHERE deleted = 0 AND status <> 'ok' AND status = :state LIMIT :limit);

-- name: documents_modified
SELECT doc_id FROM documents WHERE deleted = 0 AND mtime_ns BETWEEN ? AND ?;

-- name: modification_times
SELECT rel_path, mtime_ns FROM documents WHERE deleted = 0 AND rel_path IN (SELECT value FROM json_each(?));

-- name: chunks_after
-- Chunks that the lexical index does not contain yet.
SELECT c.chunk_id, r.doc_id, c.index_kind, d.rel_path, json_extract(r.meta_json, '$.title'), c.context, c.text
FROM chunks c JOIN representations r USING (rep_id) JOIN documents d USING (doc_id)
WHERE c.chunk_id > ? AND c.deleted = 0 ORDER BY c.chunk_id LIMIT ?;

-- name: pending_chunks
SELECT chunk_id, index_kind, context, text, text_hash FROM chunks
WHERE embedding_status = 'pending' AND deleted = 0 AND chunk_id > ? ORDER BY chunk_id LIMIT ?;

-- name: embedding
SELECT vector FROM embeddings WHERE model = ? AND text_hash = ?;

-- name: put_embedding
-- Replaces a damaged vector.
INSERT INTO embeddings (model, text_hash, vector) VALUES (?, ?, ?)
ON CONFLICT (model, text_hash) DO UPDATE SET vector = excluded.vector WHERE vector <> excluded.vector;

-- name: mark_embedded
-- A chunk may have been deleted while it was being embedded.
UPDATE chunks SET embedding_status = 'ok', embedding_error = NULL WHERE chunk_id = ? AND deleted = 0;

-- name: mark_unembeddable
UPDATE chunks SET embedding_status = 'error', embedding_error = ? WHERE chunk_id = ?;

-- name: retry_unembeddable
-- Each start retries the texts that a provider refused.
UPDATE chunks SET embedding_status = 'pending' WHERE embedding_status = 'error' AND deleted = 0;

-- name: embedded_chunks
SELECT chunk_id FROM chunks WHERE embedding_status = 'ok' AND deleted = 0 AND index_kind = ? ORDER BY chunk_id;

-- name: vectors_of
SELECT c.chunk_id, e.text_hash, e.vector FROM chunks c JOIN embeddings e ON e.model = :model AND e.text_hash = c.text_hash
WHERE c.embedding_status = 'ok' AND c.deleted = 0 AND c.index_kind = :kind ORDER BY c.chunk_id;

-- name: counts
SELECT
    (SELECT count(*) FROM documents WHERE deleted = 0),
    (SELECT count(*) FROM representations WHERE deleted = 0),
    (SELECT count(*) FROM chunks WHERE deleted = 0),
    (SELECT count(*) FROM chunks WHERE deleted = 0 AND embedding_status = 'ok'),
    (SELECT count(*) FROM documents WHERE deleted = 0 AND status = 'error');

-- name: foreign_schema
SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view') LIMIT 1;

-- name: doc_counts
SELECT doc_type, count(*) FROM documents WHERE deleted = 0 GROUP BY doc_type ORDER BY doc_type;

-- name: extent
-- The newest representation is the one recorded last.
SELECT (SELECT count(*) FROM documents WHERE deleted = 0 AND status = 'ok'),
    (SELECT created_unix FROM representations ORDER BY rep_id DESC LIMIT 1);

-- name: dead_chunks
SELECT (SELECT count(*) FROM chunks WHERE deleted = 1), (SELECT count(*) FROM chunks);

-- name: purge_spans
DELETE FROM spans WHERE chunk_id IN (SELECT chunk_id FROM chunks WHERE deleted = 1);

-- name: purge_chunks
DELETE FROM chunks WHERE deleted = 1;

-- name: purge_representations
DELETE FROM representations WHERE deleted = 1 AND rep_id NOT IN (SELECT rep_id FROM chunks);

-- name: purge_documents
DELETE FROM documents WHERE deleted = 1 AND doc_id NOT IN (SELECT doc_id FROM representations);

-- name: purge_embeddings
-- Vectors that no live chunk uses.
DELETE FROM embeddings WHERE text_hash NOT IN (SELECT text_hash FROM chunks WHERE deleted = 0);

-- name: drop_other_models
DELETE FROM embeddings WHERE model NOT IN (SELECT value FROM settings WHERE key IN ('embed_text_model', 'embed_code_model'));

-- name: forget_spans
-- These four remove all documents. Vectors remain.
DELETE FROM spans;

-- name: forget_chunks
DELETE FROM chunks;

-- name: forget_representations
DELETE FROM representations;

-- name: forget_documents
DELETE FROM documents;

-- name: living_chunks
-- The chunks among these that are live.
SELECT c.chunk_id FROM json_each(?) wanted JOIN chunks c ON c.chunk_id = wanted.value
LEFT JOIN representations r USING (rep_id) LEFT JOIN documents d USING (doc_id)
WHERE c.deleted = 0 AND coalesce(d.deleted, 0) = 0;

-- name: embed_again
UPDATE chunks SET embedding_status = 'pending' WHERE chunk_id = ? AND embedding_status = 'ok';

-- name: chunks_by_id
SELECT c.chunk_id, d.rel_path, d.doc_type, r.rep_type, c.text, c.context, c.text_hash, c.index_kind, s.extra_json,
    s.span_kind, s.start, s."end"
FROM json_each(?) wanted
JOIN chunks c ON c.chunk_id = wanted.value
JOIN representations r USING (rep_id) JOIN documents d USING (doc_id) JOIN spans s USING (chunk_id)
WHERE c.deleted = 0 AND d.deleted = 0;
