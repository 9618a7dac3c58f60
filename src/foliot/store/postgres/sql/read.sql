-- name: owned_by_workers
-- What runs now is found through its claim: there is no index of running runs, because each run would pay for it.
SELECT numbers FROM foliot.claim

-- name: live_run
SELECT * FROM foliot.live_runs
WHERE number = :number::bigint OR number = (SELECT n.number FROM foliot.named n WHERE n.name = :name::text)

-- name: ended_run
SELECT * FROM foliot.ended_runs
WHERE number = :number::bigint OR number = (SELECT n.number FROM foliot.named n WHERE n.name = :name::text)

-- name: ended_in_order
-- In the order of transactions, and only of those below which none is under way: nothing can come in between later.
SELECT * FROM foliot.ended_runs
WHERE xid >= div(:position::numeric, 18446744073709551616)::bigint
    AND (xid, n) > (div(:position::numeric, 18446744073709551616)::bigint,
        mod(:position::numeric, 18446744073709551616)::bigint)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY xid, n LIMIT :limit

-- name: last_positions
-- Behind every transaction that has ended, and before all that may still come: found without looking at any row.
SELECT p.position, p.position FROM (
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::numeric - 1) * 18446744073709551616 + 9223372036854775807
) AS p(position)

-- name: next_pending
-- The soonest of what can fire.
SELECT * FROM foliot.live_runs WHERE number = (
    SELECT r.number FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
    CROSS JOIN LATERAL (SELECT number, fire_at FROM foliot.run WHERE shard = s.shard AND state <= 1 AND fire_at > :now
        ORDER BY fire_at, number LIMIT 1) r
    ORDER BY r.fire_at, r.number LIMIT 1)

-- name: attempts_of
SELECT attempt, outcome, worker, started_at, finished_at, error, stage, reason, progress FROM foliot.attempt WHERE run = :number
ORDER BY attempt, finished_at

-- name: events_after
SELECT xid::numeric * 18446744073709551616 + n, at, kind, subject, detail FROM foliot.event
WHERE xid >= div(:position::numeric, 18446744073709551616)::bigint
    AND (xid, n) > (div(:position::numeric, 18446744073709551616)::bigint,
        mod(:position::numeric, 18446744073709551616)::bigint)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY xid, n LIMIT :limit

-- name: events_of
SELECT xid::numeric * 18446744073709551616 + n, at, kind, subject, detail FROM foliot.event
WHERE subject = :subject ORDER BY n

-- name: count_ready
SELECT state, count(*) FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND phase IS NULL AND fire_at <= :now
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)
GROUP BY state

-- name: count_history
-- Days that are over are counted as the server last did, when it looked at them.
SELECT foliot.count_history(foliot.now() - 172800000000)

-- name: count_early
-- A cancelled attempt is told by its run's history row too, and counts once.
SELECT (SELECT count(*) FROM foliot.history WHERE started_at < fire_at) + (SELECT count(*) FROM foliot.attempt WHERE started_at < fire_at AND outcome <> 'cancelled')

-- name: waiting_chunks
-- What is handed off before its time waits for nobody yet.
SELECT queue, fired_at, numbers, version FROM foliot.handoff WHERE fired_at <= foliot.now()
