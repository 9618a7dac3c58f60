-- part: wanted
-- Whatever narrows a list. A null says nothing. What succeeded at once, or was never tried, has no attempts to look through.
CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END = ANY(:states::smallint[]) AND (:series::text IS NULL OR coalesce(schedule, '-') = :series) AND (:job::text IS NULL OR job = :job)
    AND (:tenant::text IS NULL OR coalesce(tenant, '-') = :tenant) AND (:queue::text IS NULL OR coalesce(queue, 'default') = :queue)
    AND (:origins::smallint[] IS NULL OR origin = ANY(:origins)) AND (:lanes::smallint[] IS NULL OR lane = ANY(:lanes))
    AND (:reasons::text[] IS NULL OR reason = ANY(:reasons))
    AND fire_at >= :fire_from::bigint AND fire_at < :fire_to::bigint
    AND coalesce(nominal, fire_at) >= :nominal_from::bigint AND coalesce(nominal, fire_at) < :nominal_to::bigint
    AND (:prefix::text IS NULL OR starts_with(name, :prefix))
    AND (:needle::text IS NULL OR position(:needle in lower(name COLLATE "C")) > 0
        OR position(:needle in lower(detail COLLATE "C")) > 0
        OR (attempt > 0 AND (attempt > 1 OR state <> 10) AND EXISTS (SELECT 1 FROM foliot.attempt a
            WHERE a.run = r.number AND position(:needle in lower(a.error COLLATE "C")) > 0)))

-- part: below
number < :before::bigint AND number >= :floor::bigint AND {wanted} ORDER BY number DESC LIMIT :limit

-- name: list_live
SELECT * FROM foliot.live_runs r WHERE {below}

-- name: list_live_floor
-- How far down a walk of so many rows leads, and whether it came to the end.
SELECT min(number), count(*) FROM (
    SELECT number FROM foliot.run WHERE number < :before::bigint ORDER BY number DESC LIMIT :budget) r

-- name: list_live_among
SELECT * FROM foliot.live_runs r WHERE number = ANY(:numbers::bigint[]) AND {below}

-- name: list_ended
SELECT * FROM foliot.ended_runs r WHERE {below}

-- name: list_ended_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM foliot.history WHERE number < :before::bigint ORDER BY number DESC LIMIT :budget) r

-- name: list_ended_among
SELECT * FROM foliot.ended_runs r WHERE number = ANY(:numbers::bigint[]) AND {below}

-- name: list_ended_of_schedule
SELECT * FROM foliot.ended_runs r WHERE schedule = :series::text AND schedule IS NOT NULL AND {below}

-- name: list_ended_of_schedule_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM foliot.history
    WHERE schedule = :series::text AND schedule IS NOT NULL AND number < :before::bigint
    ORDER BY number DESC LIMIT :budget) r

-- name: list_ended_of_tenant
SELECT * FROM foliot.ended_runs r WHERE tenant = :tenant::text AND tenant IS NOT NULL AND {below}

-- name: list_ended_of_tenant_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM foliot.history WHERE tenant = :tenant::text AND tenant IS NOT NULL AND number < :before::bigint
    ORDER BY number DESC LIMIT :budget) r

-- name: list_ended_odd
SELECT * FROM foliot.ended_runs r WHERE state >= 12 AND {below}

-- name: list_ended_odd_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM foliot.history WHERE state >= 12 AND number < :before::bigint ORDER BY number DESC LIMIT :budget) r

-- name: parked_numbers
SELECT number FROM foliot.run WHERE state >= 20 AND number < :before::bigint ORDER BY number DESC LIMIT :limit

-- name: retrying_numbers
SELECT number FROM foliot.run WHERE state = 1 AND number < :before::bigint ORDER BY number DESC LIMIT :limit

-- name: checked_numbers
SELECT number FROM (
    SELECT number FROM foliot.run WHERE phase IS NOT NULL AND number < :before::bigint
    UNION
    SELECT number FROM foliot.run WHERE member_set IS NOT NULL AND state = 5 AND number < :before::bigint) r
ORDER BY number DESC LIMIT :limit

-- name: held_numbers
SELECT number FROM foliot.run WHERE waits_for IS NOT NULL AND number < :before::bigint ORDER BY number DESC LIMIT :limit

-- name: scheduled_numbers
-- Live runs of one schedule, or of one member.
SELECT number FROM foliot.run WHERE schedule = :series::text AND number < :before::bigint ORDER BY number DESC LIMIT :limit

-- name: due_numbers
SELECT r.number FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
CROSS JOIN LATERAL (SELECT number FROM foliot.run WHERE shard = s.shard AND state <= 1 AND fire_at < :now LIMIT :limit) r
LIMIT :limit

-- name: named_numbers
SELECT number FROM foliot.named WHERE name >= :prefix::text AND name < :after::text LIMIT :limit

-- name: number_of
SELECT number FROM foliot.named WHERE name = :name::text
UNION SELECT number FROM foliot.run WHERE number = :number::bigint
UNION SELECT number FROM foliot.history WHERE number = :number::bigint

-- part: ahead
SELECT r.fire_at, r.number FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
CROSS JOIN LATERAL (
    SELECT fire_at, number FROM foliot.run
    WHERE shard = s.shard AND state <= 1 AND (fire_at, number) > (:after::bigint, :after_number::bigint)
        AND fire_at < :fire_to::bigint
    ORDER BY fire_at, number LIMIT :budget) r
ORDER BY r.fire_at, r.number LIMIT :budget

-- name: list_coming
-- What the wheel has before it, in its order. The way is bounded before anything else is asked of it.
SELECT r.* FROM foliot.live_runs r
WHERE number = ANY(ARRAY(SELECT a.number FROM ({ahead}) a)) AND {wanted} ORDER BY r.fire_at, r.number LIMIT :limit

-- name: list_coming_end
SELECT a.fire_at, a.number, count(*) OVER () FROM ({ahead}) a ORDER BY a.fire_at DESC, a.number DESC LIMIT 1

-- name: crowded_series
-- Schedules, and members, with more than one run at work.
SELECT schedule FROM foliot.live_runs WHERE number = ANY(:numbers::bigint[]) AND state = 4 AND schedule IS NOT NULL
GROUP BY schedule HAVING count(*) > 1

-- name: beats
SELECT number, beat_at FROM foliot.instance WHERE number IN (SELECT c.worker FROM foliot.claim c)
