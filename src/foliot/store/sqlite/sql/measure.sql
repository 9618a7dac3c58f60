-- name: measured_chunks
SELECT queue, lane, fired_at, numbers FROM handoff

-- name: count_due
-- What can fire and is due: found in the index of these.
SELECT count(*) FROM run WHERE state <= 1 AND fire_at <= :now AND phase IS NULL AND waits_for IS NULL

-- name: count_open_alerts
SELECT kind, severity, count(*), sum(count) FROM alert WHERE resolved_at IS NULL GROUP BY kind, severity

-- name: count_parked_by_job
SELECT job, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, count(*) FROM run WHERE state >= 20 GROUP BY 1, 2

-- name: count_ended
SELECT job, state, count(*), sum(attempt) FROM history WHERE n > :position GROUP BY job, state

-- name: schedule_ages
SELECT id, made_at, paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now), fault IS NOT NULL
FROM schedule ORDER BY id
