-- name: measured_chunks
SELECT queue, lane, fired_at, numbers FROM handoff

-- name: count_due
-- What can fire and is due: found in the index of these.
SELECT count(*) FROM run WHERE state <= 1 AND fire_at <= :now AND phase IS NULL AND waits_for IS NULL

-- name: count_open_alerts
SELECT kind, severity, count(*) FROM alert WHERE resolved_at IS NULL GROUP BY kind, severity

-- name: count_parked_by_job
SELECT job, state, count(*) FROM run WHERE state >= 20 GROUP BY job, state

-- name: count_ended
SELECT job, state, count(*), sum(attempt) FROM history WHERE n > :position GROUP BY job, state

-- name: schedule_ages
SELECT s.id, s.made_at, (
    SELECT h.finished_at FROM history h INDEXED BY history_kept
    WHERE h.schedule = s.id AND h.schedule IS NOT NULL AND h.state IN (10, 11) ORDER BY h.nominal DESC LIMIT 1
), s.paused_at IS NOT NULL AND (s.paused_until IS NULL OR s.paused_until > :now), s.fault IS NOT NULL
FROM schedule s ORDER BY s.id
