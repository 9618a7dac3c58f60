-- name: dead_runs
-- `state >= 20` is what the partial index of parked runs wants to hear.
SELECT * FROM live_runs WHERE number IN (
    SELECT r.number FROM run r
    WHERE r.state >= 20 AND r.state = 21 AND r.number > :after AND (:job IS NULL OR r.job = :job)
        AND (:schedule IS NULL OR coalesce(r.schedule, '-') = :schedule)
        AND (:tenant IS NULL OR coalesce(r.tenant, '-') = :tenant)
        AND (:why IS NULL OR r.reason = :why) AND (:since IS NULL OR coalesce(r.nominal, r.fire_at) >= :since)
        AND (:until IS NULL OR coalesce(r.nominal, r.fire_at) < :until)
    ORDER BY r.number LIMIT :limit)
ORDER BY number

-- name: dead_known
-- Whether a handler may have begun (a vanished worker did not always live to say so), and until when each is useful.
SELECT r.number, EXISTS (SELECT 1 FROM attempt a
        WHERE a.run = r.number AND (a.started_at IS NOT NULL OR a.outcome = 'lost')), r.useful_until
FROM run r WHERE r.number IN carray(:numbers)

-- name: dead_among
SELECT number, name, useful_until, coalesce(lineage, number) FROM run WHERE number IN carray(:numbers) AND state = 21

-- name: busy_kin
-- Of these runs, those of whose lineage another one waits or is at work.
SELECT r.number, o.number, o.name FROM run r JOIN run o ON o.number = coalesce(r.lineage, r.number)
WHERE r.number IN carray(:numbers) AND o.number <> r.number AND o.state < 20
UNION ALL
SELECT r.number, o.number, o.name FROM run r JOIN run o ON o.lineage = coalesce(r.lineage, r.number)
WHERE r.number IN carray(:numbers) AND o.number <> r.number AND o.state < 20

-- name: replay_run
-- A dead run is due again, with its attempts renewed, behind all that is live. Its useful time stays as it is. A tick that
-- was tried has been decided upon, and is in the way of those behind it.
UPDATE run SET state = 0, lane = 2, nominal = coalesce(nominal, fire_at), fire_at = ?1, spent = 0, token = NULL,
    worker = NULL, fired_at = NULL, claimed_at = NULL, started_at = NULL, reason = NULL, detail = NULL,
    deaths = CASE WHEN reason = 'poison' THEN 0 END, result = NULL,
    decided = CASE WHEN schedule IS NULL OR attempt = 0 THEN decided ELSE 1 END
WHERE number = ?2 AND state = 21
