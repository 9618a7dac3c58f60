-- name: insert_promise
INSERT INTO run (number, name, state, origin, priority, job, payload, fire_at, useful_until, tenant, queue, options)
VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: generations
-- The generations of a keyed promise, live and ended. The range ends after '#': '$' is the next character.
-- The newest one of each, by length and then by text: the order of numbers written without leading zeros.
SELECT * FROM (SELECT number, name, CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END, fire_at, 1 FROM run WHERE name >= :stem AND name < :stem_end
    AND substr(name, length(:stem) + 1) NOT GLOB '*[^0-9]*' ORDER BY length(name) DESC, name DESC LIMIT 1)
UNION ALL
SELECT * FROM (SELECT number, name, state, fire_at, 0 FROM history WHERE name >= :stem AND name < :stem_end
    AND substr(name, length(:stem) + 1) NOT GLOB '*[^0-9]*' ORDER BY length(name) DESC, name DESC LIMIT 1)

-- name: promised
SELECT number, job, payload, coalesce(nominal, fire_at) FROM run WHERE number IN carray(:numbers)
UNION ALL SELECT number, job, payload, coalesce(nominal, fire_at) FROM history WHERE number IN carray(:numbers)

-- name: replace_promise
-- Only while no attempt owns it. A chunk that names an older version of it claims nothing.
UPDATE run SET job = :job, payload = :payload, fire_at = :fire_at, nominal = NULL, useful_until = :useful_until,
    priority = :priority, queue = :queue, options = :options, fired_at = NULL, state = 0, reason = NULL, detail = NULL,
    waits_for = NULL, slots = NULL, forced = NULL, gives_up_at = NULL, spent = 0, progress = NULL, checkpoint = NULL,
    version = coalesce(version, 0) + 1
WHERE number = :number AND state IN (0, 2)
    AND NOT EXISTS (SELECT 1 FROM effect WHERE lineage = :number) AND NOT EXISTS (SELECT 1 FROM item WHERE lineage = :number)

-- name: move_promise
UPDATE run SET fire_at = :fire_at, nominal = NULL, fired_at = NULL, state = 0, reason = NULL, detail = NULL, waits_for = NULL, slots = NULL, forced = NULL, gives_up_at = NULL,
    useful_until = useful_until + (:fire_at - coalesce(nominal, fire_at)), version = coalesce(version, 0) + 1
WHERE number = :number AND state IN (0, 2)

-- name: find_live
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5 WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    fire_at, worker, schedule
FROM run
WHERE number = :number OR name = :name

-- name: lock_live
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5 WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    fire_at, worker, schedule
FROM run
WHERE number = :number OR name = :name

-- name: begun_of
SELECT attempt, withdrawn FROM run WHERE number = :number

-- name: withdraw_tick
-- The one next run of a calendar rule carries the schedule on, so it stays until it is due, and is skipped then. One that is
-- held was due: whoever fires looks at it again, and skips it now.
UPDATE run SET withdrawn = :note, state = 0, fire_at = CASE WHEN waits_for IS NULL THEN fire_at ELSE min(fire_at, :now) END,
    reason = NULL, detail = NULL, waits_for = NULL
WHERE number = :number AND state IN (0, 2) AND origin = 0 AND attempt = 0 AND fired_at IS NULL AND decided IS NOT 1
    AND EXISTS (SELECT 1 FROM schedule s WHERE s.id = run.schedule AND s.delay IS NULL)

-- name: find_ended
SELECT number, name, state, fire_at FROM history WHERE number = :number OR name = :name

-- name: ask_to_stop
INSERT INTO cancellation (number, worker, reason, note) VALUES (:number, :worker, :reason, :note)
ON CONFLICT (number) DO UPDATE SET worker = excluded.worker, reason = excluded.reason, note = excluded.note

-- name: force_stop
-- A cancellation that was forced stays forced.
UPDATE cancellation SET forced_at = coalesce(forced_at, :now) WHERE number = :number

-- name: revive_run
-- A parked run is due again now, with its attempts renewed.
UPDATE run SET state = :due, nominal = coalesce(nominal, fire_at), fire_at = :now, useful_until = NULL, spent = 0,
    token = NULL, worker = NULL, fired_at = NULL, claimed_at = NULL, started_at = NULL, reason = NULL, detail = NULL,
    deaths = CASE WHEN reason = 'poison' OR (reason = 'settled' AND deaths IS NOT NULL) THEN 0 END, result = NULL
WHERE number = :number AND state = :state

-- name: settle_run
-- Its effects are settled, and work is left. Stored as ambiguous with a reason of its own: see `read_state`.
UPDATE run SET state = 22, reason = 'settled', detail = :detail WHERE number = :number AND state = :state
