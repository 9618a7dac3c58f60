-- name: stored_runs
-- Lockable values as they are stored. What a tick over many members keeps in its checkpoint is the store's own.
SELECT number, number, job, payload, CASE WHEN member_set IS NULL THEN checkpoint END, result FROM foliot.run
WHERE number > :after ORDER BY number LIMIT :limit

-- name: change_stored_run
-- Waits for nobody: what somebody else has its hands on is passed over, so that no two wait for one another.
UPDATE foliot.run SET payload = :payload::bytea, result = :result::bytea,
    checkpoint = CASE WHEN member_set IS NULL THEN :checkpoint::bytea ELSE checkpoint END
WHERE number = (SELECT r.number FROM foliot.run r WHERE r.number = :position FOR UPDATE SKIP LOCKED) AND payload = :was_payload::bytea AND result IS NOT DISTINCT FROM :was_result::bytea
    AND (member_set IS NOT NULL OR checkpoint IS NOT DISTINCT FROM :was_checkpoint::bytea)

-- name: stored_schedules
SELECT id, 0, job, payload, NULL::bytea, NULL::bytea FROM foliot.schedule WHERE id > :after ORDER BY id LIMIT :limit

-- name: change_stored_schedule
UPDATE foliot.schedule SET payload = :payload::bytea 
WHERE id = (SELECT s.id FROM foliot.schedule s WHERE s.id = :position FOR UPDATE SKIP LOCKED)
    AND payload = :was_payload::bytea

-- name: stored_backfills
SELECT number, 0, job, payload, NULL::bytea, NULL::bytea FROM foliot.backfill
WHERE number > :after AND ended_at IS NULL ORDER BY number LIMIT :limit

-- name: change_stored_backfill
UPDATE foliot.backfill SET payload = :payload::bytea WHERE number = :position AND payload = :was_payload::bytea

-- name: stored_effects
SELECT n, run, name || ':' || key, NULL::bytea, NULL::bytea, result FROM foliot.effect
WHERE n > :after ORDER BY n LIMIT :limit

-- name: change_stored_effect
UPDATE foliot.effect SET result = :result::bytea WHERE n = :position AND result IS NOT DISTINCT FROM :was_result::bytea

-- name: stored_history
SELECT number, number, job, payload, NULL::bytea, result FROM foliot.history WHERE number > :after ORDER BY number LIMIT :limit

-- name: change_stored_history
UPDATE foliot.history SET payload = :payload::bytea, result = :result::bytea
WHERE number = :position AND payload = :was_payload::bytea AND result IS NOT DISTINCT FROM :was_result::bytea
