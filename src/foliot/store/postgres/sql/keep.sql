-- name: make_partitions
SELECT foliot.make_partitions(7)

-- name: outlived_partitions
-- Days of history that ended before the term began.
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN foliot.setting s
WHERE i.inhparent = 'foliot.history'::regclass AND c.relname ~ '^history_[0-9]{8}$'
    AND extract(epoch FROM to_date(right(c.relname, 8), 'YYYYMMDD') + 1) * 1000000
        <= :now::bigint - s.keep_days * 86400000000
ORDER BY c.relname

-- name: begins_at
-- When the term of what is kept begins; NULL when all is kept.
SELECT :now::bigint - keep_days * 86400000000 FROM foliot.setting

-- name: drop_outlived
-- From the partition for all other days, a few at a time.
WITH gone AS (
    DELETE FROM foliot.history_other WHERE ctid IN (
        SELECT ctid FROM foliot.history_other WHERE finished_at < :before LIMIT :limit)
    RETURNING number, name
), unnamed AS (
    DELETE FROM foliot.named n USING gone WHERE n.name = gone.name AND n.number = gone.number
), untold AS (
    DELETE FROM foliot.attempt a USING gone WHERE a.run = gone.number
)
SELECT count(*) FROM gone

-- name: drop_unheeded
-- A run that ended at the very moment when somebody asked it to stop leaves the request behind.
DELETE FROM foliot.cancellation c
WHERE NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = c.number AND r.state = 4)

-- name: drop_events
WITH gone AS (
    DELETE FROM foliot.event WHERE n IN (SELECT n FROM foliot.event WHERE at < :before ORDER BY n LIMIT :limit)
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: drop_empty_claims
-- Claims of which no run is left: their last ones were completed in a caller's own transaction.
DELETE FROM foliot.claim c WHERE c.claimed_at < :before
    AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = ANY(c.numbers)
        AND ((r.state = 4 AND r.token = c.token) OR (r.state < 2 AND NOT c.written)))

-- name: end_silent
-- Instances of hosts that are gone never say goodbye.
UPDATE foliot.instance i SET ended_at = :now WHERE i.ended_at IS NULL AND i.beat_at < :before
    AND i.number NOT IN (SELECT worker FROM foliot.claim)

-- name: drop_ledgers
-- Ledgers of lineages of which no run is left, live or ended: as long as one is, a rerun may need them. A few at a time.
WITH forgotten AS MATERIALIZED (
    SELECT l.lineage FROM (
        SELECT lineage FROM foliot.effect WHERE started_at < :before UNION SELECT lineage FROM foliot.item WHERE at < :before
    ) l
    WHERE NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = l.lineage)
        AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.lineage = l.lineage)
        AND NOT EXISTS (SELECT 1 FROM foliot.history h WHERE h.number = l.lineage)
        AND NOT EXISTS (SELECT 1 FROM foliot.history h WHERE h.lineage = l.lineage)
    LIMIT :limit
), effects AS (
    DELETE FROM foliot.effect e USING forgotten f WHERE e.lineage = f.lineage
), items AS (
    DELETE FROM foliot.item i USING forgotten f WHERE i.lineage = f.lineage
), batches AS (
    DELETE FROM foliot.batch b USING forgotten f WHERE b.lineage = f.lineage
)
SELECT count(*) FROM forgotten

-- name: keep_days
SELECT keep_days FROM foliot.setting

-- name: set_keep_days
UPDATE foliot.setting SET keep_days = :days
