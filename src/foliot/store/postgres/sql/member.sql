-- name: members_after
SELECT key, added_at, source FROM foliot.member WHERE member_set = :member_set AND key > :after ORDER BY key LIMIT :limit

-- name: member_sets
SELECT member_set, sum(members)::bigint, coalesce(jsonb_agg(schedule ORDER BY schedule) FILTER (WHERE schedule IS NOT NULL), '[]')::text
FROM (
    SELECT member_set, count(*) AS members, NULL::text AS schedule FROM foliot.member GROUP BY member_set
    UNION ALL SELECT member_set, 0, id FROM foliot.schedule WHERE member_set IS NOT NULL) f
GROUP BY member_set ORDER BY member_set

-- name: put_member
INSERT INTO foliot.member (member_set, key, added_at, source) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING

-- name: put_member_many
INSERT INTO foliot.member (member_set, key, added_at, source)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) ON CONFLICT DO NOTHING

-- name: drop_members
DELETE FROM foliot.member WHERE member_set = :member_set AND key = ANY(:keys::text[])

-- name: known_members
SELECT key FROM foliot.member WHERE member_set = :member_set AND key = ANY(:keys::text[])

-- name: all_members
SELECT key, source FROM foliot.member WHERE member_set = :member_set ORDER BY key

-- name: series_of_members
-- What members have to do with the schedules that go over their set.
SELECT e.id FROM foliot.series e JOIN foliot.schedule s ON s.id = e.schedule
WHERE s.member_set = :member_set AND e.member = ANY(:keys::text[]) ORDER BY e.id

-- name: waiting_of_series
SELECT number FROM foliot.run WHERE schedule = ANY(:series::text[]) AND state <= 2 AND phase IS NULL

-- name: put_series
INSERT INTO foliot.series (id, schedule, member) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: put_series_many
INSERT INTO foliot.series (id, schedule, member) SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING

-- name: lock_series
-- As schedules are locked, and after them.
SELECT 1 FROM foliot.series WHERE id = ANY(:ids::text[]) ORDER BY id FOR UPDATE

-- name: lock_free_series
SELECT id FROM foliot.series WHERE id = ANY(:ids::text[]) ORDER BY id FOR UPDATE SKIP LOCKED

-- name: existing_series
SELECT id FROM foliot.series WHERE id = ANY(:ids::text[])

-- name: spreading_tick
SELECT checkpoint, tenant IS NOT NULL FROM foliot.run WHERE number = :number

-- name: insert_member_run
-- As its tick is, but for its name, and whose it is. Its tick was decided upon.
WITH named AS (INSERT INTO foliot.named (name, number) VALUES ($2, $1))
INSERT INTO foliot.run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, decided, forced, shard)
SELECT $1, $2, 0, origin, $5, priority, job, payload, $6, coalesce(nominal, fire_at), since, useful_until,
    $3, revision, coalesce(tenant, $4), queue, options, true, forced, $1 % (SELECT shards FROM foliot.setting)
FROM foliot.run WHERE number = $7

-- name: insert_member_run_many
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::bigint[], $7::bigint[])
        AS w(number, name, series, tenant, lane, fire_at, tick)
), named AS (
    INSERT INTO foliot.named (name, number) SELECT name, number FROM wanted
)
INSERT INTO foliot.run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, decided, forced, shard)
SELECT w.number, w.name, 0, t.origin, w.lane, t.priority, t.job, t.payload, w.fire_at, coalesce(t.nominal, t.fire_at),
    t.since, t.useful_until, w.series, t.revision, coalesce(t.tenant, w.tenant), t.queue, t.options, true,
    t.forced, w.number % (SELECT shards FROM foliot.setting)
FROM wanted w JOIN foliot.run t ON t.number = w.tick

-- name: tick_spreads
-- Not all are made yet.
UPDATE foliot.run SET checkpoint = $1, lane = $2, decided = true, waits_for = NULL, reason = NULL, detail = NULL WHERE number = $3

-- name: tick_is_spread
UPDATE foliot.run SET state = 5, checkpoint = $1, lane = $2, fired_at = $3, decided = true, waits_for = NULL, reason = NULL,
    detail = NULL
WHERE number = $4

-- name: gathering_ticks
-- Ticks that wait for their members; many members, and few such ticks.
SELECT r.number, r.name, r.schedule, s.policy FROM foliot.run r LEFT JOIN foliot.schedule s ON s.id = r.schedule
WHERE r.member_set IS NOT NULL AND r.state = 5 ORDER BY r.number

-- name: is_any_under_way
-- A promise may have a key that begins as a tick is named: it is nobody's member.
SELECT EXISTS (SELECT 1 FROM foliot.named n JOIN foliot.run r ON r.number = n.number
    WHERE n.name > :first AND n.name < :last AND r.state < 20 AND r.schedule LIKE '%]')

-- name: remember_recounts
-- An operator changes these runs: ticks of those that are members' are to be counted again. The update locks a row that exists
-- already: a recount under way does not delete it.
INSERT INTO foliot.recount (number, tick) SELECT r.number, split_part(r.name, '[', 1) FROM foliot.run r
WHERE r.number = ANY(:numbers::bigint[]) AND r.schedule LIKE '%]' ORDER BY r.number
ON CONFLICT (number) DO UPDATE SET tick = excluded.tick

-- name: recounts_at_rest
-- Ticks to be counted again, of which no changed run is under way.
SELECT c.tick FROM foliot.recount c
GROUP BY c.tick HAVING sum((SELECT count(*) FROM foliot.run r WHERE r.number = c.number AND r.state < 20)) = 0

-- name: lock_recounts
SELECT number FROM foliot.recount WHERE tick = :tick ORDER BY number FOR UPDATE

-- name: recount_tick
-- Only a tick that is over has such a row.
UPDATE foliot.history SET detail = :detail, reason = :reason::text
WHERE number = ANY(ARRAY(SELECT n.number FROM foliot.named n WHERE n.name = :tick))
    AND member_set IS NOT NULL AND state IN (10, 11)

-- name: incomplete_tick
-- A tick that is parked because too few of its members were done.
SELECT r.number, s.policy FROM foliot.run r LEFT JOIN foliot.schedule s ON s.id = r.schedule
WHERE r.number = ANY(ARRAY(SELECT n.number FROM foliot.named n WHERE n.name = :tick))
    AND r.member_set IS NOT NULL AND r.state = 20 AND r.reason = 'incomplete'

-- name: recount_incomplete
UPDATE foliot.run SET detail = :detail WHERE number = :number AND state = 20 AND reason = 'incomplete'

-- name: drop_recounts
DELETE FROM foliot.recount WHERE number = ANY(:numbers::bigint[])

-- name: states_of_members
-- Of each member the newest: what repeats a run answers for it. Who left the set is nobody's concern any more. Runs are found
-- by their numbers, whatever the planner believes of how many there are.
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT ON (split_part(n.name, ']', 1)) n.number FROM foliot.named n WHERE n.name > :first AND n.name < :last
    ORDER BY split_part(n.name, ']', 1), n.number DESC
)
SELECT CASE WHEN r.state < 2 AND r.number IN (SELECT u.number FROM foliot.unwritten u) THEN 4
        WHEN r.phase IS NOT NULL AND r.state IN (0, 1, 4) THEN 5 WHEN r.state < 2 AND r.waits_for IS NOT NULL THEN 2
        WHEN r.state = 22 AND r.reason = 'settled' THEN 23 ELSE r.state END, count(*)
FROM foliot.run r WHERE r.number = ANY(ARRAY(SELECT number FROM wanted)) AND r.schedule LIKE '%]' GROUP BY 1
UNION ALL
SELECT h.state, count(*) FROM foliot.history h
WHERE h.number = ANY(ARRAY(SELECT number FROM wanted)) AND h.schedule LIKE '%]'
    AND (h.state <> 14 OR h.reason IS DISTINCT FROM 'revised') GROUP BY 1

-- name: ready_members
-- Of these runs, members' runs of a tick that are due.
SELECT name, state FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND phase IS NULL AND fire_at <= :now AND name > :first AND name < :last
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)

-- name: lacking_members
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT ON (split_part(n.name, ']', 1)) n.number FROM foliot.named n WHERE n.name > :first AND n.name < :last
    ORDER BY split_part(n.name, ']', 1), n.number DESC
)
SELECT name, state, reason, detail FROM (
    SELECT r.name, CASE WHEN r.state < 2 AND r.number IN (SELECT u.number FROM foliot.unwritten u) THEN 4
            WHEN r.phase IS NOT NULL AND r.state IN (0, 1, 4) THEN 5 WHEN r.state < 2 AND r.waits_for IS NOT NULL THEN 2
            ELSE r.state END AS state, r.reason, r.detail
    FROM foliot.run r WHERE r.number = ANY(ARRAY(SELECT number FROM wanted)) AND r.schedule LIKE '%]'
    UNION ALL
    SELECT h.name, h.state, h.reason, h.detail FROM foliot.history h
    WHERE h.number = ANY(ARRAY(SELECT number FROM wanted)) AND h.schedule LIKE '%]' AND h.state NOT IN (10, 11, 12)
        AND (h.state <> 14 OR h.reason IS DISTINCT FROM 'revised')) f
ORDER BY state DESC, name COLLATE "C" LIMIT :limit

-- name: live_members
SELECT r.number, r.schedule FROM foliot.named n JOIN foliot.run r ON r.number = n.number
WHERE n.name > :first AND n.name < :last AND r.state < 20 AND r.schedule LIKE '%]'

-- name: share_member_set
-- False while somebody changes it: whoever fires waits for nobody.
SELECT pg_try_advisory_xact_lock_shared(x'466F6C6A'::integer, hashtext(:member_set::text))

-- name: lock_member_set
SELECT pg_advisory_xact_lock(x'466F6C6A'::integer, hashtext(:member_set::text))

-- name: standings
SELECT m.key, m.added_at, e.useful_tick, e.useful_at
FROM foliot.member m LEFT JOIN foliot.series e ON e.schedule = :schedule AND e.member = m.key
WHERE m.member_set = :member_set AND m.key > :after
    AND (:stale_before::bigint IS NULL OR coalesce(e.useful_at, m.added_at) < :stale_before::bigint)
ORDER BY m.key LIMIT :limit

-- name: worst_served
SELECT m.key, m.added_at, e.useful_tick, e.useful_at
FROM foliot.member m LEFT JOIN foliot.series e ON e.schedule = :schedule AND e.member = m.key
WHERE m.member_set = :member_set
ORDER BY coalesce(e.useful_at, m.added_at), m.key LIMIT :limit

-- name: gather_again
UPDATE foliot.run SET state = 5, reason = NULL, detail = NULL WHERE number = :number AND state = :state AND member_set IS NOT NULL

-- name: spreads
-- Whether a run is a tick over many members, that is at them or waits for them.
SELECT EXISTS (SELECT 1 FROM foliot.run WHERE number = :number AND member_set IS NOT NULL AND (state = 5 OR decided))
