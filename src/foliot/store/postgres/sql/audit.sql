-- name: audit_rows
SELECT a.n, a.at, a.actor, a.action, a.subject, a.note, a.signature, s.position, s.hash
FROM foliot.audit a LEFT JOIN foliot.seal s ON s.audit = a.n
WHERE a.n < :before AND (:actor::text IS NULL OR a.actor = :actor) AND (:action::text IS NULL OR a.action = :action)
    AND (:since::bigint IS NULL OR a.at >= :since) AND (:until::bigint IS NULL OR a.at < :until)
    AND (:text::text IS NULL OR position(lower(:text::text) in lower(concat_ws(E'\n', a.subject, a.note, a.actor))) > 0)
ORDER BY a.n DESC LIMIT :limit

-- name: audit_rows_of
-- By the index of subjects.
SELECT a.n, a.at, a.actor, a.action, a.subject, a.note, a.signature, s.position, s.hash
FROM foliot.audit a LEFT JOIN foliot.seal s ON s.audit = a.n
WHERE a.subject = :subject AND a.n < :before AND (:actor::text IS NULL OR a.actor = :actor)
    AND (:action::text IS NULL OR a.action = :action)
    AND (:since::bigint IS NULL OR a.at >= :since) AND (:until::bigint IS NULL OR a.at < :until)
    AND (:text::text IS NULL OR position(lower(:text::text) in lower(concat_ws(E'\n', a.subject, a.note, a.actor))) > 0)
ORDER BY a.n DESC LIMIT :limit

-- name: lock_seals
-- Whoever comes second sees all that the first one has sealed.
SELECT pg_advisory_xact_lock(x'466F6C69'::integer, 3)

-- name: any_unsealed
SELECT EXISTS (SELECT 1 FROM foliot.unsealed)

-- name: last_seal
SELECT position, hash FROM foliot.seal ORDER BY position DESC LIMIT 1

-- name: rows_to_seal
-- One row of the log for each row without a seal, in their order, until the limit. PostgreSQL would turn a join without
-- OFFSET into one that reads the whole log for each batch.
SELECT a.n, a.at, a.actor, a.action, a.subject, a.note, a.signature FROM foliot.unsealed u
CROSS JOIN LATERAL (SELECT * FROM foliot.audit WHERE n = u.audit OFFSET 0) a
ORDER BY u.audit LIMIT :limit

-- name: add_seal
INSERT INTO foliot.seal (position, audit, hash) VALUES ($1, $2, $3)

-- name: add_seal_many
INSERT INTO foliot.seal (position, audit, hash) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])

-- name: no_longer_unsealed
DELETE FROM foliot.unsealed WHERE audit = ANY(:numbers::bigint[])

-- name: seals_after
SELECT s.audit, s.position, s.hash, a.at, a.actor, a.action, a.subject, a.note, a.signature
FROM foliot.seal s LEFT JOIN foliot.audit a ON a.n = s.audit
WHERE s.position > :position ORDER BY s.position LIMIT :limit

-- name: unsealed_now
SELECT count(*), min(a.at) FROM foliot.unsealed u LEFT JOIN foliot.audit a ON a.n = u.audit

-- name: audit_page
-- The last number of the next rows.
SELECT max(n) FROM (SELECT n FROM foliot.audit WHERE n > :after ORDER BY n LIMIT :limit) p

-- name: oddly_sealed
SELECT o.n, o.seals, o.at FROM (
    SELECT a.n, a.at, (SELECT count(*) FROM foliot.seal s WHERE s.audit = a.n) AS seals FROM foliot.audit a
    WHERE a.n > :after AND a.n <= :last
) o
WHERE o.seals <> 1 AND (o.seals > 1 OR o.n NOT IN (SELECT u.audit FROM foliot.unsealed u))
ORDER BY o.n

-- name: gone_unsealed
SELECT u.audit FROM foliot.unsealed u WHERE NOT EXISTS (SELECT 1 FROM foliot.audit a WHERE a.n = u.audit)

-- name: any_signed_seal
-- Whether a row that is sealed has a signature.
SELECT EXISTS (SELECT 1 FROM foliot.audit a JOIN foliot.seal s ON s.audit = a.n WHERE a.signature IS NOT NULL)
