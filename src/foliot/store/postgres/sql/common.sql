-- name: begin
-- The moment of a transaction, and its name: what became of it can be asked for when the answer to COMMIT is lost.
SELECT foliot.now(), pg_current_xact_id()::text, (SELECT began::text FROM foliot.life)

-- name: begin_at
-- As above, with the clock of a test.
SELECT foliot.now(), pg_current_xact_id()::text, (SELECT began::text FROM foliot.life)
FROM set_config('foliot.now', :now::bigint::text, true)

-- name: look
SELECT foliot.now()

-- name: look_at
SELECT foliot.now() FROM set_config('foliot.now', :now::bigint::text, true)

-- name: outcome
SELECT CASE WHEN :xid::text::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(:xid::text::xid8)
    ELSE 'in the future' END, (SELECT began::text FROM foliot.life)

-- name: barrier
-- Once this has committed, so has all that we can see, also on synchronous replicas: a commit that nobody waited for any
-- more is visible here before it is there.
SELECT pg_logical_emit_message(true, 'foliot', '')

-- name: begin_life
SELECT foliot.begin_life()

-- name: next_node
SELECT nextval('foliot.node') % 1024

-- name: lock_schedules
-- In sorted order, so that two who need the same ones never wait for one another.
SELECT 1 FROM foliot.schedule WHERE id = ANY(:ids::text[]) ORDER BY id FOR UPDATE

-- name: lock_free_schedules
-- As above, but for those that somebody holds: whoever fires must not wait for a caller's transaction.
SELECT id FROM foliot.schedule WHERE id = ANY(:ids::text[]) ORDER BY id FOR UPDATE SKIP LOCKED

-- name: existing_schedules
SELECT id FROM foliot.schedule WHERE id = ANY(:ids::text[])

-- name: still_pending
-- Runs that are as the caller believes, and that somebody else has his hands on.
SELECT number, fire_at FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND (schedule IS NULL OR fired_at IS NULL)
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)

-- name: lock_all
SELECT pg_advisory_xact_lock(x'466F6C69'::integer, 1)

-- name: add_event
INSERT INTO foliot.event (at, kind, subject, detail) VALUES (:at, :kind, :subject, :detail)

-- name: add_audit
-- Inserts nothing if a row is signed: the new row would not be.
INSERT INTO foliot.audit (at, actor, action, subject, note)
SELECT :at::bigint, :actor::text, :action::text, :subject::text, :note::text
WHERE NOT EXISTS (SELECT 1 FROM foliot.audit WHERE signature IS NOT NULL)

-- name: add_audit_many
INSERT INTO foliot.audit (at, actor, action, subject, note)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
WHERE NOT EXISTS (SELECT 1 FROM foliot.audit WHERE signature IS NOT NULL)

-- name: audit_numbers
SELECT nextval(pg_get_serial_sequence('foliot.audit', 'n')) FROM generate_series(1, :count)

-- name: any_signed
SELECT EXISTS (SELECT 1 FROM foliot.audit WHERE signature IS NOT NULL)

-- name: add_signed_audit
INSERT INTO foliot.audit (n, at, actor, action, subject, note, signature) OVERRIDING SYSTEM VALUE
VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: add_signed_audit_many
INSERT INTO foliot.audit (n, at, actor, action, subject, note, signature) OVERRIDING SYSTEM VALUE
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])

-- name: add_stirs
-- Runs that were changed are told of whenever they are due.
INSERT INTO foliot.stir (shard, numbers)
SELECT shard, array_agg(number) FROM foliot.run WHERE number = ANY(:numbers::bigint[]) GROUP BY shard

-- name: add_near
-- New runs are told of if their cell may be loaded already, or soon.
INSERT INTO foliot.stir (shard, numbers)
SELECT shard, array_agg(number) FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND fire_at < (SELECT foliot.near()) GROUP BY shard

-- name: end_run
-- Copies a live run to history with its verdict; `drop_runs` removes the original in the same transaction.
INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, span_until, span_count, result, lineage, member_set)
SELECT number, name, $2, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, $3,
    progress, $4, $5, $6, $7, result, lineage, member_set
FROM foliot.run WHERE number = $1

-- name: drop_runs
DELETE FROM foliot.run WHERE number = ANY(:numbers::bigint[])

-- name: forget_runs
-- Leaves no trace, so that the same names can exist again.
WITH gone AS (DELETE FROM foliot.run WHERE number = ANY(:numbers::bigint[]) RETURNING number, name)
DELETE FROM foliot.named n USING gone WHERE n.name = gone.name AND n.number = gone.number

-- name: insert_tick
-- A run of a schedule, from its template.
WITH named AS (INSERT INTO foliot.named (name, number) VALUES ($2, $1))
INSERT INTO foliot.run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, fired_at, member_set, shard)
SELECT $1, $2, 0, $3, $4, priority, job, payload, $5, $6, $7, $8, id, revision, tenant, queue, options, $9, member_set,
    $1 % (SELECT shards FROM foliot.setting)
FROM foliot.schedule WHERE id = $10

-- name: names_taken
-- One run per schedule and nominal time, also after it ended.
SELECT name FROM foliot.named WHERE name = ANY(:names::text[])

-- name: free_names
-- A name is written and removed with its run: one that has none is left of a row that was deleted by hand.
DELETE FROM foliot.named n WHERE n.name = ANY(:names::text[])
    AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = n.number)
    AND NOT EXISTS (SELECT 1 FROM foliot.history h WHERE h.number = n.number)
RETURNING n.name

-- name: insert_tick_many
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::text[])
        AS w(number, name, origin, lane, fire_at, nominal, since, useful_until, fired_at, schedule)
), named AS (
    INSERT INTO foliot.named (name, number) SELECT name, number FROM wanted
)
INSERT INTO foliot.run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, fired_at, member_set, shard)
SELECT w.number, w.name, 0, w.origin, w.lane, s.priority, s.job, s.payload, w.fire_at, w.nominal, w.since, w.useful_until,
    s.id, s.revision, s.tenant, s.queue, s.options, w.fired_at, s.member_set,
    w.number % (SELECT shards FROM foliot.setting)
FROM wanted w JOIN foliot.schedule s ON s.id = w.schedule WHERE s.id = ANY($10::text[])

-- name: end_run_many
INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, schedule,
    revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at, finished_at,
    progress, reason, detail, span_until, span_count, result, lineage, member_set)
SELECT r.number, r.name, e.state, r.origin, r.lane, r.priority, r.job, r.payload, r.fire_at, r.nominal, r.since,
    r.schedule, r.revision, r.tenant, r.queue, r.options, r.attempt, r.spent, r.token, r.worker, r.fired_at, r.claimed_at,
    r.started_at, e.finished_at, r.progress, e.reason, e.detail, e.span_until, e.span_count, r.result, r.lineage,
    r.member_set
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::integer[])
    AS e(number, state, finished_at, reason, detail, span_until, span_count)
JOIN foliot.run r ON r.number = e.number WHERE r.number = ANY($1::bigint[])
