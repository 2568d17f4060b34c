WITH
"words list" AS (
    SELECT id, ts_rank_cd(EDIT_ME_tsvector, asked_words)::double precision AS score
    FROM EDIT_ME_table, websearch_to_tsquery('english', %(text)s) AS asked_words
    WHERE EDIT_ME_tsvector @@ asked_words
    ORDER BY score DESC, id
    LIMIT 100
),
"vectors list" AS (
    SELECT id, 1 - (EDIT_ME_vector <=> %(vector)s::vector) AS score
    FROM EDIT_ME_table
    ORDER BY EDIT_ME_vector <=> %(vector)s::vector, id
    LIMIT 100
),
"words" AS (
    SELECT id, CASE WHEN max(score) OVER () = min(score) OVER () THEN 1.0 WHEN score = min(score) OVER () THEN 0.001 ELSE (score - min(score) OVER ()) / (max(score) OVER () - min(score) OVER ()) END AS score FROM "words list"
),
"vectors" AS (
    SELECT id, CASE WHEN max(score) OVER () = min(score) OVER () THEN 1.0 WHEN score = min(score) OVER () THEN 0.001 ELSE (score - min(score) OVER ()) / (max(score) OVER () - min(score) OVER ()) END AS score FROM "vectors list"
)
SELECT id,
    %(weight_words)s * COALESCE("words".score, 0.0)
        + %(weight_vectors)s * COALESCE("vectors".score, 0.0) AS score
FROM "words"
    FULL JOIN "vectors" USING (id)
ORDER BY score DESC, id
LIMIT 10;
