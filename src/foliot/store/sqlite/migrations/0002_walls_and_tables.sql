-- The release of the tables of the world (zones, holidays) that the pending tick was computed with; NULL when its rule
-- depends on none.
ALTER TABLE schedule ADD COLUMN tables TEXT;
-- The wall times of the last tick that was decided upon, and of the pending one, as their zone was known when each was
-- made: what a person was promised. One that ran never runs again, whatever becomes of its zone.
ALTER TABLE schedule ADD COLUMN last_wall TEXT;
ALTER TABLE schedule ADD COLUMN next_wall TEXT;
-- Who states it: code, or an import. Each may only drop its own.
ALTER TABLE schedule ADD COLUMN source TEXT NOT NULL DEFAULT 'code';
CREATE INDEX schedule_tables ON schedule (tables) WHERE tables IS NOT NULL;

-- The views of runs, with what the schedule chose for them: arguments that are bound to the tick among it. Processes of
-- the release before go on reading the old ones.
CREATE VIEW live_runs AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, coalesce(detail, withdrawn) AS detail, payload, worker, fired_at, claimed_at, started_at,
    NULL AS finished_at, progress, NULL AS result, NULL AS span_until, 1 AS span_count,
    withdrawn IS NOT NULL OR number IN (SELECT number FROM cancellation) AS cancel_requested, number AS position,
    options
FROM run;
CREATE VIEW ended_runs AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at,
    finished_at, progress, result, span_until, coalesce(span_count, 1) AS span_count,
    0 AS cancel_requested, n AS position, options
FROM history;
