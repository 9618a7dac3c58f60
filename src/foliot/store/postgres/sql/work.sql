-- name: claim_chunks
-- Takes chunks by lane, priority and order, as many runs as fit, and all of their runs at once: compared and set, so
-- that whatever was cancelled, moved or claimed since the chunk was made is passed over. What a chunk named and this
-- claim did not take goes to a chunk aside: somebody has to look why (see `put_aside`).
WITH clock AS MATERIALIZED (
    SELECT foliot.now() AS now,
        EXISTS (SELECT 1 FROM foliot.instance WHERE number = :worker AND ended_at IS NULL) AS alive
), chunk AS MATERIALIZED (
    SELECT h.n, h.lane, h.priority, h.fired_at, h.queue, h.numbers FROM foliot.handoff h
    WHERE h.ready_at <= (SELECT now FROM clock) AND (SELECT alive FROM clock) AND h.queue = ANY(:queues::text[])
        AND (h.job IS NULL OR h.job = ANY(:jobs::text[])) AND NOT h.aside
    ORDER BY h.lane, h.priority DESC, h.n LIMIT :chunks FOR UPDATE SKIP LOCKED
), sized AS (
    SELECT *, row_number() OVER (ORDER BY lane, priority DESC, n) AS place,
        :limit::bigint - sum(cardinality(numbers)) OVER (ORDER BY lane, priority DESC, n) + cardinality(numbers) AS room
    FROM chunk
), part AS MATERIALIZED (
    SELECT n, place, lane, priority, fired_at, queue, numbers[1 : room::integer] AS mine,
        numbers[room::integer + 1 :] AS rest
    FROM sized WHERE room > 0
), wanted AS MATERIALIZED (
    SELECT p.place, p.lane, p.priority, p.fired_at, p.queue, u.number FROM part p CROSS JOIN LATERAL unnest(p.mine) AS u(number)
), free AS MATERIALIZED (
    -- Nobody waits for a run that somebody's open transaction has its hands on.
    SELECT number FROM foliot.run WHERE number = ANY(ARRAY(SELECT number FROM wanted)) FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE foliot.run r SET state = 4, token = :token::bigint, worker = :worker, attempt = r.attempt + 1, lane = w.lane,
        fired_at = w.fired_at, claimed_at = (SELECT now FROM clock)
    FROM wanted w
    WHERE r.number = ANY(ARRAY(SELECT number FROM free)) AND r.number = w.number AND r.state < 2
        AND r.fire_at <= (SELECT now FROM clock) AND r.job = ANY(:jobs::text[])
        AND (r.useful_until IS NULL OR r.useful_until >= (SELECT now FROM clock))
        AND coalesce(r.queue, 'default') = w.queue
    RETURNING w.place, r.number, r.name, r.job, r.payload, r.token, r.attempt, r.spent, r.fire_at, r.nominal, r.since,
        r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, r.lane, r.options, r.checkpoint
), gone AS (
    DELETE FROM foliot.handoff WHERE n = ANY(ARRAY(SELECT p.n FROM part p WHERE cardinality(p.rest) = 0))
), shrunk AS (
    UPDATE foliot.handoff h SET numbers = p.rest FROM part p
    WHERE h.n = ANY(ARRAY(SELECT n FROM part WHERE cardinality(rest) > 0)) AND h.n = p.n AND cardinality(p.rest) > 0
), claimed AS (
    INSERT INTO foliot.claim (token, worker, claimed_at, open, numbers)
    SELECT :token::bigint, :worker, (SELECT now FROM clock), count(*), array_agg(number) FROM taken HAVING count(*) > 0
), aside AS (
    INSERT INTO foliot.handoff (queue, lane, priority, fired_at, numbers, aside)
    SELECT w.queue, w.lane, w.priority, w.fired_at, array_agg(w.number), true FROM wanted w
    WHERE (SELECT count(*) FROM taken) < (SELECT count(*) FROM wanted)
        AND NOT EXISTS (SELECT 1 FROM taken t WHERE t.number = w.number)
    GROUP BY w.place, w.queue, w.lane, w.priority, w.fired_at RETURNING n
)
SELECT c.alive, (SELECT count(*) FROM chunk), (SELECT sum(cardinality(numbers)) FROM chunk),
    EXISTS (SELECT 1 FROM foliot.handoff h WHERE h.ready_at <= c.now AND h.queue = ANY(:queues::text[])
        AND (h.job IS NULL OR h.job = ANY(:jobs::text[])) AND NOT h.aside AND h.n NOT IN (SELECT p.n FROM part p)),
    EXISTS (SELECT 1 FROM aside) OR EXISTS (SELECT 1 FROM foliot.handoff WHERE aside), t.*
FROM clock c LEFT JOIN taken t ON true ORDER BY t.place, t.fire_at, t.number

-- name: aside_chunks
SELECT n, lane, fired_at, numbers, queue, priority, job FROM foliot.handoff WHERE aside FOR UPDATE SKIP LOCKED

-- name: claimed_under
-- What a claim took whose answer was lost.
SELECT r.number, r.name, r.job, r.payload, r.token, r.attempt, r.spent, r.fire_at, r.nominal, r.since, r.schedule,
    r.revision, r.tenant, r.queue, r.priority, r.origin, r.lane, r.options, r.checkpoint
FROM foliot.run r
WHERE r.number = ANY(ARRAY(SELECT unnest(numbers) FROM foliot.claim WHERE token = :token)) AND r.token = :token
    AND r.state = 4
ORDER BY r.fire_at, r.number

-- name: drop_chunk
DELETE FROM foliot.handoff WHERE n = :n

-- name: add_job_chunk
INSERT INTO foliot.handoff (queue, lane, priority, job, ready_at, fired_at, numbers)
VALUES (:queue, :lane, :priority, :job, :ready_at, :fired_at, :numbers::bigint[])

-- name: unclaimed_runs
-- What a claim passed over although it still waits: a job that this worker does not know, a run that is too late, or
-- one that is not due by a clock that was set back since it was fired. What was moved or replaced is fired anew.
SELECT number, job, useful_until, schedule, fire_at FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND fire_at <= :fired_at AND coalesce(queue, 'default') = :queue::text
FOR UPDATE SKIP LOCKED

-- name: pending_among
SELECT number, fire_at, coalesce(queue, 'default') FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND state < 2

-- name: job_is_known
SELECT EXISTS (SELECT 1 FROM foliot.instance i, jsonb_array_elements_text(i.jobs::jsonb) j(name)
    WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > :since AND j.name = :job::text)

-- name: event_since
SELECT EXISTS (SELECT 1 FROM foliot.event WHERE subject = :subject AND kind = :kind AND at > :since)

-- name: finish_plain
-- Attempts that ended their runs well, in one statement: runs without a schedule that nobody asked to stop. The claims
-- are locked first. What is not in the answer was not ours any more, or needs more thought.
WITH told AS MATERIALIZED (
    SELECT * FROM unnest(:numbers::bigint[], :tokens::bigint[], :states::smallint[], :started::bigint[],
        :finished::bigint[], :results::bytea[]) AS e(number, token, state, started_at, finished_at, result)
), claims AS MATERIALIZED (
    SELECT c.token, c.open FROM foliot.claim c WHERE c.token = ANY(:tokens::bigint[]) ORDER BY c.token FOR UPDATE
), gone AS (
    DELETE FROM foliot.run r USING told e
    WHERE r.number = ANY(:numbers::bigint[]) AND r.number = e.number AND r.token = e.token AND r.state = 4
        AND r.schedule IS NULL AND r.token = ANY(ARRAY(SELECT token FROM claims))
        AND r.number <> ALL(ARRAY(SELECT number FROM foliot.cancellation))
    RETURNING r.*, e.state AS end_state, foliot.begun(e.started_at, r.claimed_at) AS begun_at,
        greatest(e.finished_at, r.claimed_at) AS finished_at, e.result
), kept AS (
    INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since,
        schedule, revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at,
        finished_at, progress, result)
    SELECT number, name, end_state, origin, lane, priority, job, payload, fire_at, nominal, since,
        schedule, revision, tenant, queue, options, attempt, spent + 1, token, worker, fired_at, claimed_at, begun_at,
        finished_at, progress, result
    FROM gone
), closing AS (
    SELECT c.token, c.open, count(*) AS ended FROM claims c JOIN gone g ON g.token = c.token GROUP BY c.token, c.open
), closed AS (
    DELETE FROM foliot.claim WHERE token = ANY(ARRAY(SELECT token FROM closing WHERE open <= ended))
), shrunk AS (
    UPDATE foliot.claim c SET open = x.open - x.ended FROM closing x
    WHERE c.token = ANY(:tokens::bigint[]) AND c.token = x.token AND x.open > x.ended
)
SELECT number, token FROM gone

-- name: owned_runs
-- The runs that attempts claim to have ended, with the token that the store remembers. Claims are locked first.
WITH held AS MATERIALIZED (
    SELECT 1 FROM foliot.claim
    WHERE token = ANY(ARRAY(SELECT token FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND state = 4))
    ORDER BY token FOR UPDATE
)
SELECT number, token, schedule FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state = 4 AND (SELECT count(*) FROM held) >= 0
ORDER BY number FOR UPDATE

-- name: told_already
-- Whether the store has this attempt's ending: a worker that never got its answer may say it again.
SELECT EXISTS (SELECT 1 FROM foliot.history WHERE number = :number AND token = :token)
    OR EXISTS (SELECT 1 FROM foliot.attempt WHERE run = :number AND token = :token AND outcome <> 'lost')

-- name: end_attempts
-- Terminal endings, as one JSON array of [number, state, started_at, finished_at, reason, detail, result].
INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, result)
SELECT r.number, r.name, (e->>1)::smallint, r.origin, r.lane, r.priority, r.job, r.payload, r.fire_at, r.nominal, r.since,
    r.schedule, r.revision, r.tenant, r.queue, r.options, r.attempt, r.spent + 1, r.token, r.worker, r.fired_at,
    r.claimed_at, foliot.begun((e->>2)::bigint, r.claimed_at),
    greatest((e->>3)::bigint, r.claimed_at), r.progress, e->>4, e->>5, convert_to(e->>6, 'UTF8')
FROM jsonb_array_elements(:endings::text::jsonb) e JOIN foliot.run r ON r.number = (e->>0)::bigint
WHERE r.number = ANY(ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(:endings::text::jsonb) v))

-- name: add_attempts
-- Finished attempts, as one JSON array of [number, attempt, token, started_at, finished_at, outcome, error].
INSERT INTO foliot.attempt (run, attempt, token, worker, fire_at, claimed_at, started_at, finished_at, outcome, error)
SELECT (e->>0)::bigint, (e->>1)::integer, (e->>2)::bigint, :worker, r.fire_at, r.claimed_at,
    foliot.begun(coalesce((e->>3)::bigint, r.started_at), r.claimed_at),
    greatest((e->>4)::bigint, r.claimed_at), e->>5, e->>6
FROM jsonb_array_elements(:endings::text::jsonb) e
LEFT JOIN (
    SELECT * FROM foliot.run
    WHERE number = ANY(ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(:endings::text::jsonb) v))
) r ON r.number = (e->>0)::bigint AND r.token = (e->>2)::bigint
ON CONFLICT DO NOTHING

-- name: unend_run
-- An attempt ended, and its run goes on: to a later try, back to the hand-off, or to a person.
UPDATE foliot.run SET state = $2, nominal = coalesce(nominal, fire_at), fire_at = coalesce($3, fire_at),
    spent = spent + $4, token = NULL, worker = NULL, fired_at = NULL, claimed_at = NULL, started_at = NULL, reason = $5,
    detail = $6
WHERE number = $1

-- name: give_back_runs
-- Handed off again in the same transaction, so `fired_at` stays: what was decided about a tick is not decided twice.
WITH held AS MATERIALIZED (SELECT 1 FROM foliot.claim WHERE token = :token FOR UPDATE)
UPDATE foliot.run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, attempt = attempt - 1, token = NULL, worker = NULL,
    claimed_at = NULL, started_at = NULL
WHERE number = ANY(:numbers::bigint[]) AND state = 4 AND token = :token AND (SELECT count(*) FROM held) >= 0
RETURNING number, coalesce(queue, 'default'), lane, priority

-- name: close_claim
UPDATE foliot.claim SET open = open - $1 WHERE token = $2

-- name: drop_claims
DELETE FROM foliot.claim WHERE token = ANY(:tokens::bigint[]) AND open <= 0

-- name: any_cancellation
SELECT EXISTS (SELECT 1 FROM foliot.cancellation)

-- name: cancellation_of
SELECT reason, nullif(note, '') FROM foliot.cancellation WHERE number = :number

-- name: cancelled_among
SELECT c.number, c.reason, nullif(c.note, ''), r.schedule FROM foliot.cancellation c JOIN foliot.run r ON r.number = c.number
WHERE c.number = ANY(:numbers::bigint[]) AND r.number = ANY(:numbers::bigint[])

-- name: drop_cancellations
DELETE FROM foliot.cancellation WHERE number = ANY(:numbers::bigint[])

-- name: cancellations_of
SELECT number FROM foliot.cancellation WHERE worker = :worker

-- name: add_progress
UPDATE foliot.run SET started_at = foliot.begun($1, claimed_at), progress = coalesce($2, progress), checkpoint = coalesce($3, checkpoint)
WHERE number = $4 AND token = $5 AND state = 4

-- name: release_held
-- A run of the schedule has ended: what waited for it is decided again.
UPDATE foliot.run SET state = 0, reason = NULL, detail = NULL
WHERE schedule = ANY(:schedules::text[]) AND state = 2 RETURNING number

-- name: delayed_schedules
-- Schedules of fixed delay among these that have nothing pending or busy left: their next run is due now.
SELECT id, delay, policy FROM foliot.schedule s WHERE id = ANY(:schedules::text[]) AND delay IS NOT NULL
    AND (SELECT count(*) FROM foliot.run r WHERE r.schedule = s.id AND r.state < 20 AND r.origin = 0) = 0
