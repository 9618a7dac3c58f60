-- name: shard_rows
SELECT s.shard, s.owner, s.epoch, s.until, i.host, i.pid, i.birth, i.ended_at
FROM shard s LEFT JOIN instance i ON i.number = s.owner

-- name: shard_row
SELECT s.shard, s.owner, s.epoch, s.until, i.host, i.pid, i.birth, i.ended_at
FROM shard s LEFT JOIN instance i ON i.number = s.owner WHERE s.shard = :shard

-- name: live_schedulers
-- One whose clock is wrong takes no part.
SELECT number, beat_at, host, pid, birth FROM instance
WHERE ended_at IS NULL AND role = 'scheduler' AND NOT fenced ORDER BY number

-- name: take_shard
-- Compare and set: the epoch is the one that was read, or somebody took it first.
INSERT INTO shard (shard, owner, epoch, until, high_water) VALUES (:shard, :owner, 1, :until, :high_water)
ON CONFLICT (shard) DO UPDATE SET owner = :owner, epoch = epoch + 1, until = :until, high_water = :high_water
WHERE epoch = :epoch
RETURNING epoch

-- name: owned_shards
-- First in every firing transaction, for leases as a JSON array of [shard, epoch]: a row that is missing means that
-- somebody else owns the shard now.
SELECT shard FROM shard
WHERE owner = :owner AND (shard, epoch) IN (SELECT value->>0, value->>1 FROM json_each(:leases))

-- name: renew_shards
UPDATE shard SET until = :until, high_water = max(high_water, :high_water)
WHERE owner = :owner AND (shard, epoch) IN (SELECT value->>0, value->>1 FROM json_each(:leases))
RETURNING shard

-- name: release_shards
UPDATE shard SET owner = NULL, until = 0
WHERE owner = :owner AND (shard, epoch) IN (SELECT value->>0, value->>1 FROM json_each(:leases))

-- name: beat_instance
UPDATE instance SET beat_at = :now WHERE number = :number AND ended_at IS NULL

-- name: forget_stirs
DELETE FROM stir WHERE seq <= :cursor

-- name: load_cells
-- A range of the due index, in its own order. Runs above the cursor are told by `arrivals`.
SELECT fire_at, number FROM run INDEXED BY run_due
WHERE state <= 1 AND (fire_at, number) > (:fire_at, :number) AND fire_at < :below AND number <= :cursor
ORDER BY fire_at, number LIMIT :limit

-- name: lane_gates
SELECT name, every FROM gate WHERE name IN ('lane:catch-up', 'lane:backfill') AND every > 0

-- name: handed_off
-- Chunks are few; their numbers are compared in memory.
SELECT numbers, version FROM handoff

-- name: waiting_among
-- Of runs that chunks name, those that still wait for a worker.
SELECT number, version FROM run WHERE number IN carray(:numbers) AND state <= 1 AND waits_for IS NULL AND fire_at <= :now

-- name: changed_among
SELECT number, version FROM run WHERE number IN carray(:numbers) AND version > 0

-- name: arrived_new
-- New rows are at the end of the table; the scan touches only what was committed since the cursor.
SELECT fire_at, number FROM run NOT INDEXED
WHERE number > :cursor AND number <= :last AND state <= 1 AND fire_at < :high_water AND fired_at IS NULL

-- name: arrived_again
SELECT r.fire_at, r.number FROM stir s CROSS JOIN run r ON r.number = s.number
WHERE s.seq > :cursor AND s.seq <= :last AND r.state <= 1 AND r.fire_at < :high_water

-- name: due_runs
-- The rows behind a batch of wheel entries: still pending, with the time that the store remembers. A run of a schedule
-- notes that it was handed off, because its overlap is judged by that; so it cannot be decided twice either.
SELECT number, fire_at, queue, lane, priority, useful_until, schedule, CASE WHEN phase IS NOT NULL THEN job || '?' END,
    deaths IS NOT NULL, attempt > 0, tenant, job, options, slots, coalesce(forced, 0), coalesce(nominal, fire_at), member_set,
    coalesce(version, 0)
FROM run WHERE number IN carray(:numbers) AND state <= 1 AND (schedule IS NULL OR fired_at IS NULL)

-- name: due_ticks
SELECT number, fire_at, queue, lane, priority, useful_until, schedule, CASE WHEN phase IS NOT NULL THEN job || '?' END,
    deaths IS NOT NULL, attempt > 0, tenant, job, options, slots, coalesce(forced, 0), coalesce(nominal, fire_at), member_set,
    coalesce(version, 0),
    name, origin, nominal, since, attempt, withdrawn, decided, checkpoint IS NOT NULL
FROM run
WHERE number IN carray(:numbers) AND state <= 1 AND fired_at IS NULL AND fire_at <= :now

-- name: busy_runs
-- Runs that are in the way of others of their schedule: running, verifying, retrying, handed off, about to be; held for a
-- slot; and those that wait for a person, which some schedules wait for, too. What waits for a slot in the lane backfill is
-- decided upon again when it has it, and is in the way of none of the better lanes until then. Nor is what is still to come, and was not tried yet.
SELECT schedule, number, name, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, phase, lane,
    nominal, fired_at IS NULL AND (state = 0 OR (state = 2 AND lane = 2)),
    origin FROM run
WHERE schedule IN (SELECT value FROM json_each(:schedules)) AND (state IN (1, 4, 5) OR state >= 20
    OR (state = 0 AND (fired_at IS NOT NULL OR (decided = 1 AND (fire_at <= :now OR waits_for IS NOT NULL OR attempt > 0))))
    OR (state = 2 AND waits_for NOT LIKE 'turn:%'))

-- name: add_handoff
INSERT INTO handoff (queue, lane, priority, fired_at, numbers, job, alone, version, rank) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: tick_fired
UPDATE run SET fired_at = ?, lane = ?, waits_for = NULL, reason = NULL, detail = NULL WHERE number = ?

-- name: tick_fired_alike
UPDATE run SET fired_at = ?1, lane = ?2, waits_for = NULL, reason = NULL, detail = NULL WHERE number IN carray(?3)

-- name: tick_held
UPDATE run SET state = 2, slots = NULL, reason = ?, detail = ?, waits_for = ?, decided = max(coalesce(decided, 0), ?) WHERE number = ?

-- name: tick_held_until
UPDATE run SET state = 0, slots = NULL, reason = ?, detail = ?, waits_for = ?, decided = max(coalesce(decided, 0), ?), fire_at = ?
WHERE number = ?

-- name: schedule_noted
-- The cursor and its wall times stay where they are.
UPDATE schedule SET last_created = coalesce(?, last_created), fault = coalesce(?, fault) WHERE id = ?

-- name: schedule_evaluated
UPDATE schedule SET evaluated_through = max(coalesce(evaluated_through, 0), ?),
    last_created = coalesce(?, last_created), fault = coalesce(?, fault), last_wall = ?, next_wall = ?, tables = ?
WHERE id = ?
