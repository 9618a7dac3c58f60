-- part: a_token
number, name, scope, tenant, made_at, made_by, expires_at, used_at, revoked_at, jobs, queues, all_tenants

-- name: add_token
-- Nothing, where the name is taken.
INSERT INTO token (name, hash, scope, tenant, made_at, made_by, expires_at, jobs, queues, all_tenants)
VALUES (:name, :hash, :scope, :tenant, :now, :actor, :expires_at, :jobs, :queues, :all_tenants) ON CONFLICT (name) DO NOTHING
RETURNING {a_token}

-- name: all_tokens
SELECT {a_token} FROM token ORDER BY name

-- name: token_by_hash
SELECT {a_token} FROM token WHERE hash = :hash

-- name: token_by_name
SELECT {a_token} FROM token WHERE name = :name

-- name: any_token
SELECT EXISTS (SELECT 1 FROM token)

-- name: revoke_token
UPDATE token SET revoked_at = :now WHERE name = :name AND revoked_at IS NULL

-- name: use_token
UPDATE token SET used_at = :now WHERE number = :number AND (used_at IS NULL OR used_at < :before)

-- name: lock_token
-- There is one writer at a time.
SELECT :number

-- name: add_session
INSERT INTO session (hash, token, until, began_at) VALUES (:hash, :token, :until, :now)

-- name: end_oldest_sessions
DELETE FROM session WHERE token = :token AND hash NOT IN (
    SELECT s.hash FROM session s WHERE s.token = :token ORDER BY s.began_at DESC, s.until DESC LIMIT :kept)

-- name: sweep_sessions
DELETE FROM session WHERE until < :now

-- name: end_session
DELETE FROM session WHERE hash = :hash

-- name: end_sessions_of
DELETE FROM session WHERE token IN (SELECT number FROM token WHERE name = :name)

-- name: token_of_session
SELECT {a_token} FROM token WHERE number = (SELECT token FROM session WHERE hash = :hash AND until > :now)

-- name: sweep_requests
-- A few at a time, by whoever comes next.
DELETE FROM request WHERE rowid IN (SELECT rowid FROM request WHERE made_at < :before ORDER BY made_at LIMIT 100)

-- name: begin_request
-- Nothing, where somebody was first.
INSERT INTO request (credential, key, digest, made_at) VALUES (:credential, :key, :digest, :now)
ON CONFLICT (credential, key) DO NOTHING

-- name: count_requests
SELECT count(*) FROM (SELECT 1 FROM request WHERE credential = :credential LIMIT :limit) r

-- name: request_row
SELECT digest, made_at, status, headers, body FROM request WHERE credential = :credential AND key = :key

-- name: end_request
UPDATE request SET status = :status, headers = :headers, body = :body
WHERE credential = :credential AND key = :key AND status IS NULL

-- name: drop_request
DELETE FROM request WHERE credential = :credential AND key = :key AND status IS NULL

-- name: add_guest
INSERT INTO guest (worker, credential, secret) VALUES (:worker, :credential, :secret)

-- name: sweep_guests
DELETE FROM guest WHERE worker NOT IN (SELECT number FROM instance)

-- name: guest_row
SELECT g.worker, g.credential, g.secret, i.queues, i.jobs, i.slots, i.labels FROM guest g
JOIN instance i ON i.number = g.worker WHERE g.worker = :worker AND i.ended_at IS NULL

-- name: due_unfired
-- Due for long, and perhaps handed off: that stands in chunks.
SELECT number, fire_at FROM run INDEXED BY run_due WHERE state <= 1 AND fire_at < :before ORDER BY fire_at, number
LIMIT :limit
