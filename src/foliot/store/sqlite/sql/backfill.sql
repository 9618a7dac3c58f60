-- name: start_backfill
-- With the schedule's template as it was previewed. Zero rows: it was edited meanwhile, or is gone.
INSERT INTO backfill (schedule, state, starts, ends, newest_first, cursor, total, every, at_once, hours, pace_at,
    stop_after, job, rule, revision, actor, note, made_at, payload, options, queue, priority, tenant, member_set)
SELECT id, 'running', :start, :end, :newest_first, :cursor, :total, :every, :at_once, :hours, :now, :stop_after, job, rule,
    revision, :actor, :note, :now, payload, options, queue, priority, tenant, member_set
FROM schedule WHERE id = :schedule AND revision = :revision
RETURNING number

-- name: unended_backfills
-- Of a schedule, with ticks between the two.
SELECT number FROM backfill WHERE schedule = :schedule AND ended_at IS NULL AND starts < :end AND ends > :start

-- name: backfill_row
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM backfill WHERE number = :number

-- name: lock_backfill
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM backfill WHERE number = :number

-- name: backfill_rows
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM backfill WHERE (:schedule IS NULL OR schedule = :schedule) ORDER BY number DESC LIMIT :limit

-- name: running_backfills
-- The narrow index finds them: this is asked every second, and there are hardly ever any.
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM backfill WHERE ended_at IS NULL AND state = 'running' ORDER BY number

-- name: advance_backfill
UPDATE backfill SET cursor = :cursor, made = made + :made, existed = existed + :existed, pace_at = :pace_at,
    first_number = :first, last_number = :last, version = version + 1
WHERE number = :number

-- name: turn_backfill
UPDATE backfill SET state = :state, reason = :reason, ended_at = :ended_at, forgiven = :forgiven,
    version = version + 1
WHERE number = :number

-- name: pace_backfill
UPDATE backfill SET every = :every, at_once = :at_once, hours = :hours, pace_at = :pace_at, version = version + 1
WHERE number = :number

-- name: insert_backfilled
-- A run of a backfill, from the template that it was started with.
INSERT INTO run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule, revision,
    tenant, queue, options, member_set)
SELECT ?1, ?2, 0, 3, 2, priority, job, payload, ?3, ?4, ?5, schedule, revision, tenant, queue, options,
    b.member_set
FROM backfill b WHERE number = ?6

-- name: taken_names
-- Which of these ticks have a run, and how it stands.
SELECT name, state, reason FROM live_runs WHERE name IN (SELECT value FROM json_each(:names))
UNION ALL SELECT name, state, reason FROM history WHERE name IN (SELECT value FROM json_each(:names))

-- name: merged_ticks
-- Rows that stand for ticks which another run answered for.
SELECT name, nominal, span_until, state, reason FROM history
WHERE schedule = :schedule AND span_until >= :first AND nominal <= :last AND reason = 'coalesced'

-- name: count_unfinished
SELECT count(*) FROM run
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state < 20

-- name: count_failed
-- Between the two, which are not among them.
SELECT count(*) FROM run
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state >= 20 AND nominal > :low AND nominal < :high

-- name: latest_good
SELECT nominal FROM history
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state IN (10, 11) AND schedule IS NOT NULL ORDER BY nominal DESC LIMIT 1

-- name: earliest_good
SELECT nominal FROM history
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state IN (10, 11) AND schedule IS NOT NULL ORDER BY nominal LIMIT 1

-- name: count_backfilled
SELECT state, count(*) FROM (
    SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END AS state FROM live_runs
    WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    UNION ALL
    SELECT state FROM history
    WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
) r GROUP BY state

-- name: unbegun_backfilled
SELECT number FROM run
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state IN (0, 2) AND attempt = 0 AND phase IS NULL
