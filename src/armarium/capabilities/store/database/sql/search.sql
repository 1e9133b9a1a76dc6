-- name: searched_extent
-- The projects that have chunks, with the number of chunks, of terms, and the languages. Those that match one of the
-- regular expressions $3 are hidden. The column that counts chunks is called `passages` in the table.
WITH indexed AS (
    SELECT project, passages, words, languages
    FROM mcp_file_indexed
    WHERE apikey_hash = $1 AND ($2 = '*' OR project = $2) AND passages > 0 AND NOT project ~ ANY($3::text[])
)
SELECT
    array_agg(DISTINCT project::text) AS projects,
    sum(passages)::float8 AS chunks,
    sum(words)::float8 AS words,
    ARRAY(SELECT DISTINCT unnest(languages) FROM indexed) AS languages
FROM indexed;

-- name: searched_extent_below
-- The same for the files in a range of paths ($3, $4). They are looked up by id: a join would read all rows of the
-- project.
WITH indexed AS MATERIALIZED (
    SELECT passages, words, languages
    FROM mcp_file_indexed
    WHERE (apikey_hash = $1) IS TRUE
        AND passages > 0
        AND file_id = ANY(
            ARRAY(
                SELECT id
                FROM mcp_files
                WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
            )
        )
)
SELECT
    sum(passages)::float8 AS chunks,
    sum(words)::float8 AS words,
    ARRAY(SELECT DISTINCT unnest(languages) FROM indexed) AS languages
FROM indexed;

-- name: indexed_projects
-- The projects that have chunks, by name, with the number of files and chunks, and whether changes wait for their
-- index. $3: as above.
SELECT
    project,
    count(*) AS files,
    sum(passages) AS chunks,
    max(indexed_at) AS indexed_at,
    project IN (
        SELECT project FROM mcp_file_index_jobs WHERE apikey_hash = $1 AND status IN ('pending', 'processing')
    ) AS waits
FROM mcp_file_indexed
WHERE apikey_hash = $1 AND passages > 0 AND NOT project ~ ANY($3::text[])
GROUP BY project
ORDER BY project
LIMIT $2;

-- name: modification_times
SELECT path, updated_at FROM mcp_files
WHERE apikey_hash = $1 AND project = $2 AND path = ANY($3::text[]) AND deleted = FALSE;

-- name: waits_for_index
SELECT EXISTS (
    SELECT FROM mcp_file_index_jobs
    WHERE apikey_hash = $1 AND project = $2 AND status IN ('pending', 'processing')
) AS waits;

-- name: nearest_chunks
-- An exact scan of all vectors of the projects: no result is missed, and no index over all tenants is involved. $3 and
-- $4: the range of paths.
-- IS TRUE: under row security the planner expects too few rows, and would loop over all files for each of them.
-- The vector is a subquery: a generic plan would parse a parameter once for each row.
WITH searched AS MATERIALIZED (
    SELECT id
    FROM mcp_files
    WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
)
SELECT chunk_id, file_id, -distance AS score
FROM (
    SELECT chunk_id, file_id, embedding <#> (SELECT $5::text::vector) AS distance
    FROM mcp_file_chunk_embeddings
    WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND model = $6
        AND (file_id IN (SELECT id FROM searched)) IS TRUE
    ORDER BY distance
    LIMIT $7
) AS nearest;

-- name: nearest_chunks_of_files
-- The same for a few files of large projects: file by file, which avoids reading the rest of the projects.
SELECT chunk_id, file_id, -distance AS score
FROM (
    SELECT vector.chunk_id, vector.file_id, vector.embedding <#> (SELECT $5::text::vector) AS distance
    FROM mcp_file_chunks AS chunk
    JOIN mcp_file_chunk_embeddings AS vector ON vector.chunk_id = chunk.id AND (vector.apikey_hash = $1) IS TRUE
    WHERE (chunk.apikey_hash = $1) IS TRUE
        AND chunk.file_id = ANY(
            ARRAY(
                SELECT id
                FROM mcp_files
                WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
            )
        )
        AND (vector.model = $6) IS TRUE
    ORDER BY distance
    LIMIT $7
) AS nearest;

-- name: chunks_by_terms
-- BM25 with k1 = 1.2 and b = 0.75, over the files in a range of paths ($3, $4). OFFSET 0: a term is looked up once per
-- chunk, after the chunk is known to contain one of them.
WITH active AS MATERIALIZED (
    SELECT id
    FROM mcp_files
    WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
),
posting AS MATERIALIZED (
    SELECT
        bm25.chunk_id,
        bm25.file_id,
        term.place,
        term.times,
        1.2::float8 * (0.25::float8 + 0.75::float8 * bm25.token_count / $7::float8) AS saturation
    FROM mcp_file_chunk_bm25 AS bm25
    CROSS JOIN LATERAL (
        SELECT place, (bm25.tokens -> stem)::float8 AS times
        FROM unnest($5::text[]) WITH ORDINALITY AS each_term (stem, place)
        OFFSET 0
    ) AS term
    WHERE bm25.apikey_hash = $1 AND bm25.project = ANY($2::text[])
        AND bm25.tokens ?| $5::text[] AND term.times IS NOT NULL
        AND (bm25.file_id IN (SELECT id FROM active)) IS TRUE
),
rarity AS (
    SELECT array_agg(ln(1 + ($6::float8 - chunks + 0.5::float8) / (chunks + 0.5::float8)) ORDER BY place) AS of_term
    FROM (
        SELECT place, count(posting.chunk_id)::float8 AS chunks
        FROM generate_subscripts($5::text[], 1) AS place
        LEFT JOIN posting USING (place)
        GROUP BY place
    ) AS counted
)
SELECT
    chunk_id,
    file_id,
    sum((SELECT of_term FROM rarity)[place] * times * 2.2::float8 / (times + saturation)) AS score
FROM posting
GROUP BY chunk_id, file_id
ORDER BY score DESC, chunk_id
LIMIT $8;

-- name: chunks_of_files_by_terms
-- The same for a few files of large projects.
WITH posting AS MATERIALIZED (
    SELECT
        bm25.chunk_id,
        bm25.file_id,
        term.place,
        term.times,
        1.2::float8 * (0.25::float8 + 0.75::float8 * bm25.token_count / $7::float8) AS saturation
    FROM mcp_file_chunks AS chunk
    JOIN mcp_file_chunk_bm25 AS bm25 ON bm25.chunk_id = chunk.id AND (bm25.apikey_hash = $1) IS TRUE
    CROSS JOIN LATERAL (
        SELECT place, (bm25.tokens -> stem)::float8 AS times
        FROM unnest($5::text[]) WITH ORDINALITY AS each_term (stem, place)
        OFFSET 0
    ) AS term
    WHERE (chunk.apikey_hash = $1) IS TRUE
        AND chunk.file_id = ANY(
            ARRAY(
                SELECT id
                FROM mcp_files
                WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
            )
        )
        AND bm25.tokens ?| $5::text[] AND term.times IS NOT NULL
),
rarity AS (
    SELECT array_agg(ln(1 + ($6::float8 - chunks + 0.5::float8) / (chunks + 0.5::float8)) ORDER BY place) AS of_term
    FROM (
        SELECT place, count(posting.chunk_id)::float8 AS chunks
        FROM generate_subscripts($5::text[], 1) AS place
        LEFT JOIN posting USING (place)
        GROUP BY place
    ) AS counted
)
SELECT
    chunk_id,
    file_id,
    sum((SELECT of_term FROM rarity)[place] * times * 2.2::float8 / (times + saturation)) AS score
FROM posting
GROUP BY chunk_id, file_id
ORDER BY score DESC, chunk_id
LIMIT $8;

-- name: current_chunks
-- Only chunks whose text the file still has at that position: an index that lags behind never returns overwritten text.
WITH file AS MATERIALIZED (
    SELECT id, project, path, content
    FROM mcp_files
    WHERE apikey_hash = $1 AND id = ANY($3::bigint[]) AND deleted = FALSE AND path >= $4 AND path < $5
),
chunk AS MATERIALIZED (
    SELECT id, file_id, start_byte, end_byte, chunk_content
    FROM mcp_file_chunks
    WHERE apikey_hash = $1 AND id = ANY($2::bigint[])
)
SELECT
    chunk.id,
    file.project,
    file.path,
    chunk.start_byte,
    chunk.end_byte,
    chunk.chunk_content,
    EXISTS (
        SELECT FROM mcp_file_chunk_embeddings AS vector
        WHERE (vector.apikey_hash = $1) IS TRUE AND vector.chunk_id = chunk.id AND vector.model = $6
    ) AS embedded
FROM chunk
JOIN file ON file.id = chunk.file_id
WHERE substring(file.content FROM chunk.start_byte::int + 1 FOR (chunk.end_byte - chunk.start_byte)::int)
    = convert_to(chunk.chunk_content, 'UTF8');

-- name: record_served
-- Skips rows that another search or a worker has locked, so that no search waits. IS TRUE: chunks are looked up by id;
-- in a table that grew since the last ANALYZE, the planner would read all of the tenant's rows for each of them.
WITH free AS MATERIALIZED (
    SELECT id
    FROM mcp_file_chunks
    WHERE (apikey_hash = $1) IS TRUE AND id = ANY($2::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE mcp_file_chunks SET last_served_at = now()
WHERE (apikey_hash = $1) IS TRUE AND id IN (SELECT id FROM free);
