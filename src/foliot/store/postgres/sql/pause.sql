-- name: pauses_now
-- For whoever fires: a pause that is ended meanwhile is ended after that, and finds whom it held.
SELECT name, what, since, until, actor, note FROM foliot.pause ORDER BY name, what FOR SHARE

-- name: holding_pauses
-- What claims must not take, as claims:job:X. Nobody who claims waits for whoever resumes it.
SELECT what || ':' || name FROM foliot.pause WHERE what <> 'creation' AND (until IS NULL OR until > :now)

-- name: all_pauses
SELECT name, what, since, until, actor, note FROM foliot.pause
UNION ALL SELECT 'schedule:' || id, 'creation', paused_at, paused_until, coalesce(paused_by, ''), coalesce(paused_note, '')
FROM foliot.schedule WHERE paused_at IS NOT NULL
ORDER BY 1, 2

-- name: put_pause
-- Since when it is paused stays, when it is paused already.
INSERT INTO foliot.pause AS p (name, what, since, until, actor, note) VALUES (:name, :what, :now, :until, :actor, :note)
ON CONFLICT (name, what) DO UPDATE SET until = excluded.until, actor = excluded.actor, note = excluded.note,
    since = CASE WHEN p.until <= excluded.since THEN excluded.since ELSE p.since END
RETURNING since

-- name: drop_pause
DELETE FROM foliot.pause WHERE name = :name AND what = :what RETURNING name, what, since, until, actor, note

-- name: ended_pauses
SELECT name, what, since, until, actor, note FROM foliot.pause WHERE until <= :now

-- name: schedules_about
-- The schedules whose ticks a pause holds.
SELECT id FROM foliot.schedule WHERE CASE :kind::text WHEN 'job' THEN job WHEN 'queue' THEN coalesce(queue, 'default') ELSE tenant END = :name
ORDER BY id

-- name: skip_through
-- Ticks of a pause that has ended are not made up for.
UPDATE foliot.schedule SET skip_through = greatest(coalesce(skip_through, 0), :through::bigint),
    paused_note = CASE WHEN paused_at IS NULL THEN :note ELSE paused_note END
WHERE id = ANY(:ids::text[])

-- name: lock_worker
SELECT wish FROM foliot.instance WHERE number = :number AND ended_at IS NULL AND role = 'worker' FOR UPDATE

-- name: wish_worker
UPDATE foliot.instance SET wish = :wish, wish_note = :note WHERE number = :number

-- name: beat_worker
UPDATE foliot.instance SET beat_at = :now, leaving_at = coalesce(leaving_at, :leaving_at)
WHERE number = :number AND ended_at IS NULL RETURNING wish
