-- name: working_instances
-- Whoever owns claims; a worker that is not in the table any more is gone.
SELECT c.worker, i.host, i.pid, i.birth, coalesce(i.beat_at, 0), i.gone_at, i.leaving_at, i.slots FROM (SELECT DISTINCT worker FROM foliot.claim) c
LEFT JOIN foliot.instance i ON i.number = c.worker

-- name: claims_of
SELECT token, numbers FROM foliot.claim WHERE worker = :worker

-- name: claimed_runs
SELECT r.number, r.name, r.job, c.token, r.attempt + CASE WHEN r.state < 2 THEN 1 ELSE 0 END, r.spent,
    coalesce(r.nominal, r.fire_at), r.options, greatest(c.claimed_at, r.fire_at), r.phase, r.deaths, r.ending,
    r.tenant, r.queue
FROM foliot.claim c CROSS JOIN foliot.run r
WHERE c.token = :token AND r.number = ANY(:numbers::bigint[])
    AND ((r.state = 4 AND r.token = c.token) OR (r.state < 2 AND NOT c.written))

-- name: losses_of
-- How often in a row runs were lost: since their last attempt that ended in another way than by a loss or an interruption.
-- An attempt with a negative token is the refused report of one that was lost before. Runs without losses are left out.
SELECT a.run, count(*) FROM foliot.attempt a
WHERE a.run = ANY(:numbers::bigint[]) AND a.outcome = 'lost' AND a.token > 0 AND NOT EXISTS (
    SELECT 1 FROM foliot.attempt b
    WHERE b.run = a.run AND b.attempt > a.attempt AND b.token > 0 AND b.outcome NOT IN ('lost', 'interrupted'))
GROUP BY a.run

-- name: lost_run
SELECT number, name, worker, schedule, phase FROM foliot.own_runs(ARRAY[:number::bigint], ARRAY[:token::bigint])
WHERE token = :token

-- name: end_instance
UPDATE foliot.instance SET ended_at = :now WHERE number = :number AND ended_at IS NULL

-- name: open_claims_of
SELECT EXISTS (SELECT 1 FROM foliot.claim WHERE worker = :worker)

-- name: all_jobs
SELECT name, policy, queue, owner, runbook, changes, traits FROM foliot.job

-- name: add_instance
INSERT INTO foliot.instance (role, host, pid, birth, version, queues, jobs, slots, started_at, beat_at, release, labels, reserved, recycles)
VALUES (:role, :host, :pid, :birth, :version, :queues, :jobs, :slots, :now, :now, :release, :labels, :reserved, :recycles)
RETURNING number

-- name: unended_instances
SELECT number, host, pid, birth FROM foliot.instance WHERE ended_at IS NULL

-- name: record_gone
UPDATE foliot.instance SET gone_at = :now WHERE number = :number AND gone_at IS NULL

-- name: forget_instances
-- Starts that ended long ago; what they did is told by runs and attempts.
DELETE FROM foliot.instance WHERE ended_at < :before AND number NOT IN (SELECT worker FROM foliot.claim)

-- name: is_live_instance
SELECT 1 FROM foliot.instance WHERE number = :number AND ended_at IS NULL

-- name: put_job
INSERT INTO foliot.job (name, policy, queue, owner, runbook, changes, seen_at, traits)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET policy = excluded.policy, queue = excluded.queue, owner = excluded.owner,
    runbook = excluded.runbook, changes = excluded.changes, seen_at = excluded.seen_at, traits = excluded.traits

-- name: live_instances
SELECT number, role, host, pid, version, started_at, beat_at, queues, slots, ended_at, birth, offset_low, offset_high,
    fenced, labels, reserved, wish, wish_note, recycles
FROM foliot.instance WHERE ended_at IS NULL ORDER BY number

-- name: report_clock
UPDATE foliot.instance SET offset_low = :low, offset_high = :high, fenced = :fenced WHERE number = :number

-- name: waiting_work
-- Whether there is any work for each periodic loop, in the order of `Waiting`. Each part is a probe of a narrow index.
SELECT EXISTS (SELECT 1 FROM foliot.claim), EXISTS (SELECT 1 FROM foliot.unsealed),
    EXISTS (SELECT 1 FROM foliot.backfill WHERE ended_at IS NULL AND state = 'running'),
    EXISTS (SELECT 1 FROM foliot.run WHERE member_set IS NOT NULL AND state = 5)
        OR EXISTS (SELECT 1 FROM foliot.recount),
    EXISTS (SELECT 1 FROM foliot.run
        WHERE gives_up_at < foliot.now() AND state <= 2 AND waits_for LIKE 'rate:breaker:%')
