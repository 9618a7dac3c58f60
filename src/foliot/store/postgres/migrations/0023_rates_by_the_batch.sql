-- As before, but starts by a rate above 200/s get their times by the step, so that they are handed off in batches.

-- Lets waiters in where their slot has room, at most 1,000 of each slot; the next call goes on. A waiter
-- that another transaction ends or cancels is waited for; if it is gone then, the next one is let in instead. By a rate,
-- waiters get the next times in their order (GCRA). Of a rate above 200/s, the starts of one step get one time: see
-- `times_of` in foliot.domain.gates, whose GRAIN is 5,000 microseconds.
-- The settings, and an order in each question, make the planner read waiters by `run_next`. A plan that was made while few
-- runs waited would sort them all. A plan without sorting has a high cost, for which a user's own connection would compile it.
CREATE OR REPLACE FUNCTION foliot.let_in(names text[]) RETURNS void LANGUAGE plpgsql
SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off SET jit = off AS $$
DECLARE
    open_ text[];
    rooms integer[];
    numbers_ bigint[];
    slots_ text[];
    ats bigint[];
    now_ bigint := foliot.now();
    one integer;
BEGIN
    SELECT array_agg(s.name), array_agg(s.room) INTO open_, rooms FROM (
        SELECT s.name, least(s.most - s.used, 1000) AS room FROM foliot.slot s
        WHERE s.name = ANY(names) AND s.used < s.most
            AND (SELECT r.number FROM foliot.run r WHERE r.waits_for = s.name AND r.state = 2
                ORDER BY r.lane, r.priority DESC, r.fire_at, r.number LIMIT 1) IS NOT NULL
        ORDER BY s.name FOR UPDATE OF s
    ) s;
    IF open_ IS NULL THEN
        RETURN;
    END IF;
    LOOP
        SELECT array_agg(o.name), array_agg(o.room) INTO open_, rooms FROM unnest(open_, rooms) AS o(name, room)
        WHERE o.room > 0 AND (SELECT r.number FROM foliot.run r WHERE r.waits_for = o.name AND r.state = 2
            ORDER BY r.lane, r.priority DESC, r.fire_at, r.number LIMIT 1) IS NOT NULL;
        EXIT WHEN open_ IS NULL;
        SELECT array_agg(w.number), array_agg(o.name) INTO numbers_, slots_
        FROM unnest(open_, rooms) AS o(name, room) CROSS JOIN LATERAL (
            SELECT r.number FROM foliot.run r WHERE r.waits_for = o.name AND r.state = 2
            ORDER BY r.lane, r.priority DESC, r.fire_at, r.number LIMIT o.room FOR UPDATE
        ) w;
        CONTINUE WHEN numbers_ IS NULL;  -- all of them were cancelled meanwhile; others may wait
        SELECT array_agg(CASE WHEN n.every IS NULL THEN now_ WHEN n.every >= 5000 THEN greatest(now_, n.on_time - n.slack)
            ELSE greatest(now_, n.on_time - n.slack, n.on_time - n.on_time % (5000 - n.every)) END ORDER BY n.position)
        INTO ats
        FROM (
            SELECT s.every, s.slack, u.position, greatest(s.tat, now_)
                + (row_number() OVER (PARTITION BY u.slot ORDER BY u.position) - 1) * s.every AS on_time
            FROM unnest(slots_) WITH ORDINALITY AS u(slot, position) JOIN foliot.slot s ON s.name = u.slot
        ) n;
        WITH chosen AS MATERIALIZED (
            SELECT * FROM unnest(numbers_, slots_, ats) AS c(number, slot, at)
        ), moved AS (
            UPDATE foliot.run r SET state = CASE WHEN r.spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(r.nominal, r.fire_at),
                fire_at = c.at, slots = (coalesce(r.slots::jsonb, '[]') || to_jsonb(c.slot))::text,
                waits_for = CASE WHEN c.slot LIKE 'rate:%' THEN c.slot END,
                reason = CASE WHEN c.slot LIKE 'rate:%' THEN r.reason END,
                detail = CASE WHEN c.slot LIKE 'rate:%' THEN r.detail END
            FROM chosen c WHERE r.number = ANY(numbers_) AND r.number = c.number
        ), taken AS (
            UPDATE foliot.slot s SET used = s.used + c.count,
                tat = CASE WHEN s.every IS NULL THEN s.tat ELSE greatest(s.tat, now_) + c.count * s.every END
            FROM (SELECT slot, count(*) AS count FROM chosen GROUP BY slot) c WHERE s.name = ANY(slots_) AND s.name = c.slot
        )
        SELECT 1 INTO one;
        PERFORM foliot.pass_on(numbers_, now_);
        SELECT array_agg(o.name), array_agg(o.room) INTO open_, rooms FROM (
            SELECT u.name, u.room - (SELECT count(*)::integer FROM unnest(slots_) AS t(slot) WHERE t.slot = u.name) AS room
            FROM unnest(open_, rooms) AS u(name, room)
        ) o WHERE o.room > 0;
        EXIT WHEN open_ IS NULL;
    END LOOP;
END $$;
