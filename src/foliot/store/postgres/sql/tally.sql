-- name: tallied_position
-- Whoever counts holds the row; another one finds it further on.
SELECT position FROM foliot.tallied FOR UPDATE

-- name: is_any_uncounted
-- A position that lies ahead is another server's.
SELECT EXISTS (SELECT 1 FROM foliot.history WHERE xid >= coalesce((SELECT position FROM foliot.tallied), 0)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
    OR coalesce((SELECT position FROM foliot.tallied), 0) > pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- name: tally_bound
-- Where to count up to, and from; all of it at once, so that `limit` says nothing. Transactions below the first have all
-- ended: nothing can come in between later. A dump that was restored knows positions of another server's transactions:
-- there it begins anew, with what ends from now on.
SELECT now_.xmin, CASE WHEN :position::bigint > now_.xmax THEN now_.xmin ELSE :position END, :limit::bigint < 0
FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax) now_

-- name: add_tally
-- What ended since, by minute. Late: first begun more than `late` after its nominal time, and after what jitter moved it by.
WITH begun AS MATERIALIZED (
    SELECT h.finished_at / 60000000 AS minute, h.state, h.schedule, coalesce(h.span_count, 1) AS ticks,
        coalesce(h.reason IN ('misfire', 'too_late'), false) AS missed,
        coalesce(coalesce(
                CASE WHEN h.attempt > 1 THEN (SELECT min(a.started_at) FROM foliot.attempt a WHERE a.run = h.number) END,
                h.started_at, h.claimed_at) - coalesce(h.nominal, h.fire_at), 0) AS delay
    FROM foliot.history h
    WHERE h.xid >= :position::bigint AND h.xid < :bound::bigint AND h.origin <= 1 AND h.member_set IS NULL
), ended AS (
    -- The schedule is read only where the run was late without jitter: the rest is most of them.
    SELECT minute, state, ticks, missed, CASE WHEN delay > :late::bigint THEN delay > :late + coalesce((
            -- As text: one policy that is no JSON must not stop the count.
            SELECT substring(encode(s.policy, 'escape') FROM '"jitter": ?([0-9]{1,17})')::bigint FROM foliot.schedule s
            WHERE s.id = split_part(b.schedule, '[', 1)), 0) ELSE false END AS late
    FROM begun b
)
INSERT INTO foliot.tally AS t (minute, on_time, late, missed, skipped, cancelled, settled)
SELECT minute, count(*) FILTER (WHERE state IN (10, 11) AND NOT late), count(*) FILTER (WHERE state IN (10, 11) AND late),
    coalesce(sum(ticks) FILTER (WHERE state = 14 AND missed), 0),
    coalesce(sum(ticks) FILTER (WHERE state = 14 AND NOT missed), 0),
    count(*) FILTER (WHERE state = 13), count(*) FILTER (WHERE state = 12)
FROM ended GROUP BY minute
ON CONFLICT (minute) DO UPDATE SET on_time = t.on_time + excluded.on_time, late = t.late + excluded.late,
    missed = t.missed + excluded.missed, skipped = t.skipped + excluded.skipped,
    cancelled = t.cancelled + excluded.cancelled, settled = t.settled + excluded.settled

-- name: tallied_to
-- Zero rows: somebody else has counted from there.
INSERT INTO foliot.tallied AS t VALUES (1, :bound) ON CONFLICT (id) DO UPDATE SET position = excluded.position
WHERE t.position = :position

-- name: forget_tally
DELETE FROM foliot.tally WHERE minute < :before

-- name: tally_since
SELECT coalesce(sum(on_time), 0)::bigint, coalesce(sum(late), 0)::bigint, coalesce(sum(missed), 0)::bigint,
    coalesce(sum(skipped), 0)::bigint, coalesce(sum(cancelled), 0)::bigint, coalesce(sum(settled), 0)::bigint
FROM foliot.tally WHERE minute > :minute

-- name: tally_minutes
SELECT minute, on_time, late, missed, skipped, cancelled, settled FROM foliot.tally WHERE minute > :minute ORDER BY minute

-- name: tally_last
SELECT max(minute) FROM foliot.tally
