-- name: declared_by
SELECT n, declares FROM foliot.declared WHERE release = :release

-- name: add_release
INSERT INTO foliot.declared (release, first_at, declares) VALUES (:release, :now, :declares)

-- name: declares
UPDATE foliot.declared SET declares = :declares WHERE release = :release

-- name: forget_declarations
-- Of releases that nobody has run for long. Their place in the order stays: they are old for ever.
UPDATE foliot.declared SET declares = '{}' WHERE release <> :release AND declares <> '{}'
    AND release NOT IN (SELECT release FROM foliot.instance)

-- name: running_releases
-- Who runs a release that was first applied after this place in the order.
SELECT d.release, i.number, i.role, i.host, i.pid, i.birth FROM foliot.instance i
JOIN foliot.declared d ON d.release = i.release
WHERE i.ended_at IS NULL AND i.beat_at >= :since AND d.n > :after ORDER BY i.number
