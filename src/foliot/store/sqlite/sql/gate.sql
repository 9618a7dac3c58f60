-- name: all_gates
SELECT name, most, every, burst, weight, source, changed_at, note FROM gate ORDER BY name

-- name: put_gate
INSERT OR REPLACE INTO gate (name, most, every, burst, weight, source, changed_at, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: note_gate
UPDATE gate SET note = :note WHERE name = :name

-- name: known_jobs
SELECT DISTINCT j.value FROM instance i, json_each(i.jobs) j
WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > :since

-- name: drop_gate
DELETE FROM gate WHERE name = :name

-- name: put_slot
-- Locks it, and brings it to what is allowed.
INSERT INTO slot (name, most, every, slack) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET most = excluded.most, every = excluded.every, slack = excluded.slack

-- name: slots_needed
SELECT name, used, tat, most, every, slack FROM slot WHERE name IN (SELECT value FROM json_each(:names))

-- name: slots_below
SELECT name FROM slot WHERE name > :stem AND name < :stem_end ORDER BY name

-- name: slot_taken
UPDATE slot SET used = used + ?, tat = max(tat, ?) WHERE name = ?

-- name: drop_slot
-- Not while a run has it: the end of that run would free a unit of a later limit that it never took.
DELETE FROM slot WHERE name = :name AND used <= 0

-- name: restart_slot
UPDATE slot SET tat = min(tat, :now) WHERE name = :name

-- name: retime_waiting
-- Those that have their times by a rate which has changed are due, and get others.
UPDATE run SET fire_at = :now, waits_for = NULL,
    slots = (SELECT nullif(json_group_array(value), '[]') FROM json_each(slots) WHERE value <> :slot)
WHERE waits_for = :slot AND state < 2 RETURNING number

-- name: release_waiting
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at), fire_at = :now,
    waits_for = NULL, reason = NULL, detail = NULL
WHERE waits_for = :slot AND state <= 2 RETURNING number

-- name: run_goes
-- A probe is not turned back by the breaker that it is to test.
UPDATE run SET slots = ?, waits_for = NULL, reason = NULL, detail = NULL, gives_up_at = NULL, forced = coalesce(?, forced)
WHERE number = ?

-- name: run_goes_alike
-- A run that says all of this already is not written again.
UPDATE run SET slots = ?1, waits_for = NULL, reason = NULL, detail = NULL, gives_up_at = NULL, forced = coalesce(?2, forced)
WHERE number IN carray(?3) AND (slots IS NOT ?1 OR waits_for IS NOT NULL OR reason IS NOT NULL OR detail IS NOT NULL
    OR gives_up_at IS NOT NULL OR forced IS NOT coalesce(?2, forced))

-- name: run_goes_many
UPDATE run SET slots = v.slots, waits_for = NULL, reason = NULL, detail = NULL, gives_up_at = NULL, forced = coalesce(v.forced, run.forced)
FROM (SELECT value->>0 AS slots, value->>1 AS forced, value->>2 AS number FROM json_each(?1)) v
WHERE run.number = v.number

-- name: run_waits
UPDATE run SET state = 2, slots = ?, waits_for = ?, reason = ?, detail = ?, lane = ?, fired_at = NULL,
    decided = CASE WHEN schedule IS NULL THEN decided ELSE 1 END
WHERE number = ?

-- name: run_waits_alike
UPDATE run SET state = 2, slots = ?1, waits_for = ?2, reason = ?3, detail = ?4, lane = ?5, fired_at = NULL,
    decided = CASE WHEN schedule IS NULL THEN decided ELSE 1 END
WHERE number IN carray(?6)

-- name: run_goes_later
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at), fire_at = ?7,
    slots = ?1, waits_for = ?2, reason = ?3, detail = ?4, lane = ?5, fired_at = NULL,
    decided = CASE WHEN schedule IS NULL THEN decided ELSE 1 END
WHERE number = ?6

-- name: force_run
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at), fire_at = :now,
    waits_for = NULL, reason = NULL, detail = NULL, forced = 1
WHERE number = :number AND (state = 2 OR (state < 2 AND waits_for IS NOT NULL))

-- name: force_new_run
UPDATE run SET forced = 1 WHERE number = :number

-- name: stoppable_runs
-- Of runs that another one replaces, those that no worker has.
SELECT number, attempt > 0 FROM run WHERE number IN carray(:numbers) AND state <= 2 AND phase IS NULL

-- name: owners_of
SELECT number, worker FROM run WHERE number IN carray(:numbers) AND state = 4 AND phase IS NULL

-- name: tick_spans
UPDATE run SET since = ? WHERE number = ?

-- name: waiting_runs
-- What a pause holds is not in line: it waits for the end of that.
SELECT schedule, number, name, nominal, since, origin, lane FROM run
WHERE waits_for IN (SELECT value FROM json_each(:slots)) AND state = 2 AND nominal IS NOT NULL AND reason IS NOT 'paused'
ORDER BY lane, nominal, number

-- name: slots_in_use
SELECT name, used, (SELECT count(*) FROM run r WHERE r.waits_for = s.name AND r.state <= 2) FROM slot s
WHERE used > 0 OR EXISTS (SELECT 1 FROM run r WHERE r.waits_for = s.name AND r.state <= 2)

-- name: slot_most
SELECT most FROM slot WHERE name = :name

-- name: tidy_slots
-- Keys that no run has or waits for.
DELETE FROM slot WHERE used <= 0 AND name LIKE 'key:%'
    AND NOT EXISTS (SELECT 1 FROM run r WHERE r.waits_for = slot.name)

-- name: gates_now
-- A limit that is changed during a firing is changed after it, and finds the waiters.
SELECT name, most, every, burst, weight, source, changed_at, note FROM gate ORDER BY name

-- name: any_slot
SELECT EXISTS (SELECT 1 FROM slot)

-- name: collect
-- From now on, triggers collect the slots that runs give up in this transaction.
INSERT INTO collected (slots, count) VALUES ('', 0)

-- name: collected
SELECT slots, count FROM collected WHERE slots <> ''

-- name: forget_collected
DELETE FROM collected

-- name: slot_freed
UPDATE slot SET used = used - ? WHERE name = ?

-- name: any_waiting
SELECT EXISTS (SELECT 1 FROM run INDEXED BY run_held WHERE waits_for IS NOT NULL)

-- name: slots_with_room
-- Those of these slots that have room, and for which runs wait.
SELECT s.name, s.used, s.most, s.every, s.slack, s.tat FROM slot s
WHERE s.name IN (SELECT value FROM json_each(:names)) AND s.used < s.most
    AND EXISTS (SELECT 1 FROM run r INDEXED BY run_waiting WHERE r.waits_for = s.name AND r.state = 2)
ORDER BY s.name

-- name: next_waiting
-- In the order of the index, without sorting: the cost does not grow with the number of waiters.
SELECT number FROM run INDEXED BY run_waiting WHERE waits_for = :slot AND state = 2
ORDER BY lane, priority DESC, fire_at, number LIMIT :limit

-- name: let_waiting_in
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at), fire_at = :now,
    slots = json_insert(coalesce(slots, '[]'), '$[#]', :slot), waits_for = NULL, reason = NULL, detail = NULL
WHERE number IN carray(:numbers)

-- name: give_time
-- It keeps the reason why it waits.
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at), fire_at = ?1,
    slots = json_insert(coalesce(slots, '[]'), '$[#]', ?2)
WHERE number = ?3

-- name: tick_decided
-- It could not be handed off, because another transaction has locked a slot of it: it is tried again at once.
UPDATE run SET fired_at = NULL, decided = 1, lane = ? WHERE number = ?
