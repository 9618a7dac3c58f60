-- name: shard_rows
SELECT s.shard, s.owner, s.epoch, s.until, i.host, i.pid, i.birth, i.ended_at
FROM foliot.shard s LEFT JOIN foliot.instance i ON i.number = s.owner

-- name: shard_row
SELECT s.shard, s.owner, s.epoch, s.until, i.host, i.pid, i.birth, i.ended_at
FROM foliot.shard s LEFT JOIN foliot.instance i ON i.number = s.owner WHERE s.shard = :shard

-- name: live_schedulers
SELECT number, beat_at, host, pid, birth FROM foliot.instance
WHERE ended_at IS NULL AND role = 'scheduler' AND NOT fenced ORDER BY number

-- name: lock_shard
-- No row while another transaction has it: the old owner is firing. A process that is stopped in a transaction keeps
-- its locks, and a scheduler that waited for them would lose the shards that it has.
SELECT shard FROM foliot.shard WHERE shard = :shard FOR NO KEY UPDATE SKIP LOCKED

-- name: end_firing
-- Ends the transaction that has a shard, once the lease has been over for a whole period, if its client is silent.
-- The server ends a transaction that is idle. It does not end one in the middle of a request, as a client leaves it
-- that is stopped between the preparation of a statement and its execution.
SELECT pg_terminate_backend(l.pid)
FROM foliot.shard s
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = s.xmax
    JOIN pg_stat_activity a ON a.pid = l.pid
WHERE s.shard = :shard AND s.until < foliot.now() - :ttl::bigint AND a.wait_event = 'ClientRead'
    AND a.usename = current_user AND l.pid <> pg_backend_pid()

-- name: end_abandoned
-- The same for whatever else such a client has locked: it is silent for longer than an idle transaction may be.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'foliot %'
    AND state = 'active' AND wait_event = 'ClientRead'
    AND state_change < clock_timestamp() - :idle::text::interval

-- name: take_shard
-- Compare and set: the epoch is the one that was read, or another scheduler took the shard first.
INSERT INTO foliot.shard AS s (shard, owner, epoch, until, high_water)
VALUES (:shard, :owner, 1, :until, :high_water)
ON CONFLICT (shard) DO UPDATE SET owner = excluded.owner, epoch = s.epoch + 1, until = excluded.until,
    high_water = excluded.high_water
WHERE s.epoch = :epoch
RETURNING epoch

-- name: owned_shards
-- First in every firing transaction, for leases as a JSON array of [shard, epoch]: a row that is missing means that
-- somebody else owns the shard now. Locked, so that a takeover waits for this transaction.
SELECT shard FROM foliot.shard
WHERE owner = :owner AND (shard, epoch) IN (
    SELECT (value->>0)::smallint, (value->>1)::bigint FROM jsonb_array_elements(:leases::text::jsonb))
ORDER BY shard FOR NO KEY UPDATE

-- name: renew_leases
-- With the heartbeat, in one statement. Lost in a crash of the server, a renewal only makes the lease end sooner. The
-- same process may be firing: both lock shards in their order. Also told are, by queue, the workers that live and take it, if all
-- of them know the same, and as long as nothing lies there that nobody has come for.
WITH clock AS MATERIALIZED (
    SELECT foliot.now() AS now, set_config('synchronous_commit', 'off', true)
), beat AS (
    UPDATE foliot.instance SET beat_at = (SELECT now FROM clock) WHERE number = :owner AND ended_at IS NULL
), held AS MATERIALIZED (
    SELECT s.shard FROM foliot.shard s WHERE s.shard = ANY(:shards::smallint[]) AND s.owner = :owner
    ORDER BY s.shard FOR NO KEY UPDATE
)
UPDATE foliot.shard s
SET until = (SELECT now FROM clock) + :ttl::bigint, high_water = greatest(s.high_water, :high_water::bigint)
FROM unnest(:shards::smallint[], :epochs::bigint[]) AS w(shard, epoch) JOIN held h ON h.shard = w.shard
WHERE s.shard = ANY(:shards::smallint[]) AND s.owner = :owner AND s.shard = w.shard AND s.epoch = w.epoch
RETURNING s.shard, s.until, (
    SELECT json_object_agg(w.queue, w.workers)::text FROM (
        SELECT q.queue, json_agg(i.number ORDER BY i.number) AS workers
        FROM foliot.instance i CROSS JOIN LATERAL jsonb_array_elements_text(i.queues::jsonb) AS q(queue)
        WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > (SELECT now FROM clock) - 3000000
        GROUP BY q.queue
        HAVING count(DISTINCT (i.jobs, i.labels)) = 1 AND NOT EXISTS (
            SELECT 1 FROM foliot.handoff h
            WHERE h.queue = q.queue AND h.fired_at < (SELECT now FROM clock) - 100000 AND NOT h.aside)
    ) w)

-- name: release_shards
UPDATE foliot.shard SET owner = NULL, until = 0
WHERE owner = :owner AND (shard, epoch) IN (
    SELECT (value->>0)::smallint, (value->>1)::bigint FROM jsonb_array_elements(:leases::text::jsonb))

-- name: beat_instance
UPDATE foliot.instance SET beat_at = :now WHERE number = :number AND ended_at IS NULL

-- name: snapshot
-- With the life of the server that it belongs to: nothing, when a new one has to begin.
SELECT concat(pg_current_snapshot(), ':', (SELECT began FROM foliot.life))

-- name: load_cells
-- A range of a shard's due index, in its own order. Runs that became visible after the cursor are told by `arrivals`.
SELECT fire_at, number, schedule IS NOT NULL FROM foliot.run
WHERE shard = :shard AND state <= 1 AND (fire_at, number) > (:fire_at, :number) AND fire_at < :below
    AND pg_visible_in_snapshot(xid, :snapshot::text::pg_snapshot)
ORDER BY fire_at, number LIMIT :limit

-- name: lane_gates
SELECT name, every FROM foliot.gate WHERE name IN ('lane:catch-up', 'lane:backfill') AND every > 0

-- name: handed_off
-- Chunks are few; their numbers are compared in memory. Runs of claims look pending until those are written.
SELECT numbers, version FROM foliot.handoff
UNION ALL SELECT numbers, NULL FROM foliot.claim WHERE NOT written

-- name: waiting_among
-- Of runs that chunks name, those that still wait for a worker.
SELECT number, version FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND waits_for IS NULL AND fire_at <= :now
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)

-- name: changed_among
SELECT number, version FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND version > 0

-- name: arrived
-- What became visible since a snapshot is what it did not know (from xmax on), or saw under way. Both are ranges of
-- one small index, however long some transaction stays open.
WITH told AS MATERIALIZED (
    SELECT numbers FROM foliot.stir WHERE shard = ANY(:shards::smallint[]) AND xid >= :xmax::text::xid8
    UNION ALL
    SELECT numbers FROM foliot.stir WHERE shard = ANY(:shards::smallint[]) AND xid = ANY(:under_way::text[]::xid8[])
), entry AS (
    SELECT r.fire_at, r.number, r.schedule IS NOT NULL AS is_tick FROM foliot.run r
    WHERE r.number = ANY(ARRAY(SELECT unnest(numbers) FROM told)) AND r.state < 2
        AND (r.schedule IS NULL OR r.fired_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM unnest(ARRAY(SELECT u.number FROM foliot.unwritten u)) AS c(number)
            WHERE c.number = r.number)
)
SELECT concat(pg_current_snapshot(), ':', (SELECT began FROM foliot.life)), foliot.now(), array_agg(fire_at), array_agg(number),
    array_agg(is_tick) FROM entry

-- name: overtaken
-- Rows of transactions that were open for so long that their cells were loaded meanwhile.
SELECT fire_at, number, schedule IS NOT NULL FROM foliot.run
WHERE shard = ANY(:shards::smallint[]) AND fire_at < :high_water::bigint AND state <= 1
    AND xid = ANY(:ended::text[]::xid8[]) AND (schedule IS NULL OR fired_at IS NULL)

-- name: fire_runs
SELECT now_, handed, odd, lost, unranked, patient FROM foliot.fire_runs(:owner, :shards::smallint[], :epochs::bigint[], :life::text,
    :fire_ats::bigint[], :numbers::bigint[], :late, :chunk, :told::text::pg_snapshot, :ranks::bigint[], :whom::text::jsonb,
    :lead, :slot, :share)

-- name: due_runs
-- The rows behind a batch of wheel entries: still pending, with the time that the store remembers. A run of a schedule
-- notes that it was handed off, because its overlap is judged by that; so it cannot be decided twice either.
SELECT number, fire_at, queue, lane, priority, useful_until, schedule, CASE WHEN phase IS NOT NULL THEN job || '?' END,
    deaths IS NOT NULL, attempt > 0, tenant, job, options, slots, coalesce(forced, false), coalesce(nominal, fire_at), member_set,
    coalesce(version, 0)
FROM foliot.lock_pending(:numbers::bigint[])
WHERE schedule IS NULL OR fired_at IS NULL

-- name: due_ticks
-- Read under the schedules' locks: what somebody else changed while we waited for them is left out.
SELECT number, fire_at, queue, lane, priority, useful_until, schedule, CASE WHEN phase IS NOT NULL THEN job || '?' END,
    deaths IS NOT NULL, attempt > 0, tenant, job, options, slots, coalesce(forced, false), coalesce(nominal, fire_at), member_set,
    coalesce(version, 0), name, origin, nominal, since, attempt, withdrawn, decided, checkpoint IS NOT NULL
FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND fired_at IS NULL AND fire_at <= :now FOR UPDATE

-- name: any_limits
-- Whether it depends on who has gone already who may go.
SELECT EXISTS (SELECT 1 FROM foliot.gate
        WHERE (most IS NOT NULL OR every IS NOT NULL) AND name NOT LIKE 'lane:%')
    OR EXISTS (SELECT 1 FROM foliot.breaker WHERE opened_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM foliot.pause)

-- name: hold_now
-- The last step before ticks that were made ready go: `owned_shards`, `any_limits` and the clock in one.
SELECT foliot.now(), ARRAY(
        SELECT s.shard FROM foliot.shard s JOIN unnest(:shards::smallint[], :epochs::bigint[]) AS w(shard, epoch)
            ON w.shard = s.shard AND w.epoch = s.epoch
        WHERE s.shard = ANY(:shards::smallint[]) AND s.owner = :owner ORDER BY s.shard FOR NO KEY UPDATE OF s),
    EXISTS (SELECT 1 FROM foliot.gate
        WHERE (most IS NOT NULL OR every IS NOT NULL) AND name NOT LIKE 'lane:%')
    OR EXISTS (SELECT 1 FROM foliot.breaker WHERE opened_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM foliot.pause)

-- name: fresh_ticks
-- Ticks that nothing was decided or said about yet; what somebody has his hands on is left out. Nothing here implies the
-- predicate of an index: the planner is to find them by their numbers.
SELECT number, fire_at, queue, lane, priority, useful_until, schedule, NULL::text, false, false, tenant, job, options, slots,
    false, coalesce(nominal, fire_at), member_set, coalesce(version, 0), name, origin, nominal, since, attempt, withdrawn, decided, checkpoint IS NOT NULL
FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND fire_at <= :now
    AND decided IS NOT TRUE AND withdrawn IS NULL AND waits_for IS NULL AND slots IS NULL
    AND forced IS NULL AND phase IS NULL AND deaths IS NULL AND member_set IS NULL
FOR UPDATE SKIP LOCKED

-- name: crowded_schedules
SELECT schedule FROM foliot.run WHERE schedule = ANY(:ids::text[]) GROUP BY schedule HAVING count(*) > 1

-- name: forget_stirs
-- What a snapshot has seen is in the owner's memory: as `fire_runs` does it, for whoever fires nothing but ticks.
WITH owned AS MATERIALIZED (
    SELECT s.shard FROM foliot.shard s JOIN unnest(:shards::smallint[], :epochs::bigint[]) AS w(shard, epoch)
        ON w.shard = s.shard AND w.epoch = s.epoch
    WHERE s.shard = ANY(:shards::smallint[]) AND s.owner = :owner ORDER BY s.shard FOR NO KEY UPDATE OF s
)
DELETE FROM foliot.stir WHERE ctid = ANY(ARRAY(
    SELECT s.ctid FROM foliot.stir s WHERE s.shard = ANY(ARRAY(SELECT shard FROM owned))
        AND s.xid < pg_snapshot_xmax(:told::text::pg_snapshot)
        AND pg_visible_in_snapshot(s.xid, :told::text::pg_snapshot)
    FOR UPDATE SKIP LOCKED))

-- name: busy_runs
-- Runs that are in the way of others of their schedule: running, verifying, retrying, handed off, about to be; held for a
-- slot; and those that wait for a person, which some schedules wait for, too. What waits for a slot in the lane backfill is
-- decided upon again when it has it, and is in the way of none of the better lanes until then. Nor is what is still to come, and was not tried yet.
SELECT schedule, number, name, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, phase, lane,
    nominal, fired_at IS NULL AND (state = 0 OR (state = 2 AND lane = 2)),
    origin FROM foliot.run
WHERE schedule = ANY(:schedules::text[]) AND (state IN (1, 4, 5) OR state >= 20
    OR (state = 0 AND (fired_at IS NOT NULL OR (decided AND (fire_at <= :now::bigint OR waits_for IS NOT NULL OR attempt > 0))))
    OR (state = 2 AND waits_for NOT LIKE 'turn:%'))

-- name: add_handoff
-- Workers are told by the transaction itself; once, however many chunks it adds. What is fired in a moment to come is
-- ready then, and they are called before that: see `call_for_chunks`.
INSERT INTO foliot.handoff (queue, lane, priority, fired_at, numbers, job, alone, version, rank, ready_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $4 > foliot.now() THEN $4 ELSE 0 END)
RETURNING CASE WHEN ready_at = 0 THEN pg_notify('foliot_handoff', '') END

-- name: call_for_chunks
-- What this transaction hands off for a moment to come, by workers of its queue in turn; by all at that moment, where none is
-- known, or where the message would be too long.
SELECT pg_notify('foliot_handoff', concat(foliot.now(), ' ', string_agg(
    CASE WHEN h.place <= 100 THEN concat(:at::bigint, ':', h.whom ->> (h.place % nullif(jsonb_array_length(h.whom), 0))::integer,
        ':', h.n) ELSE concat(:at::bigint, ':') END, ' ')))
FROM (
    SELECT h.n, row_number() OVER (ORDER BY h.n) AS place, :whom::text::jsonb -> h.queue AS whom
    FROM foliot.handoff h WHERE h.ready_at = :at AND h.xmin = pg_current_xact_id()::xid LIMIT 101
) h

-- name: tick_fired
UPDATE foliot.run SET fired_at = $1, lane = $2, waits_for = NULL, reason = NULL, detail = NULL WHERE number = $3

-- name: tick_held
UPDATE foliot.run SET state = 2, slots = NULL, reason = $1, detail = $2, waits_for = $3, decided = coalesce(decided, false) OR $4
WHERE number = $5

-- name: tick_held_until
UPDATE foliot.run SET state = 0, slots = NULL, reason = $1, detail = $2, waits_for = $3, decided = coalesce(decided, false) OR $4,
    fire_at = $5
WHERE number = $6

-- name: schedule_noted
-- The cursor and its wall times stay where they are.
UPDATE foliot.schedule SET last_created = coalesce($1, last_created), fault = coalesce($2, fault) WHERE id = $3

-- name: schedule_evaluated
UPDATE foliot.schedule SET evaluated_through = greatest(coalesce(evaluated_through, 0), $1),
    last_created = coalesce($2, last_created), fault = coalesce($3, fault), last_wall = $4, next_wall = $5, tables = $6
WHERE id = $7

-- name: tick_fired_many
UPDATE foliot.run r SET fired_at = t.fired_at, lane = t.lane, waits_for = NULL, reason = NULL, detail = NULL
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS t(fired_at, lane, number)
WHERE r.number = t.number AND r.number = ANY($3::bigint[])

-- name: schedule_evaluated_many
UPDATE foliot.schedule s SET evaluated_through = greatest(coalesce(s.evaluated_through, 0), t.through),
    last_created = coalesce(t.made, s.last_created), fault = coalesce(t.fault, s.fault), last_wall = t.last_wall,
    next_wall = t.next_wall, tables = t.tables
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
    AS t(through, made, fault, last_wall, next_wall, tables, id)
WHERE s.id = t.id AND s.id = ANY($7::text[])
