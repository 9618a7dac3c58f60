-- name: take_numbers
-- Run numbers grow with commits: never below the last, and not below the moment they were drawn in.
UPDATE sequence SET run = max(run + 1, :candidate) + :count - 1 RETURNING run

-- name: last_number
SELECT run FROM sequence

-- name: take_token
UPDATE sequence SET token = token + 1 RETURNING token

-- name: add_event
INSERT INTO event (at, kind, subject, detail) VALUES (:at, :kind, :subject, :detail)

-- name: add_audit
INSERT INTO audit (at, actor, action, subject, note) VALUES (:at, :actor, :action, :subject, :note)

-- name: add_stir
INSERT INTO stir (seq, number) VALUES (?, ?)

-- name: end_run
-- Copies a live run to history with its verdict; `drop_run` removes the original in the same transaction.
INSERT INTO history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, span_until, span_count)
SELECT number, name, ?2, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, ?3,
    progress, ?4, ?5, ?6, ?7
FROM run WHERE number = ?1

-- name: drop_runs
DELETE FROM run WHERE number IN carray(:numbers)

-- name: insert_tick
-- A run of a schedule, from its template.
INSERT INTO run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, fired_at)
SELECT :number, :name, 0, :origin, :lane, priority, job, payload, :fire_at, :nominal, :since, :useful_until,
    id, revision, tenant, queue, options, :fired_at
FROM schedule WHERE id = :schedule

-- name: name_exists
-- One run per schedule and nominal time, also after it ended.
SELECT EXISTS (SELECT 1 FROM run WHERE name = :name) OR EXISTS (SELECT 1 FROM history WHERE name = :name)
