-- part: kept
-- Whatever narrows a list of schedules. A null says nothing.
(:ids IS NULL OR s.id IN (SELECT value FROM json_each(:ids))) AND (:job IS NULL OR s.job = :job)
    AND (:tenant IS NULL OR s.tenant = :tenant)
    AND (:needle IS NULL OR instr(lower(s.id), :needle) > 0 OR instr(lower(s.job), :needle) > 0
        OR instr(lower(s.owner), :needle) > 0)
    AND (:paused IS NULL OR ((s.paused_at IS NOT NULL AND (s.paused_until IS NULL OR s.paused_until > :now))
        OR EXISTS (SELECT 1 FROM pause p WHERE p.what <> 'retries' AND (p.until IS NULL OR p.until > :now) AND p.name IN (
            'schedule:' || s.id, 'job:' || s.job, 'queue:' || coalesce(s.queue, 'default'), 'tenant:' || s.tenant))) = :paused)

-- name: schedules_by_name
SELECT s.id, 0 FROM schedule s WHERE s.id > :after AND {kept} AND :after_due IS NOT NULL ORDER BY s.id LIMIT :limit

-- name: schedules_by_next
SELECT s.id, n.due FROM (
    SELECT schedule, max(coalesce(nominal, fire_at)), fire_at AS due FROM run
    WHERE schedule IS NOT NULL AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT 1
    GROUP BY schedule) n CROSS JOIN schedule s ON s.id = n.schedule
WHERE (n.due, s.id) > (:after_due, :after) AND {kept} ORDER BY n.due, s.id LIMIT :limit

-- name: schedules_in_need
-- Those of which runs wait for a person, members' too, or that were set aside.
SELECT DISTINCT CASE WHEN instr(schedule, '[') > 0 THEN substr(schedule, 1, instr(schedule, '[') - 1) ELSE schedule END
FROM run WHERE state >= 20 AND schedule IS NOT NULL
UNION SELECT id FROM schedule WHERE fault IS NOT NULL

-- name: schedules_failing
SELECT id FROM (SELECT id, 1000000 AS failed FROM schedule WHERE fault IS NOT NULL UNION ALL
    SELECT schedule, count(*) FROM run INDEXED BY run_parked WHERE state >= 20 AND schedule IS NOT NULL AND instr(schedule, '[') = 0
    GROUP BY schedule HAVING count(*) >= :least) f
WHERE :tenant IS NULL OR id IN (SELECT id FROM schedule WHERE tenant = :tenant)
GROUP BY id ORDER BY max(failed) DESC, id LIMIT :limit

-- name: live_of_schedules
SELECT * FROM live_runs WHERE schedule IN (SELECT value FROM json_each(:ids)) AND state < 20 AND NOT (lane = 2 AND state <= 2)

-- name: parked_of_schedules
SELECT l.* FROM json_each(:ids) j CROSS JOIN live_runs l ON l.number IN (
    SELECT number FROM run WHERE schedule = j.value AND state >= 20 ORDER BY number DESC LIMIT :each)
ORDER BY l.number DESC

-- name: recent_of_schedules
-- By nominal time: ticks that were made up for stand where they belong. A triggered run or
-- a rerun may have the nominal time of a tick: the later run comes first.
SELECT h.schedule, h.number, h.name, h.state, h.origin, h.nominal, h.since, h.attempt, h.spent, h.reason, h.fired_at,
    h.claimed_at, h.started_at, h.finished_at, coalesce(h.span_count, 1)
FROM json_each(:ids) j CROSS JOIN history h ON h.n IN (
    SELECT n FROM history INDEXED BY history_schedule WHERE schedule = j.value AND schedule IS NOT NULL AND nominal IS NOT NULL
    ORDER BY nominal DESC, number DESC LIMIT :each)
ORDER BY h.nominal DESC, h.number DESC

-- name: counts_of_schedules
SELECT schedule, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, lane, count(*) FROM live_runs WHERE schedule IN (SELECT value FROM json_each(:ids))
GROUP BY 1, 2, 3

-- name: ready_of_schedules
SELECT schedule, state, lane, count(*) FROM run
WHERE number IN carray(:numbers) AND state <= 1 AND phase IS NULL AND fire_at <= :now
    AND schedule IN (SELECT value FROM json_each(:ids))
GROUP BY 1, 2, 3

-- name: useful_of_schedules
SELECT j.value, h.finished_at, h.nominal FROM json_each(:ids) j CROSS JOIN history h ON h.n = (
    SELECT n FROM history INDEXED BY history_kept
    WHERE schedule = j.value AND schedule IS NOT NULL AND nominal IS NOT NULL AND state IN (10, 11)
    ORDER BY nominal DESC, number DESC LIMIT 1)

-- name: failures_in_a_row
-- Of schedules: how many runs wait for a person that are later than the last one with a good end, and the first due time.
SELECT g.id, count(*), min(r.fire_at) FROM (
    SELECT j.value AS id, u.nominal AS useful, u.number AS useful_number, s.nominal AS settled, s.number AS settled_number
    FROM json_each(:ids) j LEFT JOIN history u ON u.n = (
        SELECT n FROM history INDEXED BY history_kept
        WHERE schedule = j.value AND schedule IS NOT NULL AND nominal IS NOT NULL AND state IN (10, 11)
        ORDER BY nominal DESC, number DESC LIMIT 1)
    LEFT JOIN history s ON s.n = (
        SELECT n FROM history WHERE schedule = j.value AND schedule IS NOT NULL AND nominal >= coalesce(u.nominal, 0)
            AND state = 12 ORDER BY nominal DESC, number DESC LIMIT 1)) g
JOIN run r ON r.schedule = g.id AND r.state >= 20
WHERE (coalesce(r.nominal, r.fire_at), r.number) > (coalesce(g.useful, 0), coalesce(g.useful_number, 0))
    AND (coalesce(r.nominal, r.fire_at), r.number) > (coalesce(g.settled, 0), coalesce(g.settled_number, 0))
GROUP BY g.id

-- name: parked_by_tenant
-- Of one schedule and its members.
SELECT tenant, count(*) FROM run
WHERE state >= 20 AND (schedule = :id OR substr(schedule, 1, length(:id) + 1) = :id || '[') GROUP BY tenant

-- name: backfill_left
SELECT coalesce(sum(max(total - made - existed, 0)), 0) FROM backfill WHERE schedule = :id AND ended_at IS NULL

-- name: beats_of
SELECT number, beat_at FROM instance WHERE number IN (SELECT value FROM json_each(:workers))

-- name: parked_known
-- Whether a handler may have begun (a vanished worker did not always live to say so), and when it was last tried.
SELECT r.number, r.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM attempt a
        WHERE a.run = r.number AND (a.started_at IS NOT NULL OR a.outcome = 'lost')),
    coalesce((SELECT max(a.finished_at) FROM attempt a WHERE a.run = r.number), r.fire_at),
    coalesce(r.lineage, r.number)
FROM run r WHERE r.number IN carray(:numbers)

-- name: effects_left_open
SELECT r.number, e.name, e.key, e.state, e.settles, e.run, e.attempt, e.token, e.started_at, e.ended_at, e.result, e.note,
    e.undo
FROM run r JOIN effect e ON e.lineage = coalesce(r.lineage, r.number)
WHERE r.number IN carray(:numbers) AND e.state = 'started' ORDER BY e.n

-- name: count_parked
-- The index has all that it asks of the others.
SELECT state, count(*) FROM run WHERE state >= 20 AND state <> 22 GROUP BY state
UNION ALL
SELECT CASE WHEN reason = 'settled' THEN 23 ELSE 22 END, count(*) FROM run WHERE state >= 20 AND state = 22 GROUP BY 1

-- name: parked_groups
-- Runs that wait for a person, by what they have in common; a member's series stands for its schedule.
-- The job is a part of the inner groups, so that the index has all that they need.
SELECT state, schedule, CASE WHEN schedule IS NULL THEN job END, tenant, reason, sum(size), min(first), max(newest)
FROM (
    SELECT state, schedule, job, tenant, reason, count(*) AS size, min(number) AS first, max(number) AS newest
    FROM run INDEXED BY run_parked_groups WHERE state >= 20 GROUP BY state, schedule, job, tenant, reason) g
GROUP BY 1, 2, 3, 4, 5 ORDER BY 8 DESC LIMIT :limit

-- name: suspected_chunks
SELECT numbers FROM handoff WHERE alone

-- name: count_suspected
-- Runs under suspicion that wait for a worker.
SELECT count(*) FROM run WHERE number IN carray(:numbers) AND state <= 1 AND deaths IS NOT NULL

-- name: count_held
SELECT count(*) FROM run INDEXED BY run_held WHERE waits_for IS NOT NULL AND (state = 2 OR (state < 2 AND phase IS NULL))

-- name: count_retrying
SELECT count(*) FROM run INDEXED BY run_retrying WHERE state = 1 AND phase IS NULL AND waits_for IS NULL

-- name: count_checked
SELECT (SELECT count(*) FROM run INDEXED BY run_phase WHERE phase IS NOT NULL AND state IN (0, 1, 4))
    + (SELECT count(*) FROM run INDEXED BY run_gathering WHERE member_set IS NOT NULL AND state = 5)

-- name: count_running
SELECT count(*) FROM run WHERE number IN carray(:numbers) AND state = 4 AND phase IS NULL

-- name: count_live
SELECT count(*) FROM run

-- name: lane_chunks
SELECT lane, fired_at, numbers, version FROM handoff

-- name: count_overdue
-- What can fire, is due, and may be in a chunk already; no more than so many.
SELECT number, fire_at FROM run INDEXED BY run_due WHERE state <= 1 AND fire_at <= :now ORDER BY fire_at LIMIT :limit

-- name: coming_minutes
SELECT (fire_at - :now) / 60000000, count(*) FROM (
    SELECT fire_at FROM run INDEXED BY run_due WHERE state <= 1 AND fire_at > :now AND fire_at < :until
    ORDER BY fire_at LIMIT :limit)
GROUP BY 1

-- name: last_tick
SELECT max(evaluated_through) FROM schedule WHERE evaluated_through <= :now

-- name: held_shards
SELECT shard, owner, until FROM shard WHERE owner IS NOT NULL AND until > :now ORDER BY shard

-- name: failed_minutes
-- Of the latest runs that wait for a person: by the minute of their last attempt, how many. What a person, a backfill or
-- a rerun made had no time to keep.
SELECT at / 60000000, count(*) FROM (
    SELECT coalesce((SELECT max(a.finished_at) FROM attempt a WHERE a.run = r.number), r.fire_at) AS at
    FROM run r WHERE r.state >= 20 AND r.origin <= 1 AND r.member_set IS NULL ORDER BY r.number DESC LIMIT :limit)
WHERE at / 60000000 > :minute GROUP BY 1

-- name: open_by_worker
SELECT worker, sum(open) FROM claim GROUP BY worker
