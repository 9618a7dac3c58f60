-- name: shards_set
SELECT shards FROM foliot.setting

-- name: insert_promises
-- Runs without a key, many at once. Their numbers are the caller's choice; whoever says it a second time, because the
-- answer was lost, is refused by the primary key or finds them in history. Which of them have to be told of is seen in
-- what was given: to have it returned would cost a tenth of the whole. Arrays are unfolded in the list of columns, side by
-- side: in FROM they would be written down as a table first, for another tenth.
WITH made AS (
    INSERT INTO foliot.run (number, shard, priority, job, payload, fire_at, useful_until, tenant, queue, options)
    SELECT p.number, p.number % :shards::smallint, p.priority, p.job, p.payload, p.fire_at, p.useful_until, p.tenant,
        p.queue, p.options
    FROM (
        SELECT unnest(:numbers::bigint[]) AS number, unnest(:priorities::integer[]) AS priority, unnest(:jobs::text[]) AS job,
            unnest(:payloads::bytea[]) AS payload, unnest(:fire_ats::bigint[]) AS fire_at,
            unnest(:useful_untils::bigint[]) AS useful_until, unnest(:tenants::text[]) AS tenant,
            unnest(:queues::text[]) AS queue, unnest(:options::bytea[]) AS options
    ) p
)
INSERT INTO foliot.stir (shard, numbers)
SELECT p.number % :shards::smallint, array_agg(p.number)
FROM (SELECT unnest(:numbers::bigint[]) AS number, unnest(:fire_ats::bigint[]) AS fire_at) p
CROSS JOIN (SELECT foliot.near() AS near OFFSET 0) n WHERE p.fire_at < n.near GROUP BY 1

-- name: insert_plain
-- The same for the most common shape: one job, default queue, nothing else chosen.
WITH made AS (
    INSERT INTO foliot.run (number, shard, job, payload, fire_at)
    SELECT p.number, p.number % :shards::smallint, :job::text, p.payload, p.fire_at
    FROM (
        SELECT unnest(:numbers::bigint[]) AS number, unnest(:payloads::bytea[]) AS payload, unnest(:fire_ats::bigint[]) AS fire_at
    ) p
)
INSERT INTO foliot.stir (shard, numbers)
SELECT p.number % :shards::smallint, array_agg(p.number)
FROM (SELECT unnest(:numbers::bigint[]) AS number, unnest(:fire_ats::bigint[]) AS fire_at) p
CROSS JOIN (SELECT foliot.near() AS near OFFSET 0) n WHERE p.fire_at < n.near GROUP BY 1

-- name: promises_made
-- Which of these numbers exist, and as what: after an answer that was lost.
SELECT number, name, job, payload FROM foliot.run WHERE number = ANY(:numbers::bigint[])
UNION ALL SELECT number, name, job, payload FROM foliot.history WHERE number = ANY(:numbers::bigint[])

-- name: make_promises
-- Runs with keys, one after the other, each with what became of it.
SELECT (k.kept).number, (k.kept).name, (k.kept).outcome, CASE WHEN (k.kept).state = 22
        AND (SELECT r.reason FROM foliot.run r WHERE r.number = (k.kept).number) = 'settled' THEN 23 ELSE (k.kept).state END,
    (k.kept).fire_at
FROM (
    SELECT p.place, foliot.make_promise(p.number, p.stem, p.job, p.payload, p.fire_at, p.useful_until, p.tenant, p.queue,
        p.priority, p.options, p.on_conflict, p.unique_for) AS kept
    FROM unnest(:numbers::bigint[], :stems::text[], :jobs::text[], :payloads::bytea[], :fire_ats::bigint[],
        :useful_untils::bigint[], :tenants::text[], :queues::text[], :priorities::integer[], :options::bytea[],
        :on_conflicts::text[], :unique_fors::bigint[]) WITH ORDINALITY
        AS p(number, stem, job, payload, fire_at, useful_until, tenant, queue, priority, options, on_conflict,
            unique_for, place)
    OFFSET 0
) k ORDER BY k.place

-- name: promised
SELECT number, job, payload, coalesce(nominal, fire_at) FROM foliot.run WHERE number = ANY(:numbers::bigint[])
UNION ALL SELECT number, job, payload, coalesce(nominal, fire_at) FROM foliot.history WHERE number = ANY(:numbers::bigint[])

-- name: generations
-- The newest generation of a keyed promise. The range ends after '#': '$' is the next character.
WITH latest AS (
    SELECT n.number FROM foliot.named n WHERE n.name >= :stem::text AND n.name < :stem_end::text
        AND substr(n.name, length(:stem::text) + 1) ~ '^[0-9]+$'
    ORDER BY length(n.name) DESC, n.name DESC LIMIT 1
)
SELECT r.number, r.name, CASE WHEN r.state = 22 AND r.reason = 'settled' THEN 23 ELSE r.state END, r.fire_at, true FROM latest JOIN foliot.live_runs r USING (number)
UNION ALL SELECT h.number, h.name, h.state, h.fire_at, false FROM latest JOIN foliot.history h USING (number)

-- name: move_promise
UPDATE foliot.run SET fire_at = :fire_at, nominal = NULL, fired_at = NULL, state = 0, reason = NULL, detail = NULL, waits_for = NULL, slots = NULL, forced = NULL, gives_up_at = NULL,
    useful_until = useful_until + (:fire_at - coalesce(nominal, fire_at)), version = coalesce(version, 0) + 1
WHERE number = :number AND state IN (0, 2)

-- name: find_live
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5 WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    fire_at, worker, schedule
FROM foliot.run
WHERE number = :number::bigint OR number = (SELECT n.number FROM foliot.named n WHERE n.name = :name::text)

-- name: lock_live
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5 WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    fire_at, worker, schedule
FROM foliot.hold_runs(ARRAY(SELECT n.number FROM foliot.named n WHERE n.name = :name::text) || :number::bigint)

-- name: begun_of
SELECT attempt, withdrawn FROM foliot.run WHERE number = :number

-- name: withdraw_tick
-- The one next run of a calendar rule carries the schedule on, so it stays until it is due, and is skipped then. One that is
-- held was due: whoever fires looks at it again, and skips it now.
UPDATE foliot.run r SET withdrawn = :note, state = 0, fire_at = CASE WHEN waits_for IS NULL THEN fire_at ELSE least(fire_at, :now) END,
    reason = NULL, detail = NULL, waits_for = NULL
WHERE number = :number AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT TRUE
    AND EXISTS (SELECT 1 FROM foliot.schedule s WHERE s.id = r.schedule AND s.delay IS NULL)

-- name: find_ended
SELECT number, name, state, fire_at FROM foliot.history
WHERE number = :number::bigint OR number = (SELECT n.number FROM foliot.named n WHERE n.name = :name::text)

-- name: ask_to_stop
INSERT INTO foliot.cancellation (number, worker, reason, note) VALUES (:number, :worker, :reason, :note)
ON CONFLICT (number) DO UPDATE SET worker = excluded.worker, reason = excluded.reason, note = excluded.note

-- name: force_stop
-- A cancellation that was forced stays forced.
UPDATE foliot.cancellation SET forced_at = coalesce(forced_at, :now) WHERE number = :number

-- name: revive_run
-- A parked run is due again now, with its attempts renewed.
UPDATE foliot.run SET state = :due::smallint, nominal = coalesce(nominal, fire_at), fire_at = :now, useful_until = NULL, spent = 0,
    token = NULL, worker = NULL, fired_at = NULL, claimed_at = NULL, started_at = NULL, reason = NULL, detail = NULL,
    deaths = CASE WHEN reason = 'poison' OR (reason = 'settled' AND deaths IS NOT NULL) THEN 0 END, result = NULL
WHERE number = :number AND state = :state

-- name: settle_run
-- Its effects are settled, and work is left. Stored as ambiguous with a reason of its own: see `read_state`.
UPDATE foliot.run SET state = 22, reason = 'settled', detail = :detail WHERE number = :number AND state = :state
