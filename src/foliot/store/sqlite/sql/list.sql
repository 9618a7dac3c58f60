-- part: wanted
-- Whatever narrows a list. A null says nothing. What succeeded at once, or was never tried, has no attempts to look through.
CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END IN (SELECT value FROM json_each(:states)) AND (:series IS NULL OR coalesce(schedule, '-') = :series) AND (:job IS NULL OR job = :job)
    AND (:tenant IS NULL OR coalesce(tenant, '-') = :tenant) AND (:queue IS NULL OR coalesce(queue, 'default') = :queue)
    AND (:origins IS NULL OR origin IN (SELECT value FROM json_each(:origins)))
    AND (:lanes IS NULL OR lane IN (SELECT value FROM json_each(:lanes)))
    AND (:reasons IS NULL OR reason IN (SELECT value FROM json_each(:reasons)))
    AND fire_at >= :fire_from AND fire_at < :fire_to
    AND coalesce(nominal, fire_at) >= :nominal_from AND coalesce(nominal, fire_at) < :nominal_to
    AND (:prefix IS NULL OR substr(name, 1, length(:prefix)) = :prefix)
    AND (:needle IS NULL OR instr(lower(name), :needle) > 0 OR instr(lower(detail), :needle) > 0
        OR (attempt > 0 AND (attempt > 1 OR state <> 10)
            AND EXISTS (SELECT 1 FROM attempt a WHERE a.run = number AND instr(lower(a.error), :needle) > 0)))

-- part: ended
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, finished_at, progress, result,
    span_until, coalesce(span_count, 1), 0, n, options, NULL, NULL, NULL, 0
FROM history

-- part: below
number < :before AND number >= :floor AND {wanted} ORDER BY number DESC LIMIT :limit

-- name: list_live
SELECT * FROM live_runs WHERE {below}

-- name: list_live_floor
-- How far down a walk of so many rows leads, and whether it came to the end.
SELECT min(number), count(*) FROM (SELECT number FROM run WHERE number < :before ORDER BY number DESC LIMIT :budget)

-- name: list_live_among
SELECT * FROM live_runs WHERE number IN carray(:numbers) AND {below}

-- name: list_ended
{ended} INDEXED BY history_number WHERE {below}

-- name: list_ended_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM history INDEXED BY history_number WHERE number < :before ORDER BY number DESC LIMIT :budget)

-- name: list_ended_among
{ended} WHERE number IN carray(:numbers) AND {below}

-- name: list_ended_of_schedule
{ended} INDEXED BY history_of_schedule WHERE schedule = :series AND schedule IS NOT NULL AND {below}

-- name: list_ended_of_schedule_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM history INDEXED BY history_of_schedule
    WHERE schedule = :series AND schedule IS NOT NULL AND number < :before ORDER BY number DESC LIMIT :budget)

-- name: list_ended_of_tenant
{ended} INDEXED BY history_of_tenant WHERE tenant = :tenant AND tenant IS NOT NULL AND {below}

-- name: list_ended_of_tenant_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM history INDEXED BY history_of_tenant
    WHERE tenant = :tenant AND tenant IS NOT NULL AND number < :before ORDER BY number DESC LIMIT :budget)

-- name: list_ended_odd
{ended} INDEXED BY history_odd WHERE state >= 12 AND {below}

-- name: list_ended_odd_floor
SELECT min(number), count(*) FROM (
    SELECT number FROM history INDEXED BY history_odd WHERE state >= 12 AND number < :before
    ORDER BY number DESC LIMIT :budget)

-- name: parked_numbers
-- The index has them by state; `state >= 20` is what it wants to hear.
SELECT number FROM (SELECT number FROM run WHERE state >= 20 AND state = 20 AND number < :before ORDER BY number DESC LIMIT :limit)
UNION ALL
SELECT number FROM (SELECT number FROM run WHERE state >= 20 AND state = 21 AND number < :before ORDER BY number DESC LIMIT :limit)
UNION ALL
SELECT number FROM (SELECT number FROM run WHERE state >= 20 AND state = 22 AND number < :before ORDER BY number DESC LIMIT :limit)
ORDER BY number DESC LIMIT :limit

-- name: retrying_numbers
SELECT number FROM run INDEXED BY run_retrying WHERE state = 1 AND number < :before ORDER BY number DESC LIMIT :limit

-- name: checked_numbers
SELECT number FROM (
    SELECT number FROM run INDEXED BY run_phase WHERE phase IS NOT NULL AND number < :before
    UNION
    SELECT number FROM run INDEXED BY run_gathering WHERE member_set IS NOT NULL AND state = 5 AND number < :before)
ORDER BY number DESC LIMIT :limit

-- name: held_numbers
SELECT number FROM run INDEXED BY run_held WHERE waits_for IS NOT NULL AND number < :before
ORDER BY number DESC LIMIT :limit

-- name: scheduled_numbers
-- Live runs of one schedule, or of one member.
SELECT number FROM run WHERE schedule = :series AND number < :before ORDER BY number DESC LIMIT :limit

-- name: due_numbers
SELECT number FROM run INDEXED BY run_due WHERE state <= 1 AND fire_at < :now LIMIT :limit

-- name: named_numbers
SELECT number FROM (
    SELECT number FROM run WHERE name >= :prefix AND name < :after LIMIT :limit)
UNION ALL
SELECT number FROM (SELECT number FROM history WHERE name >= :prefix AND name < :after LIMIT :limit)

-- name: number_of
SELECT number FROM run WHERE name = :name OR number = :number
UNION ALL SELECT number FROM history WHERE name = :name OR number = :number

-- name: list_coming
-- What the wheel has before it, in its order. The way is bounded before anything else is asked of it.
SELECT * FROM live_runs WHERE number IN (
    SELECT number FROM run INDEXED BY run_due
    WHERE state <= 1 AND (fire_at, number) > (:after, :after_number) AND fire_at < :fire_to
    ORDER BY fire_at, number LIMIT :budget
) AND {wanted} ORDER BY fire_at, number LIMIT :limit

-- name: list_coming_end
SELECT fire_at, number, count(*) OVER () FROM (
    SELECT fire_at, number FROM run INDEXED BY run_due
    WHERE state <= 1 AND (fire_at, number) > (:after, :after_number) AND fire_at < :fire_to
    ORDER BY fire_at, number LIMIT :budget)
ORDER BY fire_at DESC, number DESC LIMIT 1

-- name: crowded_series
-- Schedules, and members, with more than one run at work.
SELECT schedule FROM live_runs WHERE number IN carray(:numbers) AND state = 4 AND schedule IS NOT NULL
GROUP BY schedule HAVING count(*) > 1

-- name: beats
SELECT number, beat_at FROM instance WHERE number IN (SELECT DISTINCT worker FROM claim)
