-- name: working_instances
-- Whoever owns claims; a worker that is not in the table any more is gone.
SELECT c.worker, i.host, i.pid, i.birth, coalesce(i.beat_at, 0), i.gone_at, i.leaving_at, i.slots FROM (SELECT DISTINCT worker FROM claim) c
LEFT JOIN instance i ON i.number = c.worker

-- name: claims_of
SELECT token, numbers FROM claim WHERE worker = :worker

-- name: claimed_runs
SELECT number, name, job, token, attempt, spent, coalesce(nominal, fire_at), options, claimed_at, phase, deaths, ending,
    tenant, queue
FROM run
WHERE number IN carray(:numbers) AND token = :token AND state = 4

-- name: losses_of
-- How often in a row runs were lost: since their last attempt that ended in another way than by a loss or an interruption.
-- An attempt with a negative token is the refused report of one that was lost before. Runs without losses are left out.
SELECT a.run, count(*) FROM attempt a
WHERE a.run IN carray(:numbers) AND a.outcome = 'lost' AND a.token > 0 AND NOT EXISTS (
    SELECT 1 FROM attempt b
    WHERE b.run = a.run AND b.attempt > a.attempt AND b.token > 0 AND b.outcome NOT IN ('lost', 'interrupted'))
GROUP BY a.run

-- name: lost_run
SELECT number, name, worker, schedule, phase FROM run WHERE number = :number AND token = :token AND state = 4

-- name: end_instance
UPDATE instance SET ended_at = :now WHERE number = :number AND ended_at IS NULL

-- name: open_claims_of
SELECT EXISTS (SELECT 1 FROM claim WHERE worker = :worker)

-- name: all_jobs
SELECT name, policy, queue, owner, runbook, changes, traits FROM job

-- name: add_instance
INSERT INTO instance (role, host, pid, birth, version, queues, jobs, slots, started_at, beat_at, release, labels, reserved, recycles)
VALUES (:role, :host, :pid, :birth, :version, :queues, :jobs, :slots, :now, :now, :release, :labels, :reserved, :recycles)
RETURNING number

-- name: unended_instances
SELECT number, host, pid, birth FROM instance WHERE ended_at IS NULL

-- name: record_gone
UPDATE instance SET gone_at = :now WHERE number = :number AND gone_at IS NULL

-- name: forget_instances
-- Starts that ended long ago; what they did is told by runs and attempts.
DELETE FROM instance WHERE ended_at < :before AND number NOT IN (SELECT worker FROM claim)

-- name: is_live_instance
SELECT 1 FROM instance WHERE number = :number AND ended_at IS NULL

-- name: put_job
INSERT INTO job (name, policy, queue, owner, runbook, changes, seen_at, traits) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET policy = excluded.policy, queue = excluded.queue, owner = excluded.owner,
    runbook = excluded.runbook, changes = excluded.changes, seen_at = excluded.seen_at, traits = excluded.traits

-- name: live_instances
SELECT number, role, host, pid, version, started_at, beat_at, queues, slots, ended_at, birth, offset_low, offset_high,
    fenced, labels, reserved, wish, wish_note, recycles
FROM instance WHERE ended_at IS NULL ORDER BY number

-- name: report_clock
UPDATE instance SET offset_low = :low, offset_high = :high, fenced = :fenced WHERE number = :number

-- name: waiting_work
-- Whether there is any work for each periodic loop, in the order of `Waiting`. Each part reads a few pages.
SELECT EXISTS (SELECT 1 FROM claim), EXISTS (SELECT 1 FROM unsealed),
    EXISTS (SELECT 1 FROM backfill WHERE ended_at IS NULL AND state = 'running'),
    EXISTS (SELECT 1 FROM run INDEXED BY run_gathering WHERE member_set IS NOT NULL AND state = 5)
        OR EXISTS (SELECT 1 FROM recount),
    EXISTS (SELECT 1 FROM run INDEXED BY run_gives_up
        WHERE gives_up_at < :now AND state <= 2 AND waits_for LIKE 'rate:breaker:%')
