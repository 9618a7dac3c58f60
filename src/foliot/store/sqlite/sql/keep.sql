-- name: keep_days
SELECT keep_days FROM setting

-- name: set_keep_days
UPDATE setting SET keep_days = :days

-- name: outlived
-- Of the next endings after a place, those that have outlived their term, and were counted; and whether one stays all the
-- same, because a tick over many members still has to count it. They are in the order of their endings, but for those of a
-- host whose clock was wrong: hence more are looked at. The last row stays: numbers of rows go on from it.
SELECT n, number, EXISTS (SELECT 1 FROM run r WHERE r.name = substr(h.name, 1, instr(h.name, '[') - 1)
        AND r.member_set IS NOT NULL)
FROM (SELECT n, number, name, finished_at FROM history WHERE n > :after ORDER BY n LIMIT :look) h
WHERE finished_at < :before AND n <= (SELECT position FROM tallied) AND n < (SELECT max(n) FROM history)
ORDER BY n LIMIT :limit

-- name: drop_attempts
DELETE FROM attempt WHERE run IN carray(:numbers)

-- name: drop_outlived
DELETE FROM history WHERE n IN carray(:places)

-- name: drop_events
-- The last one stays, likewise.
DELETE FROM event WHERE n IN (SELECT n FROM (SELECT n, at FROM event ORDER BY n LIMIT :look)
    WHERE at < :before AND n < (SELECT max(n) FROM event) LIMIT :limit)

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
