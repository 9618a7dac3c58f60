-- name: ready_chunks
-- By lane, then priority, then fair share, then order. A chunk with a job is for workers that know it.
SELECT n, lane, fired_at, numbers, queue, priority, job, alone, rank, version FROM handoff
WHERE ready_at <= :now AND queue IN (SELECT value FROM json_each(:queues)) AND (job IS NULL OR job IN (SELECT value FROM json_each(:jobs)))
    AND (:suspects OR NOT alone) AND lane <= :most_lane
ORDER BY lane, priority DESC, rank, n LIMIT :limit

-- name: ready_light_chunks
-- The same, without those of tenants that have had their share: it has an index of its own, because a worker that is full
-- of a flood asks for these whenever anything is new.
SELECT n, lane, fired_at, numbers, queue, priority, job, alone, rank, version FROM handoff INDEXED BY handoff_light
WHERE NOT (rank > 1 AND rank % 2 = 1)
    AND ready_at <= :now AND queue IN (SELECT value FROM json_each(:queues)) AND (job IS NULL OR job IN (SELECT value FROM json_each(:jobs)))
    AND (:suspects OR NOT alone) AND lane <= :most_lane
ORDER BY lane, priority DESC, rank, n LIMIT :limit

-- name: ready_chunks_among
-- As `ready_chunks`, of these chunks only.
SELECT n, lane, fired_at, numbers, queue, priority, job, alone, rank, version FROM handoff
WHERE n IN carray(:named)
    AND ready_at <= :now AND queue IN (SELECT value FROM json_each(:queues)) AND (job IS NULL OR job IN (SELECT value FROM json_each(:jobs)))
    AND (:suspects OR NOT alone) AND lane <= :most_lane
ORDER BY lane, priority DESC, rank, n LIMIT :limit

-- name: pending_of_others
-- Waiting runs of other tenants.
SELECT number FROM run WHERE number IN carray(:numbers) AND state <= 1 AND tenant IS NOT :tenant

-- name: shrink_chunk
UPDATE handoff SET numbers = :numbers WHERE n = :n

-- name: drop_chunk
DELETE FROM handoff WHERE n = :n

-- name: add_job_chunk
INSERT INTO handoff (queue, lane, priority, job, ready_at, fired_at, numbers, alone, rank, version)
VALUES (:queue, :lane, :priority, :job, :ready_at, :fired_at, :numbers, :alone, :rank, :version)

-- name: claim_runs
-- Compare and set: runs that were cancelled, changed or claimed since the chunk was made are passed over.
UPDATE run SET state = 4, token = :token, worker = :worker, attempt = attempt + 1, lane = :lane,
    fired_at = :fired_at, claimed_at = :now
WHERE number IN carray(:numbers) AND state <= 1 AND fire_at <= :now
    AND (:version IS NULL OR coalesce(version, 0) = :version)
    AND (useful_until IS NULL OR useful_until >= :now) AND coalesce(queue, 'default') = :queue
    AND CASE WHEN phase IS NULL THEN job ELSE job || '?' END IN (SELECT value FROM json_each(:jobs))
    AND (:broken = '[]' OR number NOT IN (SELECT b.number FROM bound_for b WHERE b.number IN carray(:numbers)
        AND b.destination IN (SELECT value FROM json_each(:broken))))
    AND (:paused = '[]' OR number NOT IN (SELECT p.number FROM pausable p WHERE p.number IN carray(:numbers)
        AND p.pause IN (SELECT value FROM json_each(:paused))))
RETURNING number, name, job, payload, token, attempt, spent, fire_at, nominal, since, schedule, revision, tenant,
    queue, priority, origin, lane, options, checkpoint, phase, lineage, coalesce(repair, 0), deaths, 0,
    -- As `losses_of`. A run without suspicion, which is nearly every run, does not pay for the count.
    CASE WHEN deaths IS NULL THEN 0 ELSE (
        SELECT count(*) FROM attempt a
        WHERE a.run = run.number AND a.outcome = 'lost' AND a.token > 0 AND NOT EXISTS (
            SELECT 1 FROM attempt b WHERE b.run = a.run AND b.attempt > a.attempt AND b.token > 0
                AND b.outcome NOT IN ('lost', 'interrupted')))
    END,
    -- The slot that other runs may wait for, if it has but one. Without waiters nobody asks for it.
    CASE WHEN :waiting AND json_array_length(slots) = 1 THEN slots ->> 0 END, 0

-- name: standbys_begun
-- They began before this request, and were due when they were claimed, as runs that are let in are due then.
UPDATE run SET fire_at = claimed_at
WHERE number IN carray(:numbers) AND state = 4 AND worker = :worker AND slots = '[]'

-- name: pass_slot
-- Both runs are the worker's, the holder has a slot, and the standby has none yet.
UPDATE run SET slots = (SELECT h.slots FROM run h WHERE h.number = :holder)
WHERE number = :heir AND state = 4 AND token = :heir_token AND worker = :worker AND slots = '[]'
    AND EXISTS (SELECT 1 FROM run h WHERE h.number = :holder AND h.state = 4 AND h.token = :holder_token
        AND h.worker = :worker AND h.slots <> '[]')
RETURNING slots

-- name: give_up_slots
UPDATE run SET slots = '[]' WHERE number IN carray(:numbers)

-- name: may_have_standbys
-- Not while more slots are taken than a lowered limit allows.
SELECT EXISTS (SELECT 1 FROM slot WHERE name = :name AND every IS NULL AND used <= most)

-- name: simple_waiters
-- Waiting runs about which the scheduler would have nothing to decide but their slots.
SELECT number, queue, options, fire_at FROM run
WHERE number IN carray(:numbers) AND state = 2 AND job = :job AND slots IS NULL AND lane = 0 AND schedule IS NULL
    AND coalesce(queue, 'default') IN (SELECT value FROM json_each(:queues)) AND phase IS NULL AND deaths IS NULL
    AND tenant IS NULL AND forced IS NULL AND gives_up_at IS NULL AND withdrawn IS NULL AND fire_at <= :now
    AND (useful_until IS NULL OR useful_until >= :now)

-- name: claim_standbys
-- `fire_at` stays: it is the place among the waiters, to which a standby returns that does not begin.
UPDATE run SET state = 4, token = :token, worker = :worker, attempt = attempt + 1, nominal = coalesce(nominal, fire_at),
    fired_at = :now, claimed_at = :now, slots = '[]', waits_for = NULL, reason = NULL, detail = NULL
WHERE number IN carray(:numbers)
RETURNING number, name, job, payload, token, attempt, spent, :now, nominal, since, schedule, revision, tenant, queue,
    priority, origin, lane, options, checkpoint, phase, lineage, coalesce(repair, 0), deaths, 0, 0, :slot, 1

-- name: unclaimed_runs
-- What a claim passed over although it still waits: a job that this worker does not know, a run that is too late, or
-- one that is not due by a clock that was set back since it was fired. Runs of another version are fired again.
SELECT number, CASE WHEN phase IS NULL THEN job ELSE job || '?' END, useful_until, schedule, fire_at FROM run
WHERE number IN carray(:numbers) AND state <= 1 AND fire_at <= :fired_at AND coalesce(queue, 'default') = :queue
    AND (:version IS NULL OR coalesce(version, 0) = :version)

-- name: broken_among
-- Runs whose destination does not answer, and which are no probes.
SELECT number FROM bound_for WHERE number IN carray(:numbers) AND destination IN (SELECT value FROM json_each(:broken))

-- name: paused_among
SELECT DISTINCT number FROM pausable WHERE number IN carray(:numbers) AND pause IN (SELECT value FROM json_each(:paused))

-- name: unfire_runs
-- Back from the hand-off: they are fired anew, and held then.
UPDATE run SET fired_at = NULL, decided = CASE WHEN schedule IS NULL THEN decided ELSE 1 END
WHERE number IN carray(:numbers) AND state <= 1

-- name: pending_among
SELECT number, fire_at, coalesce(queue, 'default'), coalesce(version, 0) FROM run
WHERE number IN carray(:numbers) AND state <= 1

-- name: add_claim
INSERT INTO claim (token, worker, claimed_at, open, numbers) VALUES (:token, :worker, :now, :open, :numbers)

-- name: workers_knowing
-- The labels of live workers that know a job, or have a check.
SELECT i.labels FROM instance i, json_each(i.jobs) j WHERE i.ended_at IS NULL AND i.role = 'worker'
    AND i.beat_at > :since AND j.value = :job

-- name: labelled_chunks
-- Whom chunks are for that not every worker of their job can take.
SELECT DISTINCT job FROM handoff WHERE instr(job, '@') > 0

-- name: wanted_jobs
-- Jobs and checks that chunks have waited for, for some time.
SELECT DISTINCT job FROM handoff WHERE job IS NOT NULL AND fired_at < :before

-- name: stale_chunks
SELECT n, fired_at, numbers, queue, version FROM handoff WHERE job = :job AND fired_at < :before

-- name: schedules_among
SELECT DISTINCT schedule FROM run WHERE number IN carray(:numbers)

-- name: phase_of
SELECT phase FROM run WHERE number = :number

-- name: event_since
SELECT EXISTS (SELECT 1 FROM event WHERE subject = :subject AND kind = :kind AND at > :since)

-- name: owned_runs
-- The runs that attempts claim to have ended, with the token that the store remembers.
SELECT number, token, schedule, phase FROM run WHERE number IN carray(:numbers) AND state = 4

-- name: free_runs
-- There is one writer at a time: nobody else can have his hands on them.
SELECT number, token FROM run WHERE number IN carray(:numbers) AND token IN carray(:tokens) AND state = 4

-- name: told_already
-- Whether the store has this attempt's ending: a worker that never got its answer may say it again.
SELECT EXISTS (SELECT 1 FROM history WHERE number = :number AND token = :token)
    OR EXISTS (SELECT 1 FROM attempt WHERE run = :number AND token = :token AND outcome IN (:outcome, 'succeeded'))

-- name: end_attempts
-- Terminal endings, as one JSON array of [number, state, started_at, finished_at, reason, detail, result]. A run that
-- was checked began when its handler did.
INSERT INTO history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, result, lineage)
SELECT r.number, r.name, e.value->>1, r.origin, r.lane, r.priority, r.job, r.payload, r.fire_at, r.nominal, r.since,
    r.schedule, r.revision, r.tenant, r.queue, r.options, r.attempt, r.spent + 1, r.token, r.worker, r.fired_at,
    r.claimed_at, CASE WHEN r.phase IS NULL THEN e.value->>2 ELSE coalesce(r.started_at, e.value->>2) END, e.value->>3,
    r.progress, e.value->>4, e.value->>5, coalesce(CAST(e.value->>6 AS BLOB), r.result), r.lineage
FROM json_each(:endings) e CROSS JOIN run r ON r.number = e.value->>0

-- name: add_attempts
-- Finished attempts, as one JSON array of [number, attempt, token, started_at, finished_at, outcome, error, stage, reason].
INSERT OR IGNORE INTO attempt (run, attempt, token, worker, fire_at, claimed_at, started_at, finished_at, outcome, error,
    stage, reason, progress)
SELECT e.value->>0, e.value->>1, e.value->>2, :worker, r.fire_at, r.claimed_at,
    coalesce(e.value->>3, CASE WHEN r.phase IS NULL THEN r.started_at END), e.value->>4,
    e.value->>5, e.value->>6, e.value->>7, e.value->>8, r.progress
FROM json_each(:endings) e LEFT JOIN run r ON r.number = e.value->>0 AND r.token = e.value->>2

-- name: unend_run
-- An attempt ended, and its run goes on: to a later try, back to the hand-off, or to a person. ?7: it is being checked.
UPDATE run SET state = ?2, nominal = coalesce(nominal, fire_at), fire_at = coalesce(?3, fire_at), spent = spent + ?4,
    token = NULL, worker = NULL, fired_at = NULL, claimed_at = NULL, reason = ?5, detail = ?6,
    started_at = CASE WHEN ?7 THEN started_at END, phase = CASE WHEN ?7 THEN phase END, deaths = ?8, ending = NULL,
    waits_for = NULL, forced = NULL, version = coalesce(version, 0) + 1,
    -- Between two attempts it keeps its key, and nothing else; so does one that waits for a person, where that blocks.
    slots = CASE WHEN slots IS NULL OR ?7 THEN slots
        WHEN ?2 < 20 OR instr(options, '"blocks_until":"verified"')
            OR (?2 <> 20 AND instr(options, '"blocks_until":"succeeded"'))
        THEN (SELECT nullif(json_group_array(value), '[]') FROM json_each(slots) WHERE value LIKE 'key:%') END
WHERE number = ?1

-- name: give_back_runs
-- Handed off again in the same transaction, so `fired_at` stays: what was decided about a tick is not decided twice.
UPDATE run SET state = CASE WHEN spent > 0 OR phase IS NOT NULL THEN 1 ELSE 0 END, attempt = attempt - 1, token = NULL, worker = NULL,
    claimed_at = NULL, started_at = CASE WHEN phase IS NOT NULL THEN started_at END
WHERE number IN carray(:numbers) AND state = 4 AND token = :token
RETURNING number, coalesce(queue, 'default'), lane, priority, CASE WHEN phase IS NOT NULL THEN job || '?' END,
    deaths IS NOT NULL, job, options, fire_at, coalesce(version, 0), coalesce(slots = '[]', 0)

-- name: close_claim
UPDATE claim SET open = open - ?3 WHERE token = ?1

-- name: drop_claims
DELETE FROM claim WHERE token IN carray(:tokens) AND open <= 0

-- name: any_cancellation
SELECT EXISTS (SELECT 1 FROM cancellation)

-- name: cancellation_of
SELECT reason, nullif(note, ''), forced_at IS NOT NULL FROM cancellation WHERE number = :number

-- name: cancelled_among
SELECT c.number, c.reason, nullif(c.note, ''), r.schedule FROM cancellation c JOIN run r ON r.number = c.number
WHERE c.number IN carray(:numbers)

-- name: drop_cancellations
DELETE FROM cancellation WHERE number IN carray(:numbers)

-- name: worker_recycles
SELECT recycles FROM instance WHERE number = :worker AND ended_at IS NULL

-- name: cancellations_of
SELECT number, forced_at IS NOT NULL FROM cancellation WHERE worker = :worker

-- name: add_progress
UPDATE run SET started_at = CASE WHEN phase IS NULL THEN ?1 ELSE started_at END, progress = coalesce(?2, progress),
    checkpoint = coalesce(?3, checkpoint), ending = coalesce(?6, ending)
WHERE number = ?4 AND token = ?5 AND state = 4

-- name: release_held
-- Of each schedule, the first that waits for its turn: it is decided upon again, and when it ends it is the next one's. Not
-- while another one was let go, is due and has not fired yet; and what a pause holds waits for its end.
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, reason = NULL, detail = NULL, waits_for = NULL,
    fire_at = CASE WHEN decided OR fire_at > :now THEN :now ELSE fire_at END
WHERE number IN (SELECT (SELECT w.number FROM run w WHERE w.waits_for = 'turn:' || s.value AND w.state <= 2
        AND w.reason IS NOT 'paused' ORDER BY w.lane, w.nominal, w.number LIMIT 1)
    FROM json_each(:schedules) s WHERE NOT EXISTS (SELECT 1 FROM run o
        WHERE o.schedule = s.value AND o.state < 2 AND o.decided = 1 AND o.fired_at IS NULL AND o.waits_for IS NULL
            AND o.fire_at <= :now))
RETURNING number

-- name: release_paused
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, reason = NULL, detail = NULL, waits_for = NULL,
    fire_at = min(fire_at, :now)
WHERE waits_for IN (SELECT 'turn:' || value FROM json_each(:schedules)
        UNION ALL SELECT 'turn:' || id FROM series WHERE schedule IN (SELECT value FROM json_each(:schedules)))
    AND reason = 'paused' AND state <= 2 RETURNING number

-- name: delayed_schedules
-- Schedules of fixed delay among these that have nothing pending or busy left: their next run is due now. What was
-- replayed in bulk is none of their chain, which went on when it died.
SELECT id, delay, policy FROM schedule s WHERE id IN (SELECT value FROM json_each(:schedules)) AND delay IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM run r WHERE r.schedule = s.id AND r.state < 20 AND r.origin = 0 AND r.lane < 2)

-- name: release_downstream
-- They wait for a result of these schedules, and look whether it is there now.
UPDATE run SET fire_at = :now, waits_for = NULL, reason = NULL, detail = NULL
WHERE waits_for IN (SELECT 'upstream:' || value FROM json_each(:schedules)) AND state < 2 RETURNING number

-- name: is_any_to_claim
-- Whether a claim has to be made: a chunk waits, or the worker has to hear that it was declared dead.
SELECT EXISTS (SELECT 1 FROM handoff) OR NOT EXISTS (SELECT 1 FROM instance WHERE number = :number AND ended_at IS NULL)
