-- name: known_releases
-- Under its own name, or under another one with the same hash; or in an older format, with all that it declares.
SELECT release, coalesce(age, n), hash, format, declares FROM declared
WHERE release = :release OR (hash = :hash AND format = :format) OR (format < :format AND declares <> '{}') ORDER BY n

-- name: declared_by
SELECT declares FROM declared WHERE release = :release

-- name: add_release
INSERT INTO declared (release, first_at, declares, hash, format, age) VALUES (:release, :now, :declares, :hash, :format, :age)

-- name: put_release
-- The same release in the present format.
UPDATE declared SET hash = :hash, format = :format WHERE release = :release

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
WHERE i.ended_at IS NULL AND i.beat_at >= :since AND coalesce(d.age, d.n) > :after ORDER BY i.number
