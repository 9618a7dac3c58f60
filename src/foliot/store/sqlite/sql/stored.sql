-- name: stored_runs
-- Lockable values as they are stored. What a tick over many members keeps in its checkpoint is the store's own.
SELECT number, number, job, payload, CASE WHEN member_set IS NULL THEN checkpoint END, result FROM run
WHERE number > :after ORDER BY number LIMIT :limit

-- name: change_stored_run
UPDATE run SET payload = :payload, checkpoint = CASE WHEN member_set IS NULL THEN :checkpoint ELSE checkpoint END,
    result = :result
WHERE number = :position AND payload = :was_payload AND result IS :was_result
    AND (member_set IS NOT NULL OR checkpoint IS :was_checkpoint)

-- name: stored_schedules
SELECT id, 0, job, payload, NULL, NULL FROM schedule WHERE id > :after ORDER BY id LIMIT :limit

-- name: change_stored_schedule
UPDATE schedule SET payload = :payload WHERE id = :position AND payload = :was_payload

-- name: stored_backfills
SELECT number, 0, job, payload, NULL, NULL FROM backfill WHERE number > :after AND ended_at IS NULL
ORDER BY number LIMIT :limit

-- name: change_stored_backfill
UPDATE backfill SET payload = :payload WHERE number = :position AND payload = :was_payload

-- name: stored_effects
SELECT n, run, name || ':' || key, NULL, NULL, result FROM effect WHERE n > :after ORDER BY n LIMIT :limit

-- name: change_stored_effect
UPDATE effect SET result = :result WHERE n = :position AND result IS :was_result

-- name: stored_history
SELECT number, number, job, payload, NULL, result FROM history WHERE number > :after ORDER BY number LIMIT :limit

-- name: change_stored_history
UPDATE history SET payload = :payload, result = :result
WHERE number = :position AND payload = :was_payload AND result IS :was_result
