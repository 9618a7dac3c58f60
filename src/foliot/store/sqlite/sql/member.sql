-- name: members_after
SELECT key, added_at, source FROM member WHERE member_set = :member_set AND key > :after ORDER BY key LIMIT :limit

-- name: member_sets
SELECT member_set, sum(members), json_group_array(schedule) FILTER (WHERE schedule IS NOT NULL) FROM (
    SELECT member_set, count(*) AS members, NULL AS schedule FROM member GROUP BY member_set
    UNION ALL SELECT member_set, 0, id FROM schedule WHERE member_set IS NOT NULL)
GROUP BY member_set ORDER BY member_set

-- name: put_member
INSERT INTO member (member_set, key, added_at, source) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: drop_members
DELETE FROM member WHERE member_set = :member_set AND key IN (SELECT value FROM json_each(:keys))

-- name: known_members
SELECT key FROM member WHERE member_set = :member_set AND key IN (SELECT value FROM json_each(:keys))

-- name: all_members
SELECT key, source FROM member WHERE member_set = :member_set ORDER BY key

-- name: series_of_members
-- What members have to do with the schedules that go over their set.
SELECT e.id FROM series e JOIN schedule s ON s.id = e.schedule
WHERE s.member_set = :member_set AND e.member IN (SELECT value FROM json_each(:keys))

-- name: waiting_of_series
SELECT number FROM run WHERE schedule IN (SELECT value FROM json_each(:series)) AND state <= 2 AND phase IS NULL

-- name: put_series
INSERT INTO series (id, schedule, member) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: spreading_tick
SELECT checkpoint, tenant IS NOT NULL FROM run WHERE number = :number

-- name: insert_member_run
-- As its tick is, but for its name, and whose it is. Its tick was decided upon.
INSERT INTO run (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since, useful_until,
    schedule, revision, tenant, queue, options, decided, forced)
SELECT ?1, ?2, 0, origin, ?5, priority, job, payload, ?6, coalesce(nominal, fire_at), since, useful_until,
    ?3, revision, coalesce(tenant, ?4), queue, options, 1, forced
FROM run WHERE number = ?7

-- name: tick_spreads
-- Not all are made yet.
UPDATE run SET checkpoint = ?, lane = ?, decided = 1, waits_for = NULL, reason = NULL, detail = NULL WHERE number = ?

-- name: tick_is_spread
UPDATE run SET state = 5, checkpoint = ?, lane = ?, fired_at = ?, decided = 1, waits_for = NULL, reason = NULL, detail = NULL
WHERE number = ?

-- name: gathering_ticks
-- Ticks that wait for their members; many members, and few such ticks.
SELECT r.number, r.name, r.schedule, s.policy FROM run r LEFT JOIN schedule s ON s.id = r.schedule
WHERE r.member_set IS NOT NULL AND r.state = 5 ORDER BY r.number

-- name: is_any_under_way
-- A promise may have a key that begins as a tick is named: it is nobody's member.
SELECT EXISTS (SELECT 1 FROM run WHERE name > :first AND name < :last AND state < 20 AND schedule LIKE '%]')

-- name: remember_recounts
-- An operator changes these runs: ticks of those that are members' are to be counted again.
INSERT INTO recount (number, tick) SELECT number, substr(name, 1, instr(name, '[') - 1) FROM run
WHERE number IN carray(:numbers) AND schedule LIKE '%]' ON CONFLICT (number) DO NOTHING

-- name: recounts_at_rest
-- Ticks to be counted again, of which no changed run is under way.
SELECT c.tick FROM recount c
GROUP BY c.tick HAVING sum((SELECT count(*) FROM run r WHERE r.number = c.number AND r.state < 20)) = 0

-- name: lock_recounts
SELECT number FROM recount WHERE tick = :tick ORDER BY number

-- name: recount_tick
-- Only a tick that is over has such a row.
UPDATE history SET detail = :detail, reason = :reason
WHERE name = :tick AND member_set IS NOT NULL AND state IN (10, 11)

-- name: incomplete_tick
-- A tick that is parked because too few of its members were done.
SELECT r.number, s.policy FROM run r LEFT JOIN schedule s ON s.id = r.schedule
WHERE r.name = :tick
    AND r.member_set IS NOT NULL AND r.state = 20 AND r.reason = 'incomplete'

-- name: recount_incomplete
UPDATE run SET detail = :detail WHERE number = :number AND state = 20 AND reason = 'incomplete'

-- name: drop_recounts
DELETE FROM recount WHERE number IN carray(:numbers)

-- name: states_of_members
-- Of each member the newest: what repeats a run answers for it. Who left the set is nobody's concern any more.
SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    count(*) FROM (SELECT state, reason, max(number) FROM (
        SELECT number, name, state, reason FROM live_runs WHERE name > :first AND name < :last AND schedule LIKE '%]'
        UNION ALL SELECT number, name, state, reason FROM history WHERE name > :first AND name < :last AND schedule LIKE '%]')
    GROUP BY substr(name, 1, instr(name, ']')))
WHERE state <> 14 OR reason IS NOT 'revised' GROUP BY 1

-- name: ready_members
-- Of these runs, members' runs of a tick that are due.
SELECT name, state FROM run
WHERE number IN carray(:numbers) AND state <= 1 AND phase IS NULL AND fire_at <= :now AND name > :first AND name < :last

-- name: lacking_members
SELECT name, state, reason, detail FROM (SELECT name, state, reason, detail, max(number) FROM (
        SELECT number, name, state, reason, detail FROM live_runs WHERE name > :first AND name < :last AND schedule LIKE '%]'
        UNION ALL
        SELECT number, name, state, reason, detail FROM history WHERE name > :first AND name < :last AND schedule LIKE '%]')
    GROUP BY substr(name, 1, instr(name, ']')))
WHERE state NOT IN (10, 11, 12) AND (state <> 14 OR reason IS NOT 'revised')
ORDER BY state DESC, name LIMIT :limit

-- name: live_members
SELECT number, schedule FROM run WHERE name > :first AND name < :last AND state < 20 AND schedule LIKE '%]'

-- name: share_member_set
-- There is one writer at a time: nobody changes it meanwhile.
SELECT 1 WHERE :member_set IS NOT NULL

-- name: lock_member_set
SELECT 1 WHERE :member_set IS NOT NULL

-- name: standings
SELECT m.key, m.added_at, e.useful_tick, e.useful_at
FROM member m LEFT JOIN series e ON e.schedule = :schedule AND e.member = m.key
WHERE m.member_set = :member_set AND m.key > :after
    AND (:stale_before IS NULL OR coalesce(e.useful_at, m.added_at) < :stale_before)
ORDER BY m.key LIMIT :limit

-- name: worst_served
SELECT m.key, m.added_at, e.useful_tick, e.useful_at
FROM member m LEFT JOIN series e ON e.schedule = :schedule AND e.member = m.key
WHERE m.member_set = :member_set
ORDER BY coalesce(e.useful_at, m.added_at), m.key LIMIT :limit

-- name: gather_again
UPDATE run SET state = 5, reason = NULL, detail = NULL WHERE number = :number AND state = :state AND member_set IS NOT NULL

-- name: spreads
-- Whether a run is a tick over many members, that is at them or waits for them.
SELECT EXISTS (SELECT 1 FROM run WHERE number = :number AND member_set IS NOT NULL AND (state = 5 OR decided))
