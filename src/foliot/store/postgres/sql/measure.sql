-- name: measured_chunks
SELECT queue, lane, fired_at, numbers FROM foliot.handoff WHERE fired_at <= foliot.now()

-- name: count_due
-- What can fire and is due: found in the index of these, shard by shard. What is claimed and not written yet is at work.
SELECT coalesce(sum(d.due), 0)::bigint FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
CROSS JOIN LATERAL (
    SELECT count(*) AS due FROM foliot.run r
    WHERE r.shard = s.shard AND r.state <= 1 AND r.fire_at <= :now AND r.phase IS NULL AND r.waits_for IS NULL
        AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
) d

-- name: count_open_alerts
SELECT kind, severity, count(*), sum(count)::bigint FROM foliot.alert WHERE resolved_at IS NULL GROUP BY kind, severity

-- name: count_parked_by_job
SELECT job, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, count(*) FROM foliot.run WHERE state >= 20 GROUP BY 1, 2

-- name: count_ended
-- Only of transactions below which none is under way: nothing can come in between later.
SELECT job, state, count(*), sum(attempt) FROM foliot.history
WHERE xid >= div(:position::numeric, 18446744073709551616)::bigint
    AND (xid, n) > (div(:position::numeric, 18446744073709551616)::bigint,
        mod(:position::numeric, 18446744073709551616)::bigint)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
GROUP BY job, state

-- name: schedule_ages
SELECT id, made_at, paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > :now::bigint), fault IS NOT NULL
FROM foliot.schedule ORDER BY id
