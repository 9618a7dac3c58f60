-- part: columns
id, job, rule, payload, policy, options, delay, queue, priority, tenant, owner, runbook, changes, revision,
    CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END, made_at, paused_at, paused_until, paused_note,
    evaluated_through, last_created, fault, tables, last_wall, next_wall, source, skip_through, member_set, paused_by,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint

-- name: schedule_columns
SELECT {columns} FROM schedule ORDER BY id

-- name: schedules_by_id
SELECT {columns} FROM schedule WHERE id IN (SELECT value FROM json_each(:ids))

-- name: schedule_versions
SELECT id, fault, source, CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint FROM schedule

-- name: fingerprints_after
-- A page, in the order of ids.
SELECT id, CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint FROM schedule
WHERE id > :after AND source = :source ORDER BY id LIMIT :limit

-- name: set_fault
UPDATE schedule SET fault = :fault WHERE id = :id

-- name: put_schedule
-- Pauses and the cursor survive an edit; a fault does not.
INSERT INTO schedule (id, job, rule, payload, policy, options, delay, queue, priority, tenant, owner, runbook, changes,
    revision, fingerprint, made_at, evaluated_through, source, member_set, declared, declared_format, declared_for)
VALUES (:id, :job, :rule, :payload, :policy, :options, :delay, :queue, :priority, :tenant, :owner, :runbook, :changes,
    1, :former, :now, :after, :source, :member_set, :fingerprint, :format, :former)
ON CONFLICT (id) DO UPDATE SET job = excluded.job, rule = excluded.rule, payload = excluded.payload,
    policy = excluded.policy, options = excluded.options, delay = excluded.delay, queue = excluded.queue,
    priority = excluded.priority, tenant = excluded.tenant, owner = excluded.owner, runbook = excluded.runbook,
    changes = excluded.changes, revision = revision + 1, fingerprint = excluded.fingerprint, fault = NULL,
    declared = excluded.declared, declared_format = excluded.declared_format, declared_for = excluded.declared_for,
    member_set = excluded.member_set,
    evaluated_through = coalesce(max(evaluated_through, excluded.evaluated_through), evaluated_through,
        excluded.evaluated_through),
    -- Wall times of another rule say nothing about this one's.
    tables = CASE WHEN rule = excluded.rule THEN tables END,
    last_wall = CASE WHEN rule = excluded.rule THEN last_wall END,
    next_wall = CASE WHEN rule = excluded.rule THEN next_wall END

-- name: put_fingerprint
-- The same declaration in the present format. Its fingerprint in format 0 stays as older releases know it.
UPDATE schedule SET declared = :fingerprint, declared_format = :format, declared_for = fingerprint WHERE id = :id

-- name: schedule_armed
-- With the tick that now waits, and what that was computed with.
UPDATE schedule SET last_created = coalesce(:name, last_created), tables = :tables, next_wall = :wall WHERE id = :id

-- name: delete_schedule
DELETE FROM schedule WHERE id = :id

-- name: declared_schedules
-- Each with whether it has a fixed delay.
SELECT id, declared, delay IS NOT NULL FROM schedule
WHERE source = :source AND fault IS NULL AND declared_for = fingerprint AND declared_format = :format

-- name: all_waiting
-- As `waiting_ticks`, of all schedules: a join would depend on statistics that a store just filled does not have.
SELECT schedule FROM run
WHERE schedule IS NOT NULL AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT 1

-- name: waiting_ticks
-- The one next run of a schedule: made by its rule, never tried yet, and not handed off.
SELECT schedule, number, coalesce(nominal, fire_at), fire_at FROM run
WHERE schedule IN (SELECT value FROM json_each(:ids)) AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT 1

-- name: refresh_tick
-- The same tick under the new template.
UPDATE run SET state = 0, reason = NULL, detail = NULL, waits_for = NULL, fire_at = :fire_at, useful_until = :useful_until,
    (priority, job, payload, revision, tenant, queue, options, member_set) =
    (SELECT priority, job, payload, revision, tenant, queue, options, member_set FROM schedule WHERE id = :id)
WHERE number = :number

-- name: unended_ticks
SELECT DISTINCT schedule FROM run WHERE schedule IN (SELECT value FROM json_each(:ids)) AND state < 20 AND origin = 0

-- name: schedule_made
UPDATE schedule SET last_created = :name WHERE id = :id

-- name: pause_schedule
-- Should nobody resume it before its end, nothing is made up for.
UPDATE schedule SET paused_at = CASE WHEN paused_until <= :now THEN :now ELSE coalesce(paused_at, :now) END,
    paused_until = :until, paused_note = :note, paused_by = :actor,
    skip_through = :until WHERE id = :id

-- name: resume_schedule
UPDATE schedule SET paused_at = NULL, paused_until = NULL,
    paused_note = CASE WHEN paused_at IS NOT NULL AND NOT :catch_up THEN paused_note END,
    skip_through = CASE WHEN paused_at IS NOT NULL AND NOT :catch_up THEN min(coalesce(paused_until, :now), :now) END
WHERE id = :id

-- name: schedule_next
-- What each schedule has coming, and how many of its runs are busy.
SELECT schedule, number, name, coalesce(nominal, fire_at), fire_at, state, origin, attempt, fired_at, decided FROM run
WHERE schedule IS NOT NULL AND (:id IS NULL OR schedule = :id) AND state < 20

-- name: computed_otherwise
-- The narrow index finds the few that are to be looked at; the joins are kept in this order.
WITH otherwise AS MATERIALIZED (
    SELECT id FROM schedule INDEXED BY schedule_tables
    WHERE tables IS NOT NULL AND tables NOT IN (SELECT value FROM json_each(:tables)) AND id > :after
    ORDER BY id LIMIT :limit
)
SELECT s.id, s.job, s.rule, s.payload, s.policy, s.options, s.delay, s.queue, s.priority, s.tenant, s.owner, s.runbook,
    s.changes, s.revision, CASE WHEN s.declared_for = s.fingerprint THEN s.declared ELSE s.fingerprint END, s.made_at,
    s.paused_at, s.paused_until, s.paused_note, s.evaluated_through,
    s.last_created, s.fault, s.tables, s.last_wall, s.next_wall, s.source, s.skip_through, s.member_set,
    s.paused_by, CASE WHEN s.declared_for = s.fingerprint THEN s.declared_format ELSE 0 END, s.fingerprint,
    coalesce(r.nominal, r.fire_at)
FROM otherwise o CROSS JOIN schedule s ON s.id = o.id
LEFT JOIN run r ON r.schedule = s.id AND r.state IN (0, 2) AND r.origin = 0 AND r.attempt = 0 AND r.fired_at IS NULL AND r.decided IS NOT 1
ORDER BY s.id

-- name: retabled
-- Zero rows: it was edited meanwhile, and the edit was computed with some release of the tables too.
UPDATE schedule SET tables = :tables, next_wall = :wall WHERE id = :id AND revision = :revision

-- name: move_tick
UPDATE run SET name = :name, nominal = :nominal, fire_at = :fire_at, useful_until = :until WHERE number = :number

-- name: last_useful
SELECT s.value, (SELECT h.nominal FROM history h INDEXED BY history_kept WHERE h.schedule = s.value AND h.schedule IS NOT NULL
    AND h.state IN (10, 11) ORDER BY h.nominal DESC LIMIT 1)
FROM json_each(:ids) s

-- name: all_edits
SELECT schedule, at, actor, fields FROM edit

-- name: put_edit
INSERT INTO edit (schedule, at, actor, fields) VALUES (:schedule, :at, :actor, :fields)
ON CONFLICT (schedule) DO UPDATE SET at = excluded.at, actor = excluded.actor, fields = excluded.fields

-- name: drop_edits
DELETE FROM edit WHERE schedule IN (SELECT value FROM json_each(:ids))
