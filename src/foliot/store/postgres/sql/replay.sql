-- name: dead_runs
-- `state >= 20` is what the partial index of parked runs wants to hear.
SELECT * FROM foliot.live_runs WHERE number = ANY(ARRAY(
    SELECT r.number FROM foliot.run r
    WHERE r.state >= 20 AND r.state = 21 AND r.number > :after AND (:job::text IS NULL OR r.job = :job)
        AND (:schedule::text IS NULL OR coalesce(r.schedule, '-') = :schedule)
        AND (:tenant::text IS NULL OR coalesce(r.tenant, '-') = :tenant)
        AND (:why::text IS NULL OR r.reason = :why) AND (:since::bigint IS NULL OR coalesce(r.nominal, r.fire_at) >= :since)
        AND (:until::bigint IS NULL OR coalesce(r.nominal, r.fire_at) < :until)
    ORDER BY r.number LIMIT :limit))
ORDER BY number

-- name: dead_known
-- Whether a handler may have begun (a vanished worker did not always live to say so), and until when each is useful.
SELECT r.number, EXISTS (SELECT 1 FROM foliot.attempt a
        WHERE a.run = r.number AND (a.started_at IS NOT NULL OR a.outcome = 'lost')), r.useful_until
FROM foliot.run r WHERE r.number = ANY(:numbers::bigint[])

-- name: dead_among
SELECT number, name, useful_until, coalesce(lineage, number) FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state = 21 ORDER BY number FOR UPDATE

-- name: busy_kin
-- Of these runs, those of whose lineage another one waits or is at work.
SELECT r.number, o.number, o.name FROM foliot.run r JOIN foliot.run o ON o.number = coalesce(r.lineage, r.number)
WHERE r.number = ANY(:numbers::bigint[]) AND o.number <> r.number AND o.state < 20
UNION ALL
SELECT r.number, o.number, o.name FROM foliot.run r JOIN foliot.run o ON o.lineage = coalesce(r.lineage, r.number)
WHERE r.number = ANY(:numbers::bigint[]) AND o.number <> r.number AND o.state < 20

-- name: replay_run
-- A dead run is due again, with its attempts renewed, behind all that is live. Its useful time stays as it is. A tick that
-- was tried has been decided upon, and is in the way of those behind it.
UPDATE foliot.run SET state = 0, lane = 2, nominal = coalesce(nominal, fire_at), fire_at = $1, spent = 0, token = NULL,
    worker = NULL, fired_at = NULL, claimed_at = NULL, started_at = NULL, reason = NULL, detail = NULL,
    deaths = CASE WHEN reason = 'poison' THEN 0 END, result = NULL,
    decided = CASE WHEN schedule IS NULL OR attempt = 0 THEN decided ELSE true END
WHERE number = $2 AND state = 21
