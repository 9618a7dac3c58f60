-- As before. A run that says itself what follows if its worker is lost is no standby: a person may have to look at it although it never
-- began.

-- Claims the first waiters of a slot as standbys, at most `most_`, if each needs this slot alone, may go without the scheduler, and is
-- of this job. It stops at the first that does not: no run overtakes another. Waiters that another transaction has locked are
-- passed over: it ends, moves or claims them.
CREATE OR REPLACE FUNCTION foliot.take_standbys(worker_ integer, token_ bigint, slot_ text, job_ text, queues_ text[], most_ integer)
RETURNS SETOF foliot.run LANGUAGE plpgsql
SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off SET jit = off AS $$
DECLARE
    clock bigint := foliot.now();
    waiting bigint[];
    numbers_ bigint[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.slot s WHERE s.name = slot_ AND s.every IS NULL AND s.used <= s.most) THEN
        RETURN;
    END IF;
    waiting := ARRAY(
        SELECT r.number FROM foliot.run r WHERE r.waits_for = slot_ AND r.state = 2
        ORDER BY r.lane, r.priority DESC, r.fire_at, r.number LIMIT most_ FOR UPDATE SKIP LOCKED);
    IF waiting = '{}' THEN
        RETURN;
    END IF;
    BEGIN
        WITH need AS MATERIALIZED (
            SELECT n.number, count(*) AS count, bool_and(n.name = slot_) AS is_this FROM foliot.needs_of(waiting) n GROUP BY n.number
        )
        SELECT waiting[1 : coalesce(min(w.place) FILTER (WHERE NOT coalesce(r.job = job_ AND r.state = 2 AND r.waits_for = slot_
                AND r.slots IS NULL AND r.lane = 0 AND coalesce(r.queue, 'default') = ANY(queues_) AND r.schedule IS NULL
                AND r.phase IS NULL AND r.deaths IS NULL AND r.tenant IS NULL AND r.forced IS NULL AND r.gives_up_at IS NULL
                AND r.withdrawn IS NULL AND r.fire_at <= clock AND (r.useful_until IS NULL OR r.useful_until >= clock)
                AND NOT coalesce(position('"labels"'::bytea in r.options) > 0, false)
                AND NOT coalesce(position('"on_lost"'::bytea in r.options) > 0, false)
                AND n.count = 1 AND n.is_this, false)) - 1, cardinality(waiting))]
        INTO numbers_
        FROM unnest(waiting) WITH ORDINALITY AS w(number, place)
        LEFT JOIN foliot.run r ON r.number = w.number AND r.number = ANY(waiting)
        LEFT JOIN need n ON n.number = w.number;
    EXCEPTION WHEN data_exception THEN
        RETURN;  -- the settings of some run cannot be read: the scheduler looks at each
    END;
    IF numbers_ = '{}' THEN
        RETURN;
    END IF;
    INSERT INTO foliot.holding (number, slots, waits_for, fire_at)
    SELECT r.number, '[]', slot_, r.fire_at FROM foliot.run r WHERE r.number = ANY(numbers_)
    ON CONFLICT (number) DO NOTHING;
    INSERT INTO foliot.claim (token, worker, claimed_at, fired_at, lane, open, numbers)
    VALUES (token_, worker_, clock, clock, 0, cardinality(numbers_), numbers_);
    UPDATE foliot.run r SET state = CASE WHEN r.spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(r.nominal, r.fire_at),
        fire_at = clock, waits_for = NULL, reason = NULL, detail = NULL
    WHERE r.number = ANY(numbers_);
    RETURN QUERY
    SELECT r.* FROM unnest(numbers_) WITH ORDINALITY AS w(number, place) JOIN foliot.run r ON r.number = w.number
    WHERE r.number = ANY(numbers_) ORDER BY w.place;
END $$;
