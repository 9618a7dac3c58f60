-- name: lock_breaker
SELECT failures, opened_at, every, changed_at FROM breaker WHERE destination = :destination

-- name: add_breaker
INSERT OR IGNORE INTO breaker (destination, failures, changed_at) VALUES (:destination, 0, :now)

-- name: put_breaker
INSERT OR REPLACE INTO breaker (destination, failures, opened_at, every, changed_at) VALUES (?, ?, ?, ?, ?)

-- name: drop_breaker
DELETE FROM breaker WHERE destination = :destination RETURNING opened_at

-- name: open_breakers
SELECT destination, failures, opened_at, every, changed_at FROM breaker WHERE opened_at IS NOT NULL

-- name: start_probes
UPDATE slot SET tat = :at WHERE name = :name

-- name: retime_probe
UPDATE run SET fire_at = :at WHERE waits_for = :slot AND state < 2 RETURNING number

-- name: release_spread
UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at),
    fire_at = CASE WHEN state < 2 THEN :now ELSE :now + (number % :spread * 6180339) % :spread END, waits_for = NULL, reason = NULL,
    detail = NULL, gives_up_at = NULL,
    slots = (SELECT nullif(json_group_array(value), '[]') FROM json_each(coalesce(slots, '[]')) WHERE value <> :slot)
WHERE waits_for = :slot AND state <= 2 RETURNING number

-- name: set_give_up
UPDATE run SET gives_up_at = ? WHERE number = ?

-- name: hopeless_runs
SELECT number, schedule, waits_for FROM run
WHERE gives_up_at < :now AND state <= 2 AND waits_for LIKE 'rate:breaker:%' LIMIT :limit

-- name: any_hopeless
SELECT EXISTS (SELECT 1 FROM run WHERE gives_up_at < :now AND state <= 2 AND waits_for LIKE 'rate:breaker:%')

-- name: forget_slot
DELETE FROM slot WHERE name = :name
