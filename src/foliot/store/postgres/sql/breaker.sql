-- name: lock_breaker
SELECT failures, opened_at, every, changed_at FROM foliot.breaker WHERE destination = :destination FOR UPDATE

-- name: add_breaker
INSERT INTO foliot.breaker (destination, failures, changed_at) VALUES (:destination, 0, :now) ON CONFLICT DO NOTHING

-- name: put_breaker
INSERT INTO foliot.breaker (destination, failures, opened_at, every, changed_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (destination) DO UPDATE SET failures = excluded.failures, opened_at = excluded.opened_at,
    every = excluded.every, changed_at = excluded.changed_at

-- name: drop_breaker
DELETE FROM foliot.breaker WHERE destination = :destination RETURNING opened_at

-- name: open_breakers
SELECT destination, failures, opened_at, every, changed_at FROM foliot.breaker WHERE opened_at IS NOT NULL

-- name: start_probes
UPDATE foliot.slot SET tat = :at, ahead = 0 WHERE name = :name

-- name: retime_probe
UPDATE foliot.run SET fire_at = :at WHERE waits_for = :slot AND state < 2 RETURNING number

-- name: release_spread
UPDATE foliot.run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at),
    fire_at = CASE WHEN state < 2 THEN :now::bigint ELSE :now + (number % :spread * 6180339) % :spread END, waits_for = NULL,
    reason = NULL, detail = NULL, gives_up_at = NULL,
    slots = (SELECT jsonb_agg(value)::text FROM jsonb_array_elements_text(slots::jsonb) WHERE value <> :slot)
WHERE waits_for = :slot AND state <= 2 RETURNING number

-- name: set_give_up
UPDATE foliot.run SET gives_up_at = $1 WHERE number = $2

-- name: hopeless_runs
SELECT number, schedule, waits_for FROM foliot.run
WHERE gives_up_at < :now AND state <= 2 AND waits_for LIKE 'rate:breaker:%' LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: any_hopeless
SELECT EXISTS (SELECT 1 FROM foliot.run WHERE gives_up_at < :now AND state <= 2 AND waits_for LIKE 'rate:breaker:%')

-- name: forget_slot
DELETE FROM foliot.slot WHERE name = :name
