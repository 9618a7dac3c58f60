-- part: columns
id, job, rule, payload, policy, options, delay, queue, priority, tenant, owner, runbook, changes, revision,
    CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END, made_at, paused_at, paused_until, paused_note,
    evaluated_through, last_created, fault, tables, last_wall, next_wall, source, skip_through, member_set, paused_by,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint

-- name: schedule_columns
SELECT {columns} FROM foliot.schedule ORDER BY id

-- name: schedules_by_id
SELECT {columns} FROM foliot.schedule WHERE id = ANY(:ids::text[])

-- name: schedule_versions
SELECT id, fault, source, CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint FROM foliot.schedule

-- name: fingerprints_after
-- A page, in the order of ids.
SELECT id, CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint FROM foliot.schedule
WHERE id > :after::text AND source = :source::text ORDER BY id LIMIT :limit::integer

-- name: set_fault
UPDATE foliot.schedule SET fault = :fault WHERE id = :id

-- name: put_schedule
-- Pauses and the cursor survive an edit; a fault does not.
INSERT INTO foliot.schedule AS s (id, job, rule, payload, policy, options, delay, queue, priority, tenant, owner, runbook, changes,
    revision, fingerprint, made_at, evaluated_through, source, member_set, declared, declared_format, declared_for)
VALUES (:id, :job, :rule, :payload, :policy, :options, :delay, :queue, :priority, :tenant, :owner, :runbook, :changes,
    1, :former, :now, :after, :source, :member_set, :fingerprint, :format, :former)
ON CONFLICT (id) DO UPDATE SET job = excluded.job, rule = excluded.rule, payload = excluded.payload,
    policy = excluded.policy, options = excluded.options, delay = excluded.delay, queue = excluded.queue,
    priority = excluded.priority, tenant = excluded.tenant, owner = excluded.owner, runbook = excluded.runbook,
    changes = excluded.changes, revision = s.revision + 1, fingerprint = excluded.fingerprint, fault = NULL,
    declared = excluded.declared, declared_format = excluded.declared_format, declared_for = excluded.declared_for,
    member_set = excluded.member_set,
    evaluated_through = greatest(s.evaluated_through, excluded.evaluated_through),
    -- Wall times of another rule say nothing about this one's.
    tables = CASE WHEN s.rule = excluded.rule THEN s.tables END,
    last_wall = CASE WHEN s.rule = excluded.rule THEN s.last_wall END,
    next_wall = CASE WHEN s.rule = excluded.rule THEN s.next_wall END

-- name: put_fingerprint
-- The same declaration in the present format. Its fingerprint in format 0 stays as older releases know it.
UPDATE foliot.schedule SET declared = :fingerprint, declared_format = :format, declared_for = fingerprint WHERE id = :id

-- name: schedule_armed
-- With the tick that now waits, and what that was computed with.
UPDATE foliot.schedule SET last_created = coalesce(:name::text, last_created), tables = :tables, next_wall = :wall WHERE id = :id

-- name: delete_schedule
DELETE FROM foliot.schedule WHERE id = :id

-- name: declared_schedules
-- Each with whether it has a fixed delay.
SELECT id, declared, delay IS NOT NULL FROM foliot.schedule
WHERE source = :source AND fault IS NULL AND declared_for = fingerprint AND declared_format = :format

-- name: all_waiting
-- As `waiting_ticks`, of all schedules: a join would depend on statistics that a store just filled does not have.
SELECT schedule FROM foliot.run
WHERE schedule IS NOT NULL AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT TRUE

-- name: waiting_ticks
-- The one next run of a schedule: made by its rule, never tried yet, and not handed off.
SELECT schedule, number, coalesce(nominal, fire_at), fire_at FROM foliot.run
WHERE schedule = ANY(:ids::text[]) AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT TRUE

-- name: refresh_tick
-- The same tick under the new template.
UPDATE foliot.run SET state = 0, reason = NULL, detail = NULL, waits_for = NULL, fire_at = :fire_at, useful_until = :useful_until,
    (priority, job, payload, revision, tenant, queue, options, member_set) =
    (SELECT priority, job, payload, revision, tenant, queue, options, member_set FROM foliot.schedule WHERE id = :id)
WHERE number = :number

-- name: unended_ticks
SELECT DISTINCT schedule FROM foliot.run WHERE schedule = ANY(:ids::text[]) AND state < 20 AND origin = 0

-- name: schedule_made
UPDATE foliot.schedule SET last_created = :name WHERE id = :id

-- name: pause_schedule
-- Should nobody resume it before its end, nothing is made up for.
UPDATE foliot.schedule SET paused_at = CASE WHEN paused_until <= :now THEN :now ELSE coalesce(paused_at, :now) END,
    paused_until = :until, paused_note = :note, paused_by = :actor,
    skip_through = :until WHERE id = :id

-- name: resume_schedule
UPDATE foliot.schedule SET paused_at = NULL, paused_until = NULL,
    paused_note = CASE WHEN paused_at IS NOT NULL AND NOT :catch_up THEN paused_note END,
    skip_through = CASE WHEN paused_at IS NOT NULL AND NOT :catch_up THEN least(coalesce(paused_until, :now), :now) END
WHERE id = :id

-- name: schedule_next
-- What each schedule has coming, and how many of its runs are busy.
SELECT schedule, number, name, coalesce(nominal, fire_at), fire_at, state, origin, attempt, fired_at,
    (SELECT r.decided FROM foliot.run r WHERE r.number = l.number)
FROM foliot.live_runs l
WHERE schedule IS NOT NULL AND (:id::text IS NULL OR schedule = :id) AND state < 20

-- name: computed_otherwise
-- The narrow index finds the few that are to be looked at; the joins are kept in this order.
WITH otherwise AS MATERIALIZED (
    SELECT id FROM foliot.schedule
    WHERE tables IS NOT NULL AND tables <> ALL(:tables::text[]) AND id > :after
    ORDER BY id LIMIT :limit
)
SELECT s.id, s.job, s.rule, s.payload, s.policy, s.options, s.delay, s.queue, s.priority, s.tenant, s.owner, s.runbook,
    s.changes, s.revision, CASE WHEN s.declared_for = s.fingerprint THEN s.declared ELSE s.fingerprint END, s.made_at,
    s.paused_at, s.paused_until, s.paused_note, s.evaluated_through,
    s.last_created, s.fault, s.tables, s.last_wall, s.next_wall, s.source, s.skip_through, s.member_set,
    s.paused_by, CASE WHEN s.declared_for = s.fingerprint THEN s.declared_format ELSE 0 END, s.fingerprint,
    coalesce(r.nominal, r.fire_at)
FROM otherwise o JOIN foliot.schedule s ON s.id = o.id
LEFT JOIN foliot.run r ON r.schedule = s.id COLLATE "default" AND r.state IN (0, 2) AND r.origin = 0 AND r.attempt = 0 AND r.fired_at IS NULL AND r.decided IS NOT TRUE
ORDER BY s.id

-- name: retabled
-- Zero rows: it was edited meanwhile, and the edit was computed with some release of the tables too.
UPDATE foliot.schedule SET tables = :tables, next_wall = :wall WHERE id = :id AND revision = :revision

-- name: move_tick
WITH renamed AS (UPDATE foliot.named SET name = :name WHERE number = :number)
UPDATE foliot.run SET name = :name, nominal = :nominal, fire_at = :fire_at, useful_until = :until WHERE number = :number

-- name: last_useful
SELECT s.id, (SELECT h.nominal FROM foliot.history h WHERE h.schedule = s.id AND h.schedule IS NOT NULL
    AND h.nominal IS NOT NULL AND h.state IN (10, 11) ORDER BY h.nominal DESC LIMIT 1)
FROM unnest(:ids::text[]) AS s(id)

-- name: all_edits
SELECT schedule, at, actor, fields FROM foliot.edit

-- name: put_edit
INSERT INTO foliot.edit (schedule, at, actor, fields) VALUES (:schedule, :at, :actor, :fields)
ON CONFLICT (schedule) DO UPDATE SET at = excluded.at, actor = excluded.actor, fields = excluded.fields

-- name: drop_edits
DELETE FROM foliot.edit WHERE schedule = ANY(:ids::text[])
