-- name: owned_run
-- A run that an attempt says is its own, with the number of its lineage.
SELECT number, name, attempt, coalesce(lineage, number), phase FROM run
WHERE number = :number AND token = :token AND state = 4

-- name: lineage_of
SELECT coalesce((SELECT coalesce(r.lineage, r.number) FROM run r WHERE r.number = :number),
    (SELECT coalesce(h.lineage, h.number) FROM history h WHERE h.number = :number), :number)

-- name: effect_of
SELECT name, key, state, settles, run, attempt, token, started_at, ended_at, result, note, undo FROM effect
WHERE lineage = :lineage AND name = :name AND key = :key

-- name: effects_of
SELECT name, key, state, settles, run, attempt, token, started_at, ended_at, result, note, undo FROM effect
WHERE lineage = :lineage ORDER BY n

-- name: put_effect
INSERT INTO effect (lineage, name, key, state, settles, run, attempt, token, started_at, undo, batch, item)
VALUES (:lineage, :name, :key, 'started', :settles, :run, :attempt, :token, :now, :undo, :batch, :item)
ON CONFLICT (lineage, name, key) DO UPDATE SET state = 'started', settles = excluded.settles, run = excluded.run,
    attempt = excluded.attempt, token = excluded.token, started_at = excluded.started_at, ended_at = NULL, result = NULL,
    note = NULL, undo = excluded.undo, batch = excluded.batch, item = excluded.item

-- name: end_effect
UPDATE effect SET state = :state, ended_at = :now, result = :result, note = :note, run = :run, attempt = :attempt,
    token = :token
WHERE lineage = :lineage AND name = :name AND key = :key

-- name: settle_effect
-- On a person's word, or on that of a check of the whole run.
UPDATE effect SET state = :state, ended_at = :now, note = :note WHERE lineage = :lineage AND name = :name AND key = :key

-- name: settle_open
UPDATE effect SET state = :state, ended_at = :now, note = :note WHERE lineage = :lineage AND state = 'started'

-- name: settle_maybes
-- What nothing but a person can settle.
UPDATE effect SET state = :state, ended_at = :now, note = :note
WHERE lineage = :lineage AND state = 'started' AND settles IS NULL

-- name: undo_done
-- What is to be repeated, although it was done: on a person's word.
UPDATE effect SET state = 'not_done', ended_at = :now, note = :note
WHERE lineage = :lineage AND state = 'done' AND name IN (SELECT value FROM json_each(:names))

-- name: ledger_facts
-- By run: effects that are done, that are open and can be settled by the next attempt, that are a maybe; items done.
SELECT r.number,
    (SELECT count(*) FROM effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'done'),
    (SELECT count(*) FROM effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'started' AND e.settles IS NOT NULL),
    (SELECT count(*) FROM effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'started' AND e.settles IS NULL),
    (SELECT count(*) FROM item i WHERE i.lineage = coalesce(r.lineage, r.number) AND i.state = 'done'),
    r.checkpoint IS NOT NULL,
    (SELECT count(*) FROM effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'not_done')
FROM run r WHERE r.number IN carray(:numbers)

-- name: left_open
-- Of these runs, those with an effect that has no recorded end.
SELECT r.number FROM run r WHERE r.number IN carray(:numbers)
    AND EXISTS (SELECT 1 FROM effect e WHERE e.lineage = coalesce(r.lineage, r.number) AND e.state = 'started')

-- name: maybes
-- Through the ledger's own index of what is open: there are few.
SELECT r.number, r.name, e.name, e.key, e.state, e.settles, e.run, e.attempt, e.token, e.started_at, e.ended_at, e.result,
    e.note, e.undo
FROM effect e JOIN run r ON r.number = e.lineage OR r.lineage = e.lineage
WHERE e.state = 'started' AND r.state >= 20 AND (:job IS NULL OR r.job = :job) AND (:effect IS NULL OR e.name = :effect)
ORDER BY r.number, e.n LIMIT :limit

-- name: put_items
-- As a JSON array of [run, batch, key, state, error]. What is done stays done.
INSERT INTO item (lineage, batch, key, state, error, at)
SELECT coalesce(r.lineage, r.number), i.value->>1, i.value->>2, i.value->>3, i.value->>4, :now
FROM json_each(:items) i CROSS JOIN run r ON r.number = i.value->>0 WHERE true
ON CONFLICT (lineage, batch, key) DO UPDATE SET state = excluded.state, error = excluded.error, at = excluded.at
WHERE item.state <> 'done'

-- name: put_batches
-- As a JSON array of [run, batch, size].
INSERT INTO batch (lineage, name, size)
SELECT coalesce(r.lineage, r.number), b.value->>1, b.value->>2
FROM json_each(:batches) b CROSS JOIN run r ON r.number = b.value->>0 WHERE true
ON CONFLICT (lineage, name) DO UPDATE SET size = coalesce(excluded.size, batch.size)

-- name: done_items
SELECT key FROM item WHERE lineage = :lineage AND batch = :batch AND state = 'done'

-- name: batches_of
SELECT b.lineage, b.name, b.size,
    (SELECT count(*) FROM item i WHERE i.lineage = b.lineage AND i.batch = b.name AND i.state = 'done'),
    (SELECT count(*) FROM item i WHERE i.lineage = b.lineage AND i.batch = b.name AND i.state = 'failed')
FROM batch b WHERE b.lineage IN carray(:lineages) ORDER BY b.lineage, b.name

-- name: items_by_effects
-- Items that their loop did not record as done, by the effects that belong to them: how many are in doubt; how many are done;
-- how many of both were recorded as failed. An item is done if all its effects are, one of each name that the batch has, and
-- one of them since the item failed.
WITH names AS (
    SELECT lineage, batch, count(DISTINCT name) AS names FROM effect
    WHERE lineage IN carray(:lineages) AND batch IS NOT NULL GROUP BY lineage, batch
)
SELECT lineage, batch, sum(maybe), sum(NOT maybe AND finished), sum(failed AND (maybe OR finished))
FROM (
    SELECT e.lineage, e.batch, e.item, max(e.state = 'started') AS maybe, max(i.key IS NOT NULL) AS failed,
        min(e.state = 'done') AND count(DISTINCT e.name) = max(n.names) AND (max(i.at) IS NULL OR max(e.ended_at) > max(i.at)) AS finished
    FROM names n JOIN effect e ON e.lineage = n.lineage AND e.batch = n.batch
    LEFT JOIN item i ON i.lineage = e.lineage AND i.batch = e.batch AND i.key = e.item
    WHERE i.state IS NULL OR i.state <> 'done'
    GROUP BY e.lineage, e.batch, e.item
) k GROUP BY lineage, batch

-- name: failed_items
-- Without those that `items_by_effects` counts as in doubt, or as done since.
SELECT i.key, coalesce(i.error, '') FROM item i WHERE i.lineage = :lineage AND i.batch = :batch AND i.state = 'failed'
    AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.lineage = i.lineage AND e.batch = i.batch AND e.item = i.key
        GROUP BY e.item HAVING max(e.state = 'started') OR (min(e.state = 'done') AND max(e.ended_at) > i.at
            AND count(DISTINCT e.name) = (SELECT count(DISTINCT name) FROM effect WHERE lineage = :lineage AND batch = :batch)))
ORDER BY i.key LIMIT :limit

-- name: budget_of
SELECT hour, spent FROM budget WHERE job = :job

-- name: put_budget
INSERT INTO budget (job, hour, spent) VALUES (:job, :hour, :spent)
ON CONFLICT (job) DO UPDATE SET hour = excluded.hour, spent = excluded.spent

-- name: job_of
SELECT job FROM run WHERE number = :number

-- name: reruns_of
-- The range ends after 'r': 's' is the next character.
SELECT name FROM (SELECT name FROM run WHERE name >= :stem AND name < :stem_end
    UNION ALL SELECT name FROM history WHERE name >= :stem AND name < :stem_end)
WHERE substr(name, length(:stem) + 1) NOT GLOB '*[^0-9]*' ORDER BY length(name), name

-- name: busy_of_lineage
-- A run of the lineage that waits or is at work; parked ones and ended ones are not.
SELECT number, name FROM run WHERE (number = :lineage OR lineage = :lineage) AND state < 20 LIMIT 1

-- name: doubted_of_lineage
SELECT number, name FROM run WHERE (number = :lineage OR lineage = :lineage) AND state = 22
    AND reason IS NOT 'settled' LIMIT 1

-- name: lineage_by_name
SELECT coalesce(lineage, number) FROM run WHERE name = :name
UNION ALL SELECT coalesce(lineage, number) FROM history WHERE name = :name

-- name: rerun_source
-- What a rerun takes over, from wherever the run is.
SELECT number, name, job, payload, schedule, revision, tenant, queue, priority, options, coalesce(nominal, fire_at),
    since, member_set FROM run WHERE number = :number
UNION ALL
SELECT number, name, job, payload, schedule, revision, tenant, queue, priority, options, coalesce(nominal, fire_at),
    since, member_set FROM history WHERE number = :number

-- name: insert_rerun
INSERT INTO run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule, revision,
    tenant, queue, options, lineage, repair, member_set)
VALUES (:number, :name, 0, 4, :lane, :priority, :job, :payload, :due, :nominal, :since, :schedule, :revision, :tenant,
    :queue, :options, :lineage, :repair, :member_set)

-- name: put_to_check
-- Handed off for its check in the same transaction: it was fired, and it is never too late to look.
UPDATE run SET state = 1, phase = :phase, result = coalesce(:result, result), spent = 0, useful_until = NULL,
    nominal = coalesce(nominal, fire_at), token = NULL, worker = NULL, claimed_at = NULL,
    started_at = coalesce(:started_at, started_at), reason = NULL, detail = :detail, deaths = NULL, ending = NULL
WHERE number = :number
RETURNING coalesce(queue, 'default'), lane, priority, job, deaths IS NOT NULL, options, coalesce(version, 0)

-- name: recheck_run
UPDATE run SET state = 1, phase = :phase, spent = 0, useful_until = NULL, nominal = coalesce(nominal, fire_at),
    fired_at = :now, token = NULL, worker = NULL, claimed_at = NULL, reason = NULL, detail = NULL, deaths = CASE WHEN reason = 'poison' THEN 0 END
WHERE number = :number AND state = :state
RETURNING coalesce(queue, 'default'), lane, priority, job, deaths IS NOT NULL, options, coalesce(version, 0)

-- name: audits_of
SELECT at, actor, action, note FROM audit WHERE subject = :subject ORDER BY n

-- name: runs_between
SELECT * FROM (
    SELECT * FROM live_runs WHERE (schedule = :name OR job = :name)
        AND coalesce(nominal, fire_at) >= :start AND coalesce(nominal, fire_at) < :end
    UNION ALL
    SELECT * FROM ended_runs WHERE (schedule = :name OR job = :name)
        AND coalesce(nominal, fire_at) >= :start AND coalesce(nominal, fire_at) < :end
) ORDER BY coalesce(nominal, fire_at), number LIMIT :limit

-- name: durations
SELECT finished_at - started_at FROM (SELECT * FROM history ORDER BY n DESC LIMIT :budget)
WHERE job = :job AND state IN (10, 11) AND started_at IS NOT NULL ORDER BY n DESC LIMIT :limit

-- name: durations_of_ticks
SELECT h.finished_at - h.started_at FROM (SELECT id FROM schedule WHERE job = :job ORDER BY id LIMIT :schedules) s
CROSS JOIN history h ON h.n IN (
    SELECT n FROM history INDEXED BY history_kept
    WHERE schedule = s.id AND schedule IS NOT NULL AND nominal IS NOT NULL AND state IN (10, 11)
        AND job = :job AND started_at IS NOT NULL
    ORDER BY nominal DESC LIMIT :limit)
ORDER BY h.finished_at DESC LIMIT :limit
