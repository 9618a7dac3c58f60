-- name: all_gates
SELECT name, most, every, burst, weight, source, changed_at, note FROM foliot.gate ORDER BY name

-- name: put_gate
INSERT INTO foliot.gate (name, most, every, burst, weight, source, changed_at, note)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET most = excluded.most, every = excluded.every, burst = excluded.burst,
    weight = excluded.weight, source = excluded.source, changed_at = excluded.changed_at, note = excluded.note

-- name: note_gate
UPDATE foliot.gate SET note = :note WHERE name = :name

-- name: known_jobs
SELECT DISTINCT j.name FROM foliot.instance i, jsonb_array_elements_text(i.jobs::jsonb) j(name)
WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > :since

-- name: drop_gate
DELETE FROM foliot.gate WHERE name = :name

-- name: put_slot
INSERT INTO foliot.slot (name, most, every, slack) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET most = excluded.most, every = excluded.every, slack = excluded.slack

-- name: put_slot_many
-- Locks them, in the order in which they are given, and brings them to what is allowed.
INSERT INTO foliot.slot (name, most, every, slack)
SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[])
ON CONFLICT (name) DO UPDATE SET most = excluded.most, every = excluded.every, slack = excluded.slack
WHERE (slot.most, slot.every, slot.slack) IS DISTINCT FROM (excluded.most, excluded.every, excluded.slack)

-- name: slots_named
-- Starts that were handed off before their time count as if all had come.
SELECT s.name, s.used, foliot.tat_of(s) FROM foliot.slot s WHERE s.name = ANY(:names::text[])

-- name: slots_below
SELECT name FROM foliot.slot WHERE name > :stem AND name < :stem_end ORDER BY name

-- name: slot_taken
UPDATE foliot.slot SET used = used + $1, tat = greatest(tat, $2), ahead = 0 WHERE name = $3

-- name: slot_taken_many
UPDATE foliot.slot s SET used = s.used + t.used, tat = greatest(s.tat, t.tat), ahead = 0
FROM unnest($1::integer[], $2::bigint[], $3::text[]) AS t(used, tat, name) WHERE s.name = t.name AND s.name = ANY($3::text[])

-- name: drop_slot
-- Not while somebody has it: who ends would give back, to a limit that was set anew, what this one never gave out.
DELETE FROM foliot.slot WHERE name = :name AND used <= 0

-- name: restart_slot
UPDATE foliot.slot SET tat = least(tat, :now), ahead = 0 WHERE name = :name

-- name: retime_waiting
-- Those that have their times by a rate which has changed are due, and get others.
UPDATE foliot.run SET fire_at = :now, waits_for = NULL,
    slots = (SELECT jsonb_agg(value)::text FROM jsonb_array_elements_text(slots::jsonb) WHERE value <> :slot)
WHERE waits_for = :slot AND state < 2 RETURNING number

-- name: let_in
SELECT foliot.let_in(:names::text[])

-- name: release_waiting
UPDATE foliot.run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at),
    fire_at = :now, waits_for = NULL, reason = NULL, detail = NULL
WHERE waits_for = :slot AND state <= 2 RETURNING number

-- name: run_goes
-- A probe is not turned back by the breaker that it is to test.
UPDATE foliot.run SET slots = $1, waits_for = NULL, reason = NULL, detail = NULL, gives_up_at = NULL,
    forced = coalesce($2, forced)
WHERE number = $3

-- name: run_goes_many
-- One that was let in says all of this already, and is not written again.
UPDATE foliot.run r SET slots = t.slots, waits_for = NULL, reason = NULL, detail = NULL, gives_up_at = NULL,
    forced = coalesce(t.forced, r.forced)
FROM unnest($1::text[], $2::boolean[], $3::bigint[]) AS t(slots, forced, number)
WHERE r.number = t.number AND r.number = ANY($3::bigint[]) AND (r.slots IS DISTINCT FROM t.slots
    OR num_nonnulls(r.waits_for, r.reason, r.detail, r.gives_up_at, t.forced) > 0)

-- name: run_waits
UPDATE foliot.run SET state = 2, slots = $1, waits_for = $2, reason = $3, detail = $4, lane = $5, fired_at = NULL,
    decided = CASE WHEN schedule IS NULL THEN decided ELSE true END
WHERE number = $6

-- name: run_waits_many
UPDATE foliot.run r SET state = 2, slots = t.slots, waits_for = t.slot, reason = t.reason, detail = t.detail,
    lane = t.lane, fired_at = NULL, decided = CASE WHEN r.schedule IS NULL THEN r.decided ELSE true END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::bigint[])
    AS t(slots, slot, reason, detail, lane, number)
WHERE r.number = t.number AND r.number = ANY($6::bigint[])

-- name: run_goes_later
UPDATE foliot.run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at), fire_at = $7,
    slots = $1, waits_for = $2, reason = $3, detail = $4, lane = $5, fired_at = NULL,
    decided = CASE WHEN schedule IS NULL THEN decided ELSE true END
WHERE number = $6

-- name: run_goes_later_many
UPDATE foliot.run r SET state = CASE WHEN r.spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(r.nominal, r.fire_at),
    fire_at = t.at, slots = t.slots, waits_for = t.slot, reason = t.reason, detail = t.detail, lane = t.lane, fired_at = NULL,
    decided = CASE WHEN r.schedule IS NULL THEN r.decided ELSE true END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::bigint[], $7::bigint[])
    AS t(slots, slot, reason, detail, lane, number, at)
WHERE r.number = t.number AND r.number = ANY($6::bigint[])

-- name: force_run
UPDATE foliot.run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at),
    fire_at = :now, waits_for = NULL, reason = NULL, detail = NULL, forced = true
WHERE number = :number AND (state = 2 OR (state < 2 AND waits_for IS NOT NULL))

-- name: force_new_run
UPDATE foliot.run SET forced = true WHERE number = :number

-- name: stoppable_runs
-- Of runs that are to make room for another, those that nobody has begun.
SELECT number, attempt > 0 FROM foliot.lock_pending(:numbers::bigint[]) WHERE phase IS NULL
UNION ALL
SELECT * FROM (
    SELECT number, attempt > 0 FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND state = 2 AND phase IS NULL
    FOR UPDATE SKIP LOCKED
) h

-- name: owners_of
SELECT r.number, coalesce(r.worker, c.worker) FROM foliot.run r
LEFT JOIN foliot.claim c ON NOT c.written AND r.number = ANY(c.numbers)
WHERE r.number = ANY(:numbers::bigint[]) AND r.phase IS NULL AND (r.state = 4 OR c.token IS NOT NULL)

-- name: tick_spans
UPDATE foliot.run SET since = $1 WHERE number = $2

-- name: waiting_runs
-- What a pause holds is not in line: it waits for the end of that.
SELECT schedule, number, name, nominal, since, origin, lane FROM foliot.run
WHERE waits_for = ANY(:slots::text[]) AND state = 2 AND nominal IS NOT NULL AND reason IS DISTINCT FROM 'paused'
ORDER BY lane, nominal, number

-- name: lock_slots_of
SELECT foliot.lock_slots_of(:numbers::bigint[])

-- name: slots_in_use
-- Names of slots and of what runs wait for have two collations: by that of slots, no index would serve.
SELECT name, used, (SELECT count(*) FROM foliot.run r WHERE r.waits_for = s.name COLLATE "default" AND r.state <= 2)
FROM foliot.slot s
WHERE used > 0 OR EXISTS (SELECT 1 FROM foliot.run r WHERE r.waits_for = s.name COLLATE "default" AND r.state <= 2)

-- name: slot_most
SELECT most FROM foliot.slot WHERE name = :name

-- name: tidy_slots
-- Keys that nobody has, or waits for.
DELETE FROM foliot.slot WHERE used <= 0 AND name LIKE 'key:%'
    AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.waits_for = slot.name COLLATE "default")

-- name: gates_now
-- For whoever fires: a limit that is changed meanwhile is changed after that, and finds who waits for it.
SELECT name, most, every, burst, weight, source, changed_at, note FROM foliot.gate ORDER BY name FOR SHARE

-- name: tick_decided
-- It could not be handed off, because somebody has his hands on a slot of its: it is tried again at once.
UPDATE foliot.run SET fired_at = NULL, decided = true, lane = $1 WHERE number = $2

-- name: lock_free_slots
SELECT name FROM foliot.slot WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE SKIP LOCKED
