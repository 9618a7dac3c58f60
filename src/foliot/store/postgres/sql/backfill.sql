-- name: start_backfill
-- With the schedule's template as it was previewed. Zero rows: it was edited meanwhile, or is gone.
INSERT INTO foliot.backfill (schedule, state, starts, ends, newest_first, cursor, total, every, at_once, hours, pace_at,
    stop_after, job, rule, revision, actor, note, made_at, payload, options, queue, priority, tenant, member_set)
SELECT id, 'running', :start::bigint, :end::bigint, :newest_first::boolean, :cursor::bigint, :total::bigint, :every::bigint,
    :at_once::integer, :hours::text, :now::bigint, :stop_after::integer, job, rule, revision, :actor::text, :note::text,
    :now::bigint, payload, options, queue, priority, tenant, member_set
FROM foliot.schedule WHERE id = :schedule AND revision = :revision
RETURNING number

-- name: unended_backfills
-- Of a schedule, with ticks between the two.
SELECT number FROM foliot.backfill WHERE schedule = :schedule AND ended_at IS NULL AND starts < :end AND ends > :start

-- name: backfill_row
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM foliot.backfill WHERE number = :number

-- name: lock_backfill
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM foliot.backfill WHERE number = :number FOR UPDATE

-- name: backfill_rows
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM foliot.backfill WHERE (:schedule::text IS NULL OR schedule = :schedule) ORDER BY number DESC LIMIT :limit

-- name: running_backfills
-- The narrow index finds them: this is asked every second, and there are hardly ever any.
SELECT number, schedule, state, version, starts, ends, newest_first, cursor, total, made, existed, every, at_once,
    hours, pace_at, stop_after, forgiven, reason, job, rule, revision, actor, note, made_at, ended_at, first_number,
    last_number
FROM foliot.backfill WHERE ended_at IS NULL AND state = 'running' ORDER BY number

-- name: advance_backfill
UPDATE foliot.backfill SET cursor = :cursor, made = made + :made, existed = existed + :existed, pace_at = :pace_at,
    first_number = :first::bigint, last_number = :last::bigint, version = version + 1
WHERE number = :number

-- name: turn_backfill
UPDATE foliot.backfill SET state = :state, reason = :reason, ended_at = :ended_at, forgiven = :forgiven,
    version = version + 1
WHERE number = :number

-- name: pace_backfill
UPDATE foliot.backfill SET every = :every, at_once = :at_once, hours = :hours, pace_at = :pace_at, version = version + 1
WHERE number = :number

-- name: insert_backfilled_many
-- Runs of a backfill, from the template that it was started with.
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
        AS w(number, name, fire_at, nominal, since, backfill)
), named AS (
    INSERT INTO foliot.named (name, number) SELECT name, number FROM wanted
)
INSERT INTO foliot.run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, member_set, shard)
SELECT w.number, w.name, 0, 3, 2, b.priority, b.job, b.payload, w.fire_at, w.nominal, w.since, b.schedule,
    b.revision, b.tenant, b.queue, b.options, b.member_set,
    w.number % (SELECT shards FROM foliot.setting)
FROM wanted w JOIN foliot.backfill b ON b.number = w.backfill

-- name: taken_names
-- Which of these ticks have a run, and how it stands.
WITH wanted AS MATERIALIZED (SELECT n.name, n.number FROM foliot.named n WHERE n.name = ANY(:names::text[]))
SELECT w.name, r.state, r.reason FROM wanted w JOIN foliot.live_runs r ON r.number = w.number
WHERE r.number = ANY(ARRAY(SELECT number FROM wanted))
UNION ALL SELECT w.name, h.state, h.reason FROM wanted w JOIN foliot.history h ON h.number = w.number

-- name: merged_ticks
-- Rows that stand for ticks which another run answered for.
SELECT name, nominal, span_until, state, reason FROM foliot.history
WHERE schedule = :schedule AND span_until >= :first AND nominal <= :last AND reason = 'coalesced'

-- name: count_unfinished
SELECT count(*) FROM foliot.run
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state < 20

-- name: count_failed
-- Between the two, which are not among them.
SELECT count(*) FROM foliot.run
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state >= 20 AND nominal > :low AND nominal < :high

-- name: latest_good
SELECT nominal FROM foliot.history
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state IN (10, 11) AND schedule IS NOT NULL ORDER BY nominal DESC LIMIT 1

-- name: earliest_good
SELECT nominal FROM foliot.history
WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    AND state IN (10, 11) AND schedule IS NOT NULL ORDER BY nominal LIMIT 1

-- name: count_backfilled
SELECT state, count(*) FROM (
    SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END AS state FROM foliot.live_runs
    WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
    UNION ALL
    SELECT state FROM foliot.history
    WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
) r GROUP BY state

-- name: unbegun_backfilled
-- What no worker has begun, locked: nobody claims it before this transaction has ended.
SELECT number FROM foliot.hold_runs(ARRAY(SELECT number FROM foliot.run
    WHERE schedule = :schedule AND origin = 3 AND number BETWEEN :first AND :last AND nominal >= :start AND nominal < :end
        AND state < 3))
WHERE state IN (0, 2) AND attempt = 0 AND phase IS NULL
