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
-- Inserts nothing if a row is signed: the new row would not be.
INSERT INTO audit (at, actor, action, subject, note) SELECT :at, :actor, :action, :subject, :note
WHERE NOT EXISTS (SELECT 1 FROM audit WHERE signature IS NOT NULL)

-- name: last_audit
SELECT coalesce(max(n), 0) FROM audit

-- name: any_signed
SELECT EXISTS (SELECT 1 FROM audit WHERE signature IS NOT NULL)

-- name: add_signed_audit
INSERT INTO audit (n, at, actor, action, subject, note, signature) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: add_stir
INSERT INTO stir (seq, number) VALUES (?, ?)

-- name: end_run
-- Copies a live run to history with its verdict; `drop_run` removes the original in the same transaction.
INSERT INTO history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, span_until, span_count, result, lineage, member_set)
SELECT number, name, ?2, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, ?3,
    progress, ?4, ?5, ?6, ?7, result, lineage, member_set
FROM run WHERE number = ?1

-- name: drop_runs
DELETE FROM run WHERE number IN carray(:numbers)

-- name: forget_runs
-- Leaves no trace, so that the same names can exist again.
DELETE FROM run WHERE number IN carray(:numbers)

-- name: insert_tick
-- A run of a schedule, from its template.
INSERT INTO run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, fired_at, member_set)
SELECT ?1, ?2, 0, ?3, ?4, priority, job, payload, ?5, ?6, ?7, ?8, id, revision, tenant, queue, options, ?9, member_set
FROM schedule WHERE id = ?10

-- name: names_taken
-- One run per schedule and nominal time, also after it ended.
SELECT name FROM run WHERE name IN (SELECT value FROM json_each(:names))
UNION ALL SELECT name FROM history WHERE name IN (SELECT value FROM json_each(:names))
