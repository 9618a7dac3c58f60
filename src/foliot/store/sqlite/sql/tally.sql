-- name: tallied_position
SELECT position FROM tallied

-- name: is_any_uncounted
SELECT EXISTS (SELECT 1 FROM history WHERE n > coalesce((SELECT position FROM tallied), 0))

-- name: tally_bound
-- Where the next piece ends and begins, and whether there is more behind it.
SELECT max(n), :position, count(*) = :limit FROM (SELECT n FROM history WHERE n > :position ORDER BY n LIMIT :limit)

-- name: add_tally
-- What ended since, by minute. Late: first begun more than `late` after its nominal time, and after what jitter moved it by.
INSERT INTO tally (minute, on_time, late, missed, skipped, cancelled, settled)
SELECT minute, sum(kept - late), sum(late), sum(CASE WHEN state = 14 AND missed THEN ticks ELSE 0 END),
    sum(CASE WHEN state = 14 AND NOT missed THEN ticks ELSE 0 END), sum(state = 13), sum(state = 12)
FROM (
    -- The schedule is read only where the run was late without jitter: the rest is most of them.
    SELECT minute, state, kept, missed, ticks, CASE WHEN kept AND delay > :late THEN delay > :late + coalesce((
            SELECT CAST(s.policy AS TEXT) ->> '$.jitter' FROM schedule s WHERE s.id = CASE
                WHEN instr(b.schedule, '[') > 0 THEN substr(b.schedule, 1, instr(b.schedule, '[') - 1)
                ELSE b.schedule END AND json_valid(CAST(s.policy AS TEXT))), 0) ELSE 0 END AS late
    FROM (
        SELECT h.finished_at / 60000000 AS minute, h.state, h.schedule, h.state IN (10, 11) AS kept,
            coalesce(coalesce(
                CASE WHEN h.attempt > 1 THEN (SELECT min(a.started_at) FROM attempt a WHERE a.run = h.number) END,
                h.started_at, h.claimed_at) - coalesce(h.nominal, h.fire_at), 0) AS delay,
            coalesce(h.reason IN ('misfire', 'too_late'), 0) AS missed, coalesce(h.span_count, 1) AS ticks
        FROM history h WHERE h.n > :position AND h.n <= :bound AND h.origin <= 1 AND h.member_set IS NULL) b)
WHERE true GROUP BY minute
ON CONFLICT (minute) DO UPDATE SET on_time = on_time + excluded.on_time, late = late + excluded.late,
    missed = missed + excluded.missed, skipped = skipped + excluded.skipped, cancelled = cancelled + excluded.cancelled,
    settled = settled + excluded.settled

-- name: tallied_to
-- Zero rows: somebody else has counted from there.
INSERT INTO tallied VALUES (1, :bound) ON CONFLICT (id) DO UPDATE SET position = excluded.position
WHERE position = :position

-- name: forget_tally
DELETE FROM tally WHERE minute < :before

-- name: tally_since
SELECT coalesce(sum(on_time), 0), coalesce(sum(late), 0), coalesce(sum(missed), 0), coalesce(sum(skipped), 0),
    coalesce(sum(cancelled), 0), coalesce(sum(settled), 0)
FROM tally WHERE minute > :minute

-- name: tally_minutes
SELECT minute, on_time, late, missed, skipped, cancelled, settled FROM tally WHERE minute > :minute ORDER BY minute

-- name: tally_last
SELECT max(minute) FROM tally
