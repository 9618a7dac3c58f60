-- part: losses
-- As `losses_of`. A run without suspicion, which is nearly every run, does not pay for the count.
CASE WHEN c.deaths IS NULL THEN 0 ELSE (
    SELECT count(*) FROM foliot.attempt a
    WHERE a.run = c.number AND a.outcome = 'lost' AND a.token > 0 AND NOT EXISTS (
        SELECT 1 FROM foliot.attempt b WHERE b.run = a.run AND b.attempt > a.attempt AND b.token > 0
            AND b.outcome NOT IN ('lost', 'interrupted')))
END

-- part: slot
-- The one slot of a limit that a claimed run has. A store without limits does not pay for the look. Each argument is a column, so that
-- the function is inlined: a call of it costs more than the look.
CASE WHEN (SELECT EXISTS (SELECT 1 FROM foliot.slot)) THEN coalesce(
    (SELECT foliot.only_slot(h.slots) FROM foliot.holding h WHERE h.number = c.number),
    (SELECT foliot.only_slot(r.slots) FROM foliot.run r WHERE r.number = c.number AND r.slots IS NOT NULL))
END

-- name: claim_runs
SELECT c.*, {losses}, {slot}, false FROM foliot.claim_runs(:worker, :queues::text[], :jobs::text[], :limit, :chunks, :tokens::bigint[], :suspects, :backlog::integer, :put_off::integer, :labels::text[], :carefully, :named::bigint[], :ahead) c

-- name: claim_within
SELECT c.*, {losses}, NULL, false FROM foliot.claim_within(:worker, :tenant::text, :queues::text[], :jobs::text[], :limit, :tokens::bigint[], :suspects, :labels::text[]) c

-- name: write_claims
SELECT foliot.write_claims(:tokens::bigint[], :numbers::bigint[])

-- name: write_old_claims
-- What runs for longer is written, so that few claims have to be looked through by whoever claims or reads; so is what
-- has progress to tell. A heart waits for nobody: what somebody has his hands on is written with a later beat.
WITH free AS MATERIALIZED (
    SELECT token FROM foliot.claim
    WHERE worker = :worker AND NOT written AND (claimed_at < :before OR token = ANY(:tokens::bigint[]))
    FOR UPDATE SKIP LOCKED
)
SELECT foliot.write_claims(ARRAY(SELECT token FROM free))

-- name: aside_chunks
SELECT n, lane, fired_at, numbers, queue, priority, job, alone, rank, version FROM foliot.handoff WHERE aside FOR UPDATE SKIP LOCKED

-- name: claimed_under
-- What a claim took whose answer was lost.
WITH c AS (
    SELECT r.number, r.name, r.job, r.payload, c.token, r.attempt + CASE WHEN r.state < 2 THEN 1 ELSE 0 END AS attempt, r.spent,
        r.fire_at, r.nominal, r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, c.lane, r.options,
        r.checkpoint, r.phase, r.lineage, coalesce(r.repair, false) AS repair, r.deaths,
        greatest(r.fire_at - foliot.now(), 0) AS early,
        CASE WHEN coalesce(r.slots, h.slots) = '[]' THEN h.waits_for END AS slot,
        coalesce(coalesce(r.slots, h.slots) = '[]', false) AS standby
    FROM foliot.claim c CROSS JOIN LATERAL unnest(c.numbers) AS u(number) JOIN foliot.run r ON r.number = u.number
    LEFT JOIN foliot.holding h ON h.number = u.number
    WHERE c.token = ANY(:tokens::bigint[])
        AND ((r.state = 4 AND r.token = c.token) OR (r.state < 2 AND NOT c.written))
)
SELECT c.number, c.name, c.job, c.payload, c.token, c.attempt, c.spent, c.fire_at, c.nominal, c.since, c.schedule, c.revision,
    c.tenant, c.queue, c.priority, c.origin, c.lane, c.options, c.checkpoint, c.phase, c.lineage, c.repair, c.deaths, c.early,
    {losses}, c.slot, c.standby
FROM c ORDER BY c.fire_at, c.number

-- name: drop_chunk
DELETE FROM foliot.handoff WHERE n = :n

-- name: add_job_chunk
INSERT INTO foliot.handoff (queue, lane, priority, job, ready_at, fired_at, numbers, alone, rank, version)
VALUES (:queue, :lane, :priority, :job, :ready_at, :fired_at, :numbers::bigint[], :alone, :rank, :version)
RETURNING CASE WHEN job IS NOT NULL THEN pg_notify('foliot_handoff', '') END

-- name: unclaimed_runs
-- What a claim passed over although it still waits: a job that this worker does not know, a run that is too late, or
-- one that is not due by a clock that was set back since it was fired. Runs of another version are fired again.
SELECT number, CASE WHEN phase IS NULL THEN job ELSE job || '?' END, useful_until, schedule, fire_at FROM foliot.lock_pending(:numbers::bigint[])
WHERE fire_at <= :fired_at AND coalesce(queue, 'default') = :queue::text
    AND (:version::integer IS NULL OR coalesce(version, 0) = :version)

-- name: broken_among
-- Runs whose destination does not answer, and which are no probes.
SELECT r.number FROM foliot.run r WHERE r.number = ANY(:numbers::bigint[]) AND foliot.bound_for(r) = ANY(:broken::text[])

-- name: paused_among
SELECT r.number FROM foliot.run r WHERE r.number = ANY(:numbers::bigint[]) AND foliot.is_paused(:paused::text[], r)

-- name: unfire_runs
-- Back from the hand-off: they are fired anew, and held then.
UPDATE foliot.run SET fired_at = NULL, decided = CASE WHEN schedule IS NULL THEN decided ELSE true END,
    slots = nullif(slots, '[]')
WHERE number = ANY(:numbers::bigint[]) AND state < 2

-- name: pending_among
SELECT number, fire_at, coalesce(queue, 'default'), coalesce(version, 0) FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND number NOT IN (SELECT u.number FROM foliot.unwritten u)

-- name: workers_knowing
-- The labels of live workers that know a job, or have a check.
SELECT i.labels FROM foliot.instance i, jsonb_array_elements_text(i.jobs::jsonb) j(name)
WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > :since AND j.name = :job::text

-- name: wanted_jobs
-- Jobs and checks that chunks have waited for, for some time.
SELECT DISTINCT job FROM foliot.handoff WHERE job IS NOT NULL AND fired_at < :before

-- name: stale_chunks
SELECT n, fired_at, numbers, queue, version FROM foliot.handoff WHERE job = :job AND fired_at < :before FOR UPDATE SKIP LOCKED

-- name: schedules_among
SELECT DISTINCT schedule FROM foliot.run WHERE number = ANY(:numbers::bigint[])

-- name: phase_of
SELECT phase FROM foliot.run WHERE number = :number

-- name: event_since
SELECT EXISTS (SELECT 1 FROM foliot.event WHERE subject = :subject AND kind = :kind AND at > :since)

-- name: finish_runs
SELECT number, token FROM foliot.finish_runs(:numbers::bigint[], :tokens::bigint[], :state::smallint,
    :started::bigint[], :finished::bigint[], :results::bytea[])

-- name: finish_and_claim
SELECT * FROM foliot.finish_and_claim(:numbers::bigint[], :tokens::bigint[], :state::smallint,
    :started::bigint[], :finished::bigint[], :results::bytea[], :holders::bigint[], :holder_tokens::bigint[], :heirs::bigint[],
    :heir_tokens::bigint[], :worker, :queues::text[], :jobs::text[], :limit, :backlog::integer, :lines::text[], :line_jobs::text[],
    :mosts::integer[], :new_tokens::bigint[])

-- name: return_standbys
SELECT foliot.return_standbys(:numbers::bigint[], :tokens::bigint[])

-- name: owned_runs
-- The runs that attempts claim to have ended, with the token that the store remembers. Claims are locked first.
SELECT number, token, schedule, phase FROM foliot.own_runs(:numbers::bigint[], :tokens::bigint[])

-- name: free_runs
-- For a heart, which waits for nobody: what somebody has his hands on is told with a later beat.
SELECT number, token FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND token = ANY(:tokens::bigint[]) AND state = 4
FOR UPDATE SKIP LOCKED

-- name: told_already
-- Whether the store has this attempt's ending: a worker that never got its answer may say it again.
SELECT EXISTS (SELECT 1 FROM foliot.history WHERE number = :number AND token = :token)
    OR EXISTS (SELECT 1 FROM foliot.attempt WHERE run = :number AND token = :token AND outcome IN (:outcome, 'succeeded'))

-- name: end_attempts
-- Terminal endings, as one JSON array of [number, state, started_at, finished_at, reason, detail, result]. A run that
-- was checked began when its handler did.
INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, result, lineage)
SELECT r.number, r.name, (e->>1)::smallint, r.origin, r.lane, r.priority, r.job, r.payload, r.fire_at, r.nominal, r.since,
    r.schedule, r.revision, r.tenant, r.queue, r.options, r.attempt, r.spent + 1, r.token, r.worker, r.fired_at,
    r.claimed_at, CASE WHEN r.phase IS NOT NULL AND r.started_at IS NOT NULL THEN r.started_at
        ELSE foliot.begun((e->>2)::bigint, r.claimed_at, r.fire_at) END,
    greatest((e->>3)::bigint, r.claimed_at), r.progress, e->>4, e->>5, coalesce(convert_to(e->>6, 'UTF8'), r.result),
    r.lineage
FROM jsonb_array_elements(:endings::text::jsonb) e JOIN foliot.run r ON r.number = (e->>0)::bigint
WHERE r.number = ANY(ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(:endings::text::jsonb) v))

-- name: add_attempts
-- Finished attempts, as one JSON array of [number, attempt, token, started_at, finished_at, outcome, error, stage, reason].
INSERT INTO foliot.attempt (run, attempt, token, worker, fire_at, claimed_at, started_at, finished_at, outcome, error,
    stage, reason, progress)
SELECT (e->>0)::bigint, (e->>1)::integer, (e->>2)::bigint, :worker, r.fire_at, r.claimed_at,
    foliot.begun(coalesce((e->>3)::bigint, CASE WHEN r.phase IS NULL THEN r.started_at END), r.claimed_at,
        r.fire_at),
    greatest((e->>4)::bigint, r.claimed_at), e->>5, e->>6, e->>7, e->>8, r.progress
FROM jsonb_array_elements(:endings::text::jsonb) e
LEFT JOIN (
    SELECT * FROM foliot.run
    WHERE number = ANY(ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(:endings::text::jsonb) v))
) r ON r.number = (e->>0)::bigint AND r.token = (e->>2)::bigint
ON CONFLICT DO NOTHING

-- name: unend_run
-- An attempt ended, and its run goes on: to a later try, back to the hand-off, or to a person. $7: it is being checked.
UPDATE foliot.run SET state = $2::smallint, nominal = coalesce(nominal, fire_at), fire_at = coalesce($3, fire_at),
    spent = spent + $4, token = NULL, worker = NULL, fired_at = NULL, claimed_at = NULL, reason = $5, detail = $6,
    started_at = CASE WHEN $7::boolean THEN started_at END, phase = CASE WHEN $7::boolean THEN phase END, deaths = $8,
    ending = NULL, waits_for = NULL, forced = NULL, version = coalesce(version, 0) + 1,
    -- Between two attempts it keeps its key, and nothing else; so does one that waits for a person, where that blocks.
    slots = CASE WHEN slots IS NULL OR $7::boolean THEN slots
        WHEN $2::smallint < 20 OR position('"blocks_until":"verified"'::bytea in options) > 0
            OR ($2::smallint <> 20 AND position('"blocks_until":"succeeded"'::bytea in options) > 0)
        THEN (SELECT jsonb_agg(value)::text FROM jsonb_array_elements_text(slots::jsonb) WHERE value LIKE 'key:%') END
WHERE number = $1

-- name: give_back_runs
-- Handed off again in the same transaction, so `fired_at` stays: what was decided about a tick is not decided twice. A standby has
-- no slot: it is fired again.
WITH held AS MATERIALIZED (SELECT 1 FROM foliot.claim WHERE token = :token FOR UPDATE)
UPDATE foliot.run SET state = CASE WHEN spent > 0 OR phase IS NOT NULL THEN 1 ELSE 0 END, attempt = attempt - 1,
    token = NULL, worker = NULL, claimed_at = NULL, started_at = CASE WHEN phase IS NOT NULL THEN started_at END
WHERE number = ANY(:numbers::bigint[]) AND state = 4 AND token = :token AND (SELECT count(*) FROM held) >= 0
RETURNING number, coalesce(queue, 'default'), lane, priority, CASE WHEN phase IS NOT NULL THEN job || '?' END,
    deaths IS NOT NULL, job, options, fire_at, coalesce(version, 0), coalesce(slots = '[]', false)

-- name: close_claim
-- A run that lives on is not the claim's any more, whatever its row will look like.
UPDATE foliot.claim SET open = open - $3,
    numbers = ARRAY(SELECT n FROM unnest(numbers) AS n WHERE n <> ALL($2::bigint[]))
WHERE token = $1

-- name: drop_claims
DELETE FROM foliot.claim WHERE token = ANY(:tokens::bigint[]) AND open <= 0

-- name: any_cancellation
SELECT EXISTS (SELECT 1 FROM foliot.cancellation)

-- name: cancellation_of
SELECT reason, nullif(note, ''), forced_at IS NOT NULL FROM foliot.cancellation WHERE number = :number

-- name: cancelled_among
SELECT c.number, c.reason, nullif(c.note, ''), r.schedule FROM foliot.cancellation c JOIN foliot.run r ON r.number = c.number
WHERE c.number = ANY(:numbers::bigint[]) AND r.number = ANY(:numbers::bigint[])

-- name: drop_cancellations
DELETE FROM foliot.cancellation WHERE number = ANY(:numbers::bigint[])

-- name: worker_recycles
SELECT recycles FROM foliot.instance WHERE number = :worker AND ended_at IS NULL

-- name: cancellations_of
SELECT number, forced_at IS NOT NULL FROM foliot.cancellation WHERE worker = :worker

-- name: add_progress
UPDATE foliot.run SET started_at = CASE WHEN phase IS NULL THEN foliot.begun($1, claimed_at, fire_at) ELSE started_at END,
    progress = coalesce($2, progress), checkpoint = coalesce($3, checkpoint), ending = coalesce($6, ending)
WHERE number = $4 AND token = $5 AND state = 4

-- name: release_held
-- Of each schedule, the first that waits for its turn: it is decided upon again, and when it ends it is the next one's. Not
-- while another one was let go, is due and has not fired yet; and what a pause holds waits for its end. Counted, and not
-- joined: a join would read all runs where the statistics are older than the runs.
UPDATE foliot.run r SET state = CASE WHEN r.spent > 0 THEN 1 ELSE 0 END, reason = NULL, detail = NULL, waits_for = NULL,
    fire_at = CASE WHEN r.decided OR r.fire_at > :now THEN :now ELSE r.fire_at END
WHERE r.number = ANY(ARRAY(SELECT (SELECT w.number FROM foliot.run w WHERE w.waits_for = 'turn:' || s.id AND w.state <= 2
        AND w.reason IS DISTINCT FROM 'paused' ORDER BY w.lane, w.nominal, w.number LIMIT 1)
    FROM unnest(:schedules::text[]) AS s(id) WHERE (SELECT count(*) FROM foliot.run o
        WHERE o.schedule = s.id AND o.state < 2 AND o.decided AND o.fired_at IS NULL AND o.waits_for IS NULL
            AND o.fire_at <= :now) = 0))
RETURNING r.number

-- name: release_paused
UPDATE foliot.run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, reason = NULL, detail = NULL, waits_for = NULL,
    fire_at = least(fire_at, :now)
WHERE waits_for IN (SELECT 'turn:' || w FROM unnest(:schedules::text[]) AS w
        UNION ALL SELECT 'turn:' || id FROM foliot.series WHERE schedule = ANY(:schedules::text[]))
    AND reason = 'paused' AND state <= 2 RETURNING number

-- name: delayed_schedules
-- Schedules of fixed delay among these that have nothing pending or busy left: their next run is due now. What was
-- replayed in bulk is none of their chain, which went on when it died. The index of runs goes by the default collation.
SELECT id, delay, policy FROM foliot.schedule s WHERE id = ANY(:schedules::text[]) AND delay IS NOT NULL
    AND (SELECT count(*) FROM foliot.run r WHERE r.schedule = s.id COLLATE "default" AND r.state < 20 AND r.origin = 0
        AND r.lane < 2) = 0

-- name: release_downstream
-- They wait for a result of these schedules, and look whether it is there now.
UPDATE foliot.run SET fire_at = :now, waits_for = NULL, reason = NULL, detail = NULL
WHERE waits_for = ANY(ARRAY(SELECT 'upstream:' || id FROM unnest(:schedules::text[]) AS s(id))) AND state < 2
RETURNING number
