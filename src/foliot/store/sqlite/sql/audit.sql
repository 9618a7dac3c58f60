-- name: audit_rows
SELECT a.n, a.at, a.actor, a.action, a.subject, a.note, a.signature, s.position, s.hash FROM audit a LEFT JOIN seal s ON s.audit = a.n
WHERE a.n < :before AND (:actor IS NULL OR a.actor = :actor) AND (:action IS NULL OR a.action = :action)
    AND (:since IS NULL OR a.at >= :since) AND (:until IS NULL OR a.at < :until)
    AND (:text IS NULL OR instr(foliot_lower(a.subject || char(10) || a.note || char(10) || a.actor), foliot_lower(:text)) > 0)
ORDER BY a.n DESC LIMIT :limit

-- name: audit_rows_of
-- By the index of subjects.
SELECT a.n, a.at, a.actor, a.action, a.subject, a.note, a.signature, s.position, s.hash FROM audit a LEFT JOIN seal s ON s.audit = a.n
WHERE a.subject = :subject AND a.n < :before AND (:actor IS NULL OR a.actor = :actor)
    AND (:action IS NULL OR a.action = :action) AND (:since IS NULL OR a.at >= :since) AND (:until IS NULL OR a.at < :until)
    AND (:text IS NULL OR instr(foliot_lower(a.subject || char(10) || a.note || char(10) || a.actor), foliot_lower(:text)) > 0)
ORDER BY a.n DESC LIMIT :limit

-- name: lock_seals
-- There is one writer at a time.
SELECT 1

-- name: any_unsealed
SELECT EXISTS (SELECT 1 FROM unsealed)

-- name: last_seal
SELECT position, hash FROM seal ORDER BY position DESC LIMIT 1

-- name: rows_to_seal
SELECT a.n, a.at, a.actor, a.action, a.subject, a.note, a.signature FROM unsealed u JOIN audit a ON a.n = u.audit
ORDER BY u.audit LIMIT :limit

-- name: add_seal
INSERT INTO seal (position, audit, hash) VALUES (?, ?, ?)

-- name: no_longer_unsealed
DELETE FROM unsealed WHERE audit IN carray(:numbers)

-- name: seals_after
SELECT s.audit, s.position, s.hash, a.at, a.actor, a.action, a.subject, a.note, a.signature FROM seal s LEFT JOIN audit a ON a.n = s.audit
WHERE s.position > :position ORDER BY s.position LIMIT :limit

-- name: unsealed_now
SELECT count(*), min(a.at) FROM unsealed u LEFT JOIN audit a ON a.n = u.audit

-- name: audit_page
-- The last number of the next rows.
SELECT max(n) FROM (SELECT n FROM audit WHERE n > :after ORDER BY n LIMIT :limit)

-- name: oddly_sealed
SELECT a.n, (SELECT count(*) FROM seal s WHERE s.audit = a.n) AS seals, a.at FROM audit a
WHERE a.n > :after AND a.n <= :last AND seals <> 1 AND (seals > 1 OR a.n NOT IN (SELECT audit FROM unsealed))
ORDER BY a.n

-- name: gone_unsealed
SELECT audit FROM unsealed WHERE audit NOT IN (SELECT n FROM audit)

-- name: any_signed_seal
-- Whether a row that is sealed has a signature.
SELECT EXISTS (SELECT 1 FROM audit a JOIN seal s ON s.audit = a.n WHERE a.signature IS NOT NULL)
