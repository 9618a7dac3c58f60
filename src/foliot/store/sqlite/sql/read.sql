-- name: owned_by_workers
-- What runs now is found through its claim: there is no index of running runs, because each run would pay for it.
SELECT numbers FROM claim

-- name: live_run
SELECT * FROM live_runs WHERE number = :number OR name = :name

-- name: ended_run
SELECT * FROM ended_runs WHERE number = :number OR name = :name

-- name: ended_in_order
SELECT * FROM ended_runs WHERE position > :position ORDER BY position LIMIT :limit

-- name: last_positions
SELECT coalesce((SELECT max(n) FROM history), 0), coalesce((SELECT max(n) FROM event), 0)

-- name: next_pending
-- The soonest of what can fire.
SELECT * FROM live_runs WHERE number = (SELECT number FROM run WHERE state <= 1 AND fire_at > :now ORDER BY fire_at LIMIT 1)

-- name: attempts_of
SELECT attempt, outcome, worker, started_at, finished_at, error, stage, reason, progress FROM attempt WHERE run = :number
ORDER BY attempt, finished_at

-- name: events_after
SELECT n, at, kind, subject, detail FROM event WHERE n > :position ORDER BY n LIMIT :limit

-- name: events_of
SELECT n, at, kind, subject, detail FROM event WHERE subject = :subject ORDER BY n

-- name: count_ready
SELECT state, count(*) FROM run
WHERE number IN carray(:numbers) AND state <= 1 AND phase IS NULL AND fire_at <= :now GROUP BY state

-- name: count_history
SELECT count(*) FROM history

-- name: count_early
-- A cancelled attempt is told by its run's history row too, and counts once.
SELECT (SELECT count(*) FROM history WHERE started_at < fire_at) + (SELECT count(*) FROM attempt WHERE started_at < fire_at AND outcome <> 'cancelled')

-- name: waiting_chunks
SELECT queue, fired_at, numbers, version FROM handoff
