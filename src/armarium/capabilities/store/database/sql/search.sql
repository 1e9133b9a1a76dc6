-- name: searched_extent
-- What is searched: the projects that have passages, how many, how long, and in which languages.
WITH indexed AS (
    SELECT project, passages, words, languages
    FROM mcp_file_indexed
    WHERE apikey_hash = $1 AND ($2 = '*' OR project = $2) AND passages > 0
)
SELECT
    array_agg(DISTINCT project::text) AS projects,
    sum(passages)::float8 AS passages,
    sum(words)::float8 AS words,
    ARRAY(SELECT DISTINCT unnest(languages) FROM indexed) AS languages
FROM indexed;

-- name: searched_extent_below
-- The same for the files of a range of paths ($3, $4). They are looked up by their ids: as a join, all that is indexed of
-- the project would be read.
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
    sum(passages)::float8 AS passages,
    sum(words)::float8 AS words,
    ARRAY(SELECT DISTINCT unnest(languages) FROM indexed) AS languages
FROM indexed;

-- name: searched_projects
-- The projects that have something to be found, by name, with how many files and passages that is.
SELECT
    project,
    count(*) AS files,
    sum(passages) AS passages,
    max(indexed_at) AS indexed_at
FROM mcp_file_indexed
WHERE apikey_hash = $1 AND passages > 0
GROUP BY project
ORDER BY project
LIMIT $2;

-- name: nearest_passages
-- All vectors of the projects are looked at: nothing is missed, and no index over all tenants is asked. $3 and $4: the range
-- of paths.
-- IS TRUE: row security makes the planner expect so few rows that it would loop over all files for each of them.
WITH searched AS MATERIALIZED (
    SELECT id
    FROM mcp_files
    WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
)
SELECT chunk_id, file_id, -(embedding <#> $5::text::vector) AS score
FROM mcp_file_chunk_embeddings
WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND model = $6
    AND (file_id IN (SELECT id FROM searched)) IS TRUE
ORDER BY embedding <#> $5::text::vector
LIMIT $7;

-- name: nearest_passages_of_files
-- The same for few files of large projects: file by file, so that the rest of the projects is not read.
SELECT vector.chunk_id, vector.file_id, -(vector.embedding <#> $5::text::vector) AS score
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
ORDER BY vector.embedding <#> $5::text::vector
LIMIT $7;

-- name: passages_by_words
-- BM25 with k1 = 1.2 and b = 0.75, over the files of a range of paths ($3, $4).
WITH active AS MATERIALIZED (
    SELECT id
    FROM mcp_files
    WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
),
posting AS MATERIALIZED (
    SELECT
        passage.chunk_id,
        passage.file_id,
        word.place,
        (passage.tokens -> word.stem)::float8 AS times,
        1.2::float8 * (0.25::float8 + 0.75::float8 * passage.token_count / $7::float8) AS saturation
    FROM mcp_file_chunk_bm25 AS passage
    CROSS JOIN unnest($5::text[]) WITH ORDINALITY AS word (stem, place)
    WHERE passage.apikey_hash = $1 AND passage.project = ANY($2::text[])
        AND passage.tokens ?| $5::text[] AND passage.tokens ? word.stem
        AND (passage.file_id IN (SELECT id FROM active)) IS TRUE
),
rarity AS (
    SELECT array_agg(ln(1 + ($6::float8 - passages + 0.5::float8) / (passages + 0.5::float8)) ORDER BY place) AS of_word
    FROM (
        SELECT place, count(posting.chunk_id)::float8 AS passages
        FROM generate_subscripts($5::text[], 1) AS place
        LEFT JOIN posting USING (place)
        GROUP BY place
    ) AS counted
)
SELECT
    chunk_id,
    file_id,
    sum((SELECT of_word FROM rarity)[place] * times * 2.2::float8 / (times + saturation)) AS score
FROM posting
GROUP BY chunk_id, file_id
ORDER BY score DESC, chunk_id
LIMIT $8;

-- name: passages_of_files_by_words
-- The same for few files of large projects.
WITH posting AS MATERIALIZED (
    SELECT
        passage.chunk_id,
        passage.file_id,
        word.place,
        (passage.tokens -> word.stem)::float8 AS times,
        1.2::float8 * (0.25::float8 + 0.75::float8 * passage.token_count / $7::float8) AS saturation
    FROM mcp_file_chunks AS chunk
    JOIN mcp_file_chunk_bm25 AS passage ON passage.chunk_id = chunk.id AND (passage.apikey_hash = $1) IS TRUE
    CROSS JOIN unnest($5::text[]) WITH ORDINALITY AS word (stem, place)
    WHERE (chunk.apikey_hash = $1) IS TRUE
        AND chunk.file_id = ANY(
            ARRAY(
                SELECT id
                FROM mcp_files
                WHERE apikey_hash = $1 AND project = ANY($2::text[]) AND path >= $3 AND path < $4 AND deleted = FALSE
            )
        )
        AND passage.tokens ?| $5::text[] AND passage.tokens ? word.stem
),
rarity AS (
    SELECT array_agg(ln(1 + ($6::float8 - passages + 0.5::float8) / (passages + 0.5::float8)) ORDER BY place) AS of_word
    FROM (
        SELECT place, count(posting.chunk_id)::float8 AS passages
        FROM generate_subscripts($5::text[], 1) AS place
        LEFT JOIN posting USING (place)
        GROUP BY place
    ) AS counted
)
SELECT
    chunk_id,
    file_id,
    sum((SELECT of_word FROM rarity)[place] * times * 2.2::float8 / (times + saturation)) AS score
FROM posting
GROUP BY chunk_id, file_id
ORDER BY score DESC, chunk_id
LIMIT $8;

-- name: passages_as_they_are
-- Only what the file still says at that place: an index that lags behind never brings back what was overwritten.
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

-- name: note_served
-- What another search or the indexing has in hand is skipped: nobody waits for anybody here. IS TRUE: passages are looked
-- up by their ids; in a table that grew since it was last analysed all of the tenant's would be read for each of them.
WITH free AS MATERIALIZED (
    SELECT id
    FROM mcp_file_chunks
    WHERE (apikey_hash = $1) IS TRUE AND id = ANY($2::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE mcp_file_chunks SET last_served_at = now()
WHERE (apikey_hash = $1) IS TRUE AND id IN (SELECT id FROM free);
