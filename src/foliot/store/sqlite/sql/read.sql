-- name: live_runs
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, NULL, progress, NULL, NULL, 1,
    EXISTS (SELECT 1 FROM cancellation c WHERE c.number = run.number), number
FROM run
WHERE number < :before AND (:schedule IS NULL OR schedule = :schedule) AND (:job IS NULL OR job = :job)
    AND (:tenant IS NULL OR tenant = :tenant) AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY number DESC LIMIT :limit

-- name: live_run
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, NULL, progress, NULL, NULL, 1,
    EXISTS (SELECT 1 FROM cancellation c WHERE c.number = run.number), number
FROM run WHERE number = :number OR name = :name

-- name: ended_runs
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, finished_at, progress, result,
    span_until, coalesce(span_count, 1), 0, number
FROM history
WHERE number < :before AND (:schedule IS NULL OR schedule = :schedule) AND (:job IS NULL OR job = :job)
    AND (:tenant IS NULL OR tenant = :tenant) AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY number DESC LIMIT :limit

-- name: ended_run
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, finished_at, progress, result,
    span_until, coalesce(span_count, 1), 0, number
FROM history WHERE number = :number OR name = :name

-- name: ended_in_order
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, finished_at, progress, result,
    span_until, coalesce(span_count, 1), 0, n
FROM history WHERE n > :position ORDER BY n LIMIT :limit

-- name: attempts_of
SELECT attempt, outcome, worker, started_at, finished_at, error FROM attempt WHERE run = :number
ORDER BY attempt, finished_at

-- name: events_after
SELECT n, at, kind, subject, detail FROM event WHERE n > :position ORDER BY n LIMIT :limit

-- name: events_of
SELECT n, at, kind, subject, detail FROM event WHERE subject = :subject ORDER BY n

-- name: count_states
SELECT state, count(*) FROM run GROUP BY state

-- name: count_history
SELECT count(*) FROM history

-- name: count_early
SELECT (SELECT count(*) FROM history WHERE started_at < fire_at) + (SELECT count(*) FROM attempt WHERE started_at < fire_at)
