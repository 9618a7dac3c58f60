-- part: kept
-- Whatever narrows a list of schedules. A null says nothing.
(:ids::text[] IS NULL OR s.id = ANY(:ids)) AND (:job::text IS NULL OR s.job = :job)
    AND (:tenant::text IS NULL OR s.tenant = :tenant)
    AND (:needle::text IS NULL OR position(:needle in lower(s.id COLLATE "C")) > 0
        OR position(:needle in lower(s.job COLLATE "C")) > 0 OR position(:needle in lower(s.owner COLLATE "C")) > 0)
    AND (:paused::boolean IS NULL OR ((s.paused_at IS NOT NULL AND (s.paused_until IS NULL OR s.paused_until > :now::bigint))
        OR EXISTS (SELECT 1 FROM foliot.pause p WHERE p.what <> 'retries' AND (p.until IS NULL OR p.until > :now) AND p.name IN (
            'schedule:' || s.id, 'job:' || s.job, 'queue:' || coalesce(s.queue, 'default'), 'tenant:' || s.tenant))) = :paused)

-- name: schedules_by_name
SELECT s.id, 0::bigint FROM foliot.schedule s
WHERE s.id > :after::text AND {kept} AND :after_due::bigint IS NOT NULL ORDER BY s.id LIMIT :limit

-- name: schedules_by_next
-- Sorted before anything else is asked: as many schedules are looked up as the page has, and those that are not kept.
SELECT s.id, n.due FROM (
    SELECT t.schedule COLLATE "C" AS id, t.due FROM (
        SELECT DISTINCT ON (schedule) schedule, fire_at AS due FROM foliot.run
        WHERE schedule IS NOT NULL AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL
            AND decided IS NOT TRUE
        ORDER BY schedule, coalesce(nominal, fire_at) DESC) t
    WHERE t.due > :after_due::bigint OR (t.due = :after_due AND t.schedule COLLATE "C" > :after::text)
    ORDER BY t.due, 1 OFFSET 0) n JOIN foliot.schedule s ON s.id = n.id
WHERE {kept} ORDER BY n.due, n.id LIMIT :limit

-- name: schedules_in_need
-- Those of which runs wait for a person, members' too, or that were set aside.
SELECT DISTINCT split_part(schedule, '[', 1) FROM foliot.run WHERE state >= 20 AND schedule IS NOT NULL
UNION SELECT id FROM foliot.schedule WHERE fault IS NOT NULL

-- name: schedules_failing
SELECT id FROM (SELECT id, 1000000 AS failed FROM foliot.schedule WHERE fault IS NOT NULL UNION ALL
    SELECT schedule, count(*) FROM foliot.run WHERE state >= 20 AND schedule IS NOT NULL AND position('[' in schedule) = 0
    GROUP BY schedule HAVING count(*) >= :least) f
WHERE :tenant::text IS NULL OR id IN (SELECT id FROM foliot.schedule WHERE tenant = :tenant)
GROUP BY id ORDER BY max(failed) DESC, id LIMIT :limit

-- name: live_of_schedules
SELECT * FROM foliot.live_runs WHERE schedule = ANY(:ids::text[]) AND state < 20 AND NOT (lane = 2 AND state <= 2)

-- name: parked_of_schedules
SELECT l.* FROM foliot.live_runs l WHERE l.number = ANY(ARRAY(
    SELECT r.number FROM unnest(:ids::text[]) AS j(id) CROSS JOIN LATERAL (
        SELECT number FROM foliot.run WHERE schedule = j.id AND state >= 20 ORDER BY number DESC LIMIT :each) r))
    AND l.state >= 20
ORDER BY l.number DESC

-- name: recent_of_schedules
-- By nominal time: ticks that were made up for stand where they belong. A triggered run or
-- a rerun may have the nominal time of a tick: the later run comes first. Only days of the given time are looked at.
SELECT h.schedule, h.number, h.name, h.state, h.origin, h.nominal, h.since, h.attempt, h.spent, h.reason, h.fired_at,
    h.claimed_at, h.started_at, h.finished_at, coalesce(h.span_count, 1)
FROM unnest(:ids::text[]) AS j(id) CROSS JOIN LATERAL (
    SELECT * FROM foliot.history WHERE schedule = j.id AND schedule IS NOT NULL AND nominal IS NOT NULL
        AND finished_at >= :since::bigint AND finished_at < :until::bigint
    ORDER BY nominal DESC, number DESC LIMIT :each) h
ORDER BY h.nominal DESC, h.number DESC

-- name: counts_of_schedules
SELECT schedule, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, lane, count(*) FROM foliot.live_runs WHERE schedule = ANY(:ids::text[])
GROUP BY 1, 2, 3

-- name: ready_of_schedules
SELECT schedule, state, lane, count(*) FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND phase IS NULL AND fire_at <= :now AND schedule = ANY(:ids::text[])
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)
GROUP BY 1, 2, 3

-- name: useful_of_schedules
SELECT j.id, h.finished_at, h.nominal FROM unnest(:ids::text[]) AS j(id) CROSS JOIN LATERAL (
    SELECT finished_at, nominal FROM foliot.history
    WHERE schedule = j.id AND schedule IS NOT NULL AND nominal IS NOT NULL AND state IN (10, 11)
        AND finished_at >= :since::bigint AND finished_at < :until::bigint
    ORDER BY nominal DESC, number DESC LIMIT 1) h

-- name: failures_in_a_row
-- Of schedules: how many runs wait for a person that are later than the last one with a good end, and the first due time.
SELECT j.id, count(*), min(r.fire_at) FROM unnest(:ids::text[]) AS j(id)
LEFT JOIN LATERAL (
    SELECT nominal, number FROM foliot.history
    WHERE schedule = j.id AND schedule IS NOT NULL AND nominal IS NOT NULL AND state IN (10, 11)
    ORDER BY nominal DESC, number DESC LIMIT 1) u ON true
LEFT JOIN LATERAL (
    SELECT nominal, number FROM foliot.history
    WHERE schedule = j.id AND schedule IS NOT NULL AND nominal >= coalesce(u.nominal, 0) AND state = 12
    ORDER BY nominal DESC, number DESC LIMIT 1) s ON true
JOIN foliot.run r ON r.schedule = j.id AND r.state >= 20
    AND (coalesce(r.nominal, r.fire_at), r.number) > (coalesce(u.nominal, 0), coalesce(u.number, 0))
    AND (coalesce(r.nominal, r.fire_at), r.number) > (coalesce(s.nominal, 0), coalesce(s.number, 0))
GROUP BY j.id

-- name: parked_by_tenant
-- Of one schedule and its members.
SELECT tenant, count(*) FROM foliot.run
WHERE state >= 20 AND (schedule = :id OR starts_with(schedule, :id::text || '[')) GROUP BY tenant

-- name: backfill_left
SELECT coalesce(sum(greatest(total - made - existed, 0)), 0)::bigint FROM foliot.backfill
WHERE schedule = :id AND ended_at IS NULL

-- name: beats_of
SELECT number, beat_at FROM foliot.instance WHERE number = ANY(:workers::integer[])

-- name: parked_known
-- Whether a handler may have begun (a vanished worker did not always live to say so), and when it was last tried.
SELECT r.number, r.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM foliot.attempt a
        WHERE a.run = r.number AND (a.started_at IS NOT NULL OR a.outcome = 'lost')),
    coalesce((SELECT max(a.finished_at) FROM foliot.attempt a WHERE a.run = r.number), r.fire_at),
    coalesce(r.lineage, r.number)
FROM foliot.run r WHERE r.number = ANY(:numbers::bigint[])

-- name: effects_left_open
SELECT r.number, e.name, e.key, e.state, e.settles, e.run, e.attempt, e.token, e.started_at, e.ended_at, e.result, e.note,
    e.undo
FROM foliot.run r JOIN foliot.effect e ON e.lineage = coalesce(r.lineage, r.number)
WHERE r.number = ANY(:numbers::bigint[]) AND e.state = 'started' ORDER BY e.n

-- name: count_parked
-- The index has all that it asks of the others.
SELECT state, count(*) FROM foliot.run WHERE state >= 20 AND state <> 22 GROUP BY state
UNION ALL
SELECT CASE WHEN reason = 'settled' THEN 23 ELSE 22 END, count(*) FROM foliot.run WHERE state >= 20 AND state = 22 GROUP BY 1

-- name: parked_groups
-- Runs that wait for a person, by what they have in common; a member's series stands for its schedule.
-- The job is a part of the inner groups, so that the index has all that they need.
SELECT state, schedule, CASE WHEN schedule IS NULL THEN job END, tenant, reason, sum(size)::bigint, min(first), max(newest)
FROM (
    SELECT state, schedule, job, tenant, reason, count(*) AS size, min(number) AS first, max(number) AS newest
    FROM foliot.run WHERE state >= 20 GROUP BY state, schedule, job, tenant, reason) g
GROUP BY 1, 2, 3, 4, 5 ORDER BY 8 DESC LIMIT :limit

-- name: suspected_chunks
SELECT numbers FROM foliot.handoff WHERE alone

-- name: count_suspected
-- Runs under suspicion that wait for a worker.
SELECT count(*) FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND state <= 1 AND deaths IS NOT NULL

-- name: count_held
SELECT count(*) FROM foliot.run WHERE waits_for IS NOT NULL AND (state = 2 OR (state < 2 AND phase IS NULL))

-- name: count_retrying
SELECT count(*) FROM foliot.run WHERE state = 1 AND phase IS NULL AND waits_for IS NULL
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)

-- name: count_checked
SELECT (SELECT count(*) FROM foliot.run WHERE phase IS NOT NULL AND state IN (0, 1, 4))
    + (SELECT count(*) FROM foliot.run WHERE member_set IS NOT NULL AND state = 5)

-- name: count_running
-- What a claim that is not written names looks pending in its row.
SELECT count(*) FROM foliot.live_runs WHERE number = ANY(:numbers::bigint[]) AND state = 4

-- name: count_live
SELECT count(*) FROM foliot.run

-- name: lane_chunks
SELECT lane, fired_at, numbers, version FROM foliot.handoff WHERE fired_at <= foliot.now()

-- name: count_overdue
-- What can fire, is due, and may be in a chunk already; no more than so many.
SELECT r.number, r.fire_at FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
CROSS JOIN LATERAL (
    SELECT number, fire_at FROM foliot.run WHERE shard = s.shard AND state <= 1 AND fire_at <= :now::bigint
    ORDER BY fire_at, number LIMIT :limit) r
WHERE r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
ORDER BY r.fire_at LIMIT :limit

-- name: coming_minutes
SELECT (r.fire_at - :now::bigint) / 60000000, count(*)
FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
CROSS JOIN LATERAL (
    SELECT fire_at FROM foliot.run
    WHERE shard = s.shard AND state <= 1 AND fire_at > :now::bigint AND fire_at < :until::bigint
    ORDER BY fire_at, number LIMIT :limit) r
GROUP BY 1

-- name: last_tick
SELECT max(evaluated_through) FROM foliot.schedule WHERE evaluated_through <= :now

-- name: held_shards
SELECT shard, owner, until FROM foliot.shard WHERE owner IS NOT NULL AND until > :now ORDER BY shard

-- name: failed_minutes
-- Of the latest runs that wait for a person: by the minute of their last attempt, how many. What a person, a backfill or
-- a rerun made had no time to keep.
SELECT at / 60000000, count(*) FROM (
    SELECT coalesce((SELECT max(a.finished_at) FROM foliot.attempt a WHERE a.run = r.number), r.fire_at) AS at
    FROM foliot.run r WHERE r.state >= 20 AND r.origin <= 1 AND r.member_set IS NULL ORDER BY r.number DESC LIMIT :limit) f
WHERE at / 60000000 > :minute::bigint GROUP BY 1

-- name: open_by_worker
SELECT worker, sum(open) FROM foliot.claim GROUP BY worker
