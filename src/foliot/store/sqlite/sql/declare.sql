-- name: declared_by
SELECT n, declares FROM declared WHERE release = :release

-- name: add_release
INSERT INTO declared (release, first_at, declares) VALUES (:release, :now, :declares)

-- name: declares
UPDATE declared SET declares = :declares WHERE release = :release

-- name: forget_declarations
-- Of releases that nobody has run for long. Their place in the order stays: they are old for ever.
UPDATE declared SET declares = '{}' WHERE release <> :release AND declares <> '{}'
    AND release NOT IN (SELECT release FROM instance)

-- name: running_releases
-- Who runs a release that was first applied after this place in the order.
SELECT d.release, i.number, i.role, i.host, i.pid, i.birth FROM instance i
JOIN declared d ON d.release = i.release
WHERE i.ended_at IS NULL AND i.beat_at >= :since AND d.n > :after ORDER BY i.number
