-- name: keep_days
SELECT keep_days FROM setting

-- name: set_keep_days
UPDATE setting SET keep_days = :days

-- name: outlived
-- Of the oldest endings, those that have outlived their term, and were counted. The last row stays: numbers of rows go on
-- from it.
SELECT n, number FROM (SELECT n, number, finished_at FROM history ORDER BY n LIMIT :limit)
WHERE finished_at < :before AND n <= (SELECT position FROM tallied) AND n < (SELECT max(n) FROM history)

-- name: drop_attempts
DELETE FROM attempt WHERE run IN carray(:numbers)

-- name: drop_outlived
DELETE FROM history WHERE n IN carray(:places)

-- name: drop_events
-- The last one stays, likewise.
DELETE FROM event WHERE n IN (SELECT n FROM (SELECT n, at FROM event ORDER BY n LIMIT :limit)
    WHERE at < :before AND n < (SELECT max(n) FROM event))

-- name: forgotten_ledgers
-- Of lineages of which no run is left, live or ended: as long as one is, a rerun may need them. Those before `after` were
-- looked at; there is no index by time, because every effect would pay for it.
SELECT l.lineage, NOT EXISTS (SELECT 1 FROM run r WHERE r.number = l.lineage)
    AND NOT EXISTS (SELECT 1 FROM run r WHERE r.lineage = l.lineage)
    AND NOT EXISTS (SELECT 1 FROM history h WHERE h.number = l.lineage)
    AND NOT EXISTS (SELECT 1 FROM history h WHERE h.lineage IS NOT NULL AND h.lineage = l.lineage)
FROM (SELECT lineage FROM (
        SELECT DISTINCT lineage FROM effect WHERE lineage > :after AND lineage < :before_number
        UNION SELECT DISTINCT lineage FROM batch WHERE lineage > :after AND lineage < :before_number)
    ORDER BY lineage LIMIT :limit) l

-- name: drop_effects
DELETE FROM effect WHERE lineage IN carray(:lineages)

-- name: drop_items
DELETE FROM item WHERE lineage IN carray(:lineages)

-- name: drop_batches
DELETE FROM batch WHERE lineage IN carray(:lineages)
