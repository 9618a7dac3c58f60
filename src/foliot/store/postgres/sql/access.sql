-- part: a_token
number, name, scope, tenant, made_at, made_by, expires_at, used_at, revoked_at, jobs, queues, all_tenants

-- name: add_token
-- Nothing, where the name is taken.
INSERT INTO foliot.token (name, hash, scope, tenant, made_at, made_by, expires_at, jobs, queues, all_tenants)
VALUES (:name, :hash, :scope, :tenant, :now, :actor, :expires_at, :jobs, :queues, :all_tenants) ON CONFLICT (name) DO NOTHING
RETURNING {a_token}

-- name: all_tokens
SELECT {a_token} FROM foliot.token ORDER BY name

-- name: token_by_hash
SELECT {a_token} FROM foliot.token WHERE hash = :hash

-- name: token_by_name
SELECT {a_token} FROM foliot.token WHERE name = :name

-- name: any_token
SELECT EXISTS (SELECT 1 FROM foliot.token)

-- name: revoke_token
UPDATE foliot.token SET revoked_at = :now WHERE name = :name AND revoked_at IS NULL

-- name: use_token
UPDATE foliot.token SET used_at = :now WHERE number = :number AND (used_at IS NULL OR used_at < :before)

-- name: lock_token
-- Two logins at once count one after the other.
SELECT 1 FROM foliot.token WHERE number = :number FOR NO KEY UPDATE

-- name: add_session
INSERT INTO foliot.session (hash, token, until, began_at) VALUES (:hash, :token, :until, :now)

-- name: end_oldest_sessions
DELETE FROM foliot.session WHERE token = :token AND hash NOT IN (
    SELECT s.hash FROM foliot.session s WHERE s.token = :token ORDER BY s.began_at DESC, s.until DESC LIMIT :kept)

-- name: sweep_sessions
DELETE FROM foliot.session WHERE until < :now

-- name: end_session
DELETE FROM foliot.session WHERE hash = :hash

-- name: end_sessions_of
DELETE FROM foliot.session WHERE token IN (SELECT number FROM foliot.token WHERE name = :name)

-- name: token_of_session
SELECT {a_token} FROM foliot.token WHERE number = (SELECT token FROM foliot.session WHERE hash = :hash AND until > :now)

-- name: sweep_requests
-- A few at a time, by whoever comes next.
DELETE FROM foliot.request WHERE (credential, key) IN (
    SELECT credential, key FROM foliot.request WHERE made_at < :before ORDER BY made_at LIMIT 100)

-- name: begin_request
-- Nothing, where somebody was first.
INSERT INTO foliot.request (credential, key, digest, made_at) VALUES (:credential, :key, :digest, :now)
ON CONFLICT (credential, key) DO NOTHING

-- name: count_requests
SELECT count(*) FROM (SELECT 1 FROM foliot.request WHERE credential = :credential LIMIT :limit) r

-- name: request_row
SELECT digest, made_at, status, headers, body FROM foliot.request WHERE credential = :credential AND key = :key

-- name: end_request
UPDATE foliot.request SET status = :status, headers = :headers, body = :body
WHERE credential = :credential AND key = :key AND status IS NULL

-- name: drop_request
DELETE FROM foliot.request WHERE credential = :credential AND key = :key AND status IS NULL

-- name: add_guest
INSERT INTO foliot.guest (worker, credential, secret) VALUES (:worker, :credential, :secret)

-- name: sweep_guests
DELETE FROM foliot.guest WHERE worker NOT IN (SELECT number FROM foliot.instance)

-- name: guest_row
SELECT g.worker, g.credential, g.secret, i.queues, i.jobs, i.slots, i.labels FROM foliot.guest g
JOIN foliot.instance i ON i.number = g.worker WHERE g.worker = :worker AND i.ended_at IS NULL

-- name: due_unfired
-- Due for long, and perhaps handed off: that stands in chunks. The index is by shard.
SELECT d.number, d.fire_at FROM foliot.setting t CROSS JOIN generate_series(0, t.shards - 1) s(shard) CROSS JOIN LATERAL (
    SELECT r.number, r.fire_at FROM foliot.run r WHERE r.shard = s.shard AND r.state <= 1 AND r.fire_at < :before
    ORDER BY r.fire_at, r.number LIMIT :limit
) d
ORDER BY d.fire_at, d.number LIMIT :limit
