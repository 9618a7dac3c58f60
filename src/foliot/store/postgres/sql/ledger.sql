-- name: owned_run
-- A run that an attempt says is its own, with the number of its lineage. It stays so until the transaction ends.
SELECT number, name, attempt, coalesce(lineage, number), phase
FROM foliot.own_runs(ARRAY[:number::bigint], ARRAY[:token::bigint]) WHERE token = :token

-- name: lineage_of
SELECT coalesce((SELECT coalesce(r.lineage, r.number) FROM foliot.run r WHERE r.number = :number),
    (SELECT coalesce(h.lineage, h.number) FROM foliot.history h WHERE h.number = :number), :number::bigint)

-- name: effect_of
SELECT name, key, state, settles, run, attempt, token, started_at, ended_at, result, note, undo FROM foliot.effect
WHERE lineage = :lineage AND name = :name AND key = :key

-- name: effects_of
SELECT name, key, state, settles, run, attempt, token, started_at, ended_at, result, note, undo FROM foliot.effect
WHERE lineage = :lineage ORDER BY n

-- name: put_effect
INSERT INTO foliot.effect (lineage, name, key, state, settles, run, attempt, token, started_at, undo, batch, item)
VALUES (:lineage, :name, :key, 'started', :settles, :run, :attempt, :token, :now, :undo, :batch, :item)
ON CONFLICT (lineage, name, key) DO UPDATE SET state = 'started', settles = excluded.settles, run = excluded.run,
    attempt = excluded.attempt, token = excluded.token, started_at = excluded.started_at, ended_at = NULL, result = NULL,
    note = NULL, undo = excluded.undo, batch = excluded.batch, item = excluded.item

-- name: end_effect
UPDATE foliot.effect SET state = :state, ended_at = :now, result = :result, note = :note, run = :run, attempt = :attempt,
    token = :token
WHERE lineage = :lineage AND name = :name AND key = :key

-- name: settle_effect
-- On a person's word, or on that of a check of the whole run.
UPDATE foliot.effect SET state = :state, ended_at = :now, note = :note WHERE lineage = :lineage AND name = :name AND key = :key

-- name: settle_open
UPDATE foliot.effect SET state = :state, ended_at = :now, note = :note WHERE lineage = :lineage AND state = 'started'

-- name: settle_maybes
-- What nothing but a person can settle.
UPDATE foliot.effect SET state = :state, ended_at = :now, note = :note
WHERE lineage = :lineage AND state = 'started' AND settles IS NULL

-- name: undo_done
-- What is to be repeated, although it was done: on a person's word.
UPDATE foliot.effect SET state = 'not_done', ended_at = :now, note = :note
WHERE lineage = :lineage AND state = 'done' AND name = ANY(:names::text[])

-- name: ledger_facts
-- By run: effects that are done, that are open and can be settled by the next attempt, that are a maybe; items done.
SELECT r.number,
    (SELECT count(*) FROM foliot.effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'done'),
    (SELECT count(*) FROM foliot.effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'started' AND e.settles IS NOT NULL),
    (SELECT count(*) FROM foliot.effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'started' AND e.settles IS NULL),
    (SELECT count(*) FROM foliot.item i WHERE i.lineage = coalesce(r.lineage, r.number) AND i.state = 'done'),
    r.checkpoint IS NOT NULL,
    (SELECT count(*) FROM foliot.effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'not_done')
FROM foliot.run r WHERE r.number = ANY(:numbers::bigint[])

-- name: left_open
-- Of these runs, those with an effect that has no recorded end.
SELECT r.number FROM foliot.run r WHERE r.number = ANY(:numbers::bigint[])
    AND EXISTS (SELECT 1 FROM foliot.effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'started')

-- name: maybes
-- Through the ledger's own index of what is open: there are few.
SELECT r.number, r.name, e.name, e.key, e.state, e.settles, e.run, e.attempt, e.token, e.started_at, e.ended_at, e.result,
    e.note, e.undo
FROM foliot.effect e JOIN foliot.run r ON r.number = e.lineage OR r.lineage = e.lineage
WHERE e.state = 'started' AND r.state >= 20 AND (:job::text IS NULL OR r.job = :job) AND (:effect::text IS NULL OR e.name = :effect)
ORDER BY r.number, e.n LIMIT :limit

-- name: put_items
-- As a JSON array of [run, batch, key, state, error]. What is done stays done. Of a lineage, one run is live at most.
INSERT INTO foliot.item (lineage, batch, key, state, error, at)
SELECT coalesce(r.lineage, r.number), i->>1, i->>2, i->>3, i->>4, :now
FROM jsonb_array_elements(:items::text::jsonb) i JOIN foliot.run r ON r.number = (i->>0)::bigint
WHERE r.number = ANY(ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(:items::text::jsonb) v))
ON CONFLICT (lineage, batch, key) DO UPDATE SET state = excluded.state, error = excluded.error, at = excluded.at
WHERE item.state <> 'done'

-- name: put_batches
-- As a JSON array of [run, batch, size].
INSERT INTO foliot.batch (lineage, name, size)
SELECT coalesce(r.lineage, r.number), b->>1, (b->>2)::bigint
FROM jsonb_array_elements(:batches::text::jsonb) b JOIN foliot.run r ON r.number = (b->>0)::bigint
WHERE r.number = ANY(ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(:batches::text::jsonb) v))
ON CONFLICT (lineage, name) DO UPDATE SET size = coalesce(excluded.size, batch.size)

-- name: done_items
SELECT key FROM foliot.item WHERE lineage = :lineage AND batch = :batch AND state = 'done'

-- name: batches_of
SELECT b.lineage, b.name, b.size,
    (SELECT count(*) FROM foliot.item i WHERE i.lineage = b.lineage AND i.batch = b.name AND i.state = 'done'),
    (SELECT count(*) FROM foliot.item i WHERE i.lineage = b.lineage AND i.batch = b.name AND i.state = 'failed')
FROM foliot.batch b WHERE b.lineage = ANY(:lineages::bigint[]) ORDER BY b.lineage, b.name

-- name: items_by_effects
-- Items that their loop did not record as done, by the effects that belong to them: how many are in doubt; how many are done;
-- how many of both were recorded as failed. An item is done if all its effects are, one of each name that the batch has, and
-- one of them since the item failed.
WITH names AS (
    SELECT lineage, batch, count(DISTINCT name) AS names FROM foliot.effect
    WHERE lineage = ANY(:lineages::bigint[]) AND batch IS NOT NULL GROUP BY lineage, batch
)
SELECT lineage, batch, count(*) FILTER (WHERE maybe), count(*) FILTER (WHERE NOT maybe AND finished),
    count(*) FILTER (WHERE failed AND (maybe OR finished))
FROM (
    SELECT e.lineage, e.batch, e.item, bool_or(e.state = 'started') AS maybe, bool_or(i.key IS NOT NULL) AS failed,
        bool_and(e.state = 'done') AND count(DISTINCT e.name) = max(n.names) AND (max(i.at) IS NULL OR max(e.ended_at) > max(i.at)) AS finished
    FROM names n JOIN foliot.effect e ON e.lineage = n.lineage AND e.batch = n.batch
    LEFT JOIN foliot.item i ON i.lineage = e.lineage AND i.batch = e.batch AND i.key = e.item
    WHERE i.state IS NULL OR i.state <> 'done'
    GROUP BY e.lineage, e.batch, e.item
) k GROUP BY lineage, batch

-- name: failed_items
-- Without those that `items_by_effects` counts as in doubt, or as done since.
SELECT i.key, coalesce(i.error, '') FROM foliot.item i WHERE i.lineage = :lineage AND i.batch = :batch AND i.state = 'failed'
    AND NOT EXISTS (SELECT 1 FROM foliot.effect e WHERE e.lineage = i.lineage AND e.batch = i.batch AND e.item = i.key
        GROUP BY e.item HAVING bool_or(e.state = 'started') OR (bool_and(e.state = 'done') AND max(e.ended_at) > i.at
            AND count(DISTINCT e.name) = (SELECT count(DISTINCT name) FROM foliot.effect WHERE lineage = :lineage AND batch = :batch)))
ORDER BY i.key LIMIT :limit

-- name: budget_of
-- Locked until the transaction ends, also when it is new: two who fill one hour would count one retry.
INSERT INTO foliot.budget (job, hour, spent) VALUES (:job, 0, 0)
ON CONFLICT (job) DO UPDATE SET spent = budget.spent RETURNING hour, spent

-- name: put_budget
INSERT INTO foliot.budget (job, hour, spent) VALUES (:job, :hour, :spent)
ON CONFLICT (job) DO UPDATE SET hour = excluded.hour, spent = excluded.spent

-- name: job_of
SELECT job FROM foliot.run WHERE number = :number

-- name: reruns_of
-- The range ends after 'r': 's' is the next character.
SELECT name FROM foliot.named
WHERE name >= :stem::text AND name < :stem_end::text AND substr(name, length(:stem::text) + 1) ~ '^[0-9]+$'
ORDER BY length(name), name

-- name: busy_of_lineage
-- A run of the lineage that waits or is at work; parked ones and ended ones are not.
SELECT number, name FROM foliot.run WHERE (number = :lineage OR lineage = :lineage) AND state < 20 LIMIT 1

-- name: doubted_of_lineage
SELECT number, name FROM foliot.run WHERE (number = :lineage OR lineage = :lineage) AND state = 22
    AND reason IS DISTINCT FROM 'settled' LIMIT 1

-- name: lineage_by_name
WITH wanted AS (SELECT n.number FROM foliot.named n WHERE n.name = :name::text)
SELECT coalesce(r.lineage, r.number) FROM foliot.run r JOIN wanted USING (number)
UNION ALL SELECT coalesce(h.lineage, h.number) FROM foliot.history h JOIN wanted USING (number)

-- name: rerun_source
-- What a rerun takes over, from wherever the run is.
SELECT number, name, job, payload, schedule, revision, tenant, queue, priority, options, coalesce(nominal, fire_at),
    since, member_set FROM foliot.run WHERE number = :number
UNION ALL
SELECT number, name, job, payload, schedule, revision, tenant, queue, priority, options, coalesce(nominal, fire_at),
    since, member_set FROM foliot.history WHERE number = :number

-- name: insert_rerun
WITH named AS (INSERT INTO foliot.named (name, number) VALUES (:name, :number))
INSERT INTO foliot.run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule, revision,
    tenant, queue, options, lineage, repair, member_set, shard)
VALUES (:number, :name, 0, 4, :lane, :priority, :job, :payload, :due, :nominal, :since, :schedule, :revision, :tenant,
    :queue, :options, :lineage, :repair, :member_set,
    :number::bigint % (SELECT shards FROM foliot.setting))

-- name: put_to_check
-- Handed off for its check in the same transaction: it was fired, and it is never too late to look.
UPDATE foliot.run SET state = 1, phase = :phase, result = coalesce(:result::bytea, result), spent = 0, useful_until = NULL,
    nominal = coalesce(nominal, fire_at), token = NULL, worker = NULL, claimed_at = NULL,
    started_at = coalesce(:started_at::bigint, started_at), reason = NULL, detail = :detail, deaths = NULL, ending = NULL
WHERE number = :number
RETURNING coalesce(queue, 'default'), lane, priority, job, deaths IS NOT NULL, options, coalesce(version, 0)

-- name: recheck_run
UPDATE foliot.run SET state = 1, phase = :phase, spent = 0, useful_until = NULL, nominal = coalesce(nominal, fire_at),
    fired_at = :now, token = NULL, worker = NULL, claimed_at = NULL, reason = NULL, detail = NULL, deaths = CASE WHEN reason = 'poison' THEN 0 END
WHERE number = :number AND state = :state
RETURNING coalesce(queue, 'default'), lane, priority, job, deaths IS NOT NULL, options, coalesce(version, 0)

-- name: audits_of
SELECT at, actor, action, note FROM foliot.audit WHERE subject = :subject ORDER BY n

-- name: runs_between
SELECT * FROM (
    SELECT l.*, 0::bigint, 0::bigint FROM foliot.live_runs l WHERE (schedule = :name OR job = :name)
        AND coalesce(nominal, fire_at) >= :start AND coalesce(nominal, fire_at) < :end
    UNION ALL
    SELECT * FROM foliot.ended_runs WHERE (schedule = :name OR job = :name)
        AND coalesce(nominal, fire_at) >= :start AND coalesce(nominal, fire_at) < :end
) r ORDER BY coalesce(nominal, fire_at), number LIMIT :limit

-- name: durations
SELECT h.finished_at - h.started_at FROM (
    SELECT number, job, state, started_at, finished_at FROM foliot.history ORDER BY number DESC LIMIT :budget) h
WHERE h.job = :job AND h.state IN (10, 11) AND h.started_at IS NOT NULL ORDER BY h.number DESC LIMIT :limit

-- name: durations_of_ticks
SELECT h.finished_at - h.started_at FROM (
    SELECT id COLLATE "default" AS id FROM foliot.schedule WHERE job = :job ORDER BY 1 LIMIT :schedules) s
CROSS JOIN LATERAL (
    SELECT started_at, finished_at FROM foliot.history
    WHERE schedule = s.id AND schedule IS NOT NULL AND nominal IS NOT NULL AND state IN (10, 11)
        AND job = :job AND started_at IS NOT NULL
    ORDER BY nominal DESC LIMIT :limit) h
ORDER BY h.finished_at DESC LIMIT :limit
