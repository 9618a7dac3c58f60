-- The transaction that records outcomes claims the runs that get the freed slots, and standbys: waiting runs that the same
-- worker begins as soon as one of its runs gives up their slot.

-- A claimed run that has no slot yet has an empty array of slots: in `holding`, or in its row once its claim is written. `waits_for`
-- and `fire_at` are its place among the waiters, to which it returns if it does not begin.
ALTER TABLE foliot.holding ADD COLUMN waits_for text, ADD COLUMN fire_at bigint;

-- As before. In a transaction that offers to claim (`foliot.passed` is set), the chunks are listed there, and no worker is notified.
CREATE OR REPLACE FUNCTION foliot.pass_on(numbers_ bigint[], now_ bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ready bigint[] := '{}';
    chunks bigint[];
    next_ bigint;
BEGIN
    IF foliot.may_pass_on(now_) THEN
        BEGIN
            WITH need AS MATERIALIZED (
                SELECT n.number, n.name FROM foliot.needs_of(numbers_) n
            ), missing AS MATERIALIZED (
                SELECT n.number FROM need n JOIN foliot.run r ON r.number = n.number
                WHERE r.number = ANY(numbers_) AND NOT r.slots::jsonb ? n.name
            ), line AS (
                SELECT r.number, coalesce(r.queue, 'default') AS queue, r.lane, r.priority, coalesce(r.version, 0) AS version, w.place
                FROM unnest(numbers_) WITH ORDINALITY AS w(number, place) JOIN foliot.run r ON r.number = w.number
                WHERE r.number = ANY(numbers_) AND r.state < 2 AND r.waits_for IS NULL AND r.schedule IS NULL AND r.phase IS NULL
                    AND r.deaths IS NULL AND r.tenant IS NULL AND r.forced IS NULL AND r.fire_at <= now_
                    AND (r.useful_until IS NULL OR r.useful_until >= now_)
                    AND NOT coalesce(position('"labels"'::bytea in r.options) > 0, false)
                    AND NOT EXISTS (SELECT 1 FROM missing m WHERE m.number = r.number)
            ), chunk AS (
                INSERT INTO foliot.handoff (queue, lane, priority, rank, version, fired_at, ready_at, numbers)
                SELECT l.queue, l.lane, l.priority, 1, l.version, now_, 0, array_agg(l.number ORDER BY l.place)
                FROM line l GROUP BY l.queue, l.lane, l.priority, l.version, (l.place - 1) / 200 RETURNING n, numbers
            )
            SELECT array_agg(u.number), array_agg(DISTINCT c.n) INTO ready, chunks
            FROM chunk c CROSS JOIN LATERAL unnest(c.numbers) AS u(number);
        EXCEPTION WHEN data_exception THEN
            NULL;  -- the settings of some run cannot be read: the scheduler looks at each
        END;
        IF chunks IS NOT NULL AND coalesce(current_setting('foliot.passed', true), '') <> '' THEN
            PERFORM set_config('foliot.passed', (current_setting('foliot.passed')::bigint[] || chunks)::text, true);
        ELSIF chunks IS NOT NULL THEN
            PERFORM pg_notify('foliot_handoff', '');
        END IF;
    END IF;
    IF cardinality(ready) = cardinality(numbers_) THEN
        RETURN;
    END IF;
    WITH left_ AS (
        SELECT r.shard, r.number, r.fire_at FROM foliot.run r
        WHERE r.number = ANY(numbers_) AND NOT r.number = ANY(coalesce(ready, '{}'))
    ), stirred AS (
        INSERT INTO foliot.stir (shard, numbers) SELECT l.shard, array_agg(l.number) FROM left_ l GROUP BY l.shard
    )
    SELECT min(l.fire_at) INTO next_ FROM left_ l;
    PERFORM foliot.wake(next_);
END $$;

-- Whether a waiting run may go without the scheduler: not while a pause, an open breaker or a limit of a lane exists.
CREATE FUNCTION foliot.may_pass_on(now_ bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT 1 FROM foliot.pause p WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > now_))
        AND NOT EXISTS (SELECT 1 FROM foliot.breaker b WHERE b.opened_at IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%')
$$;

-- The name in an array of slots, if there is but one.
CREATE FUNCTION foliot.only_slot(slots text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_array_length(slots::jsonb) = 1 THEN slots::jsonb ->> 0 END
$$;

-- Claims the first waiters of a slot as standbys, at most `most_`, if each needs this slot alone, may go without the scheduler, and is
-- of this job. It stops at the first that does not: no run overtakes another. Waiters that another transaction has locked are
-- passed over: it ends, moves or claims them.
CREATE FUNCTION foliot.take_standbys(worker_ integer, token_ bigint, slot_ text, job_ text, queues_ text[], most_ integer)
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

-- A worker began each of these standbys (`heirs`) when a run that had its slot (`holders`) ended: the slot is the standby's from now
-- on. Tokens prove that both are still the worker's. The caller has locked the claims. A worker that does not know whether an earlier
-- call was done names each run that may have the slot. A slot in a holding moves, and the row of the slot is not locked: so workers
-- do not wait for each other. A slot in the row of a run stays there until that run ends: the standby gets one more until then.
CREATE FUNCTION foliot.pass_slots(worker_ integer, holders bigint[], holder_tokens bigint[], heirs bigint[], heir_tokens bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    passed bigint[];
    names text[];
    counts bigint[];
BEGIN
    WITH pair AS (
        SELECT p.holder, p.heir, a.slots FROM unnest(holders, holder_tokens, heirs, heir_tokens) AS p(holder, holder_token, heir, heir_token)
        JOIN foliot.claim c ON c.token = p.holder_token AND p.holder = ANY(c.numbers) AND NOT c.written
        JOIN foliot.claim d ON d.token = p.heir_token AND p.heir = ANY(d.numbers) AND NOT d.written
        JOIN foliot.holding a ON a.number = p.holder AND a.slots <> '[]'
        JOIN foliot.holding b ON b.number = p.heir AND b.slots = '[]'
        WHERE c.token = ANY(holder_tokens) AND d.token = ANY(heir_tokens) AND c.worker = worker_ AND d.worker = worker_
            AND a.number = ANY(holders) AND b.number = ANY(heirs)
    ), ended AS (
        DELETE FROM foliot.holding h USING pair p WHERE h.number = ANY(holders) AND h.number = p.holder
    ), begun AS (
        UPDATE foliot.holding h SET slots = p.slots, waits_for = NULL, fire_at = NULL
        FROM pair p WHERE h.number = ANY(heirs) AND h.number = p.heir RETURNING h.number
    )
    SELECT coalesce(array_agg(b.number), '{}') INTO passed FROM begun b;
    IF cardinality(passed) = (SELECT count(DISTINCT h.heir) FROM unnest(heirs) AS h(heir)) THEN
        RETURN;
    END IF;
    -- Of a run that was let in, or whose claim is written.
    WITH pair AS MATERIALIZED (
        SELECT p.heir, p.heir_token, r.slots
        FROM unnest(holders, holder_tokens, heirs, heir_tokens) AS p(holder, holder_token, heir, heir_token)
        JOIN foliot.claim c ON c.token = p.holder_token
        JOIN foliot.run r ON r.number = p.holder AND r.slots <> '[]'
            AND ((r.state = 4 AND r.token = c.token) OR (r.state < 2 AND NOT c.written AND r.number = ANY(c.numbers)))
        WHERE c.token = ANY(holder_tokens) AND c.worker = worker_ AND r.number = ANY(holders) AND p.heir <> ALL(passed)
        UNION ALL
        SELECT p.heir, p.heir_token, a.slots
        FROM unnest(holders, holder_tokens, heirs, heir_tokens) AS p(holder, holder_token, heir, heir_token)
        JOIN foliot.claim c ON c.token = p.holder_token AND p.holder = ANY(c.numbers) AND NOT c.written
        JOIN foliot.holding a ON a.number = p.holder AND a.slots <> '[]'
        WHERE c.token = ANY(holder_tokens) AND c.worker = worker_ AND a.number = ANY(holders) AND p.heir <> ALL(passed)
    ), begun AS (
        UPDATE foliot.holding h SET slots = p.slots, waits_for = NULL, fire_at = NULL
        FROM pair p JOIN foliot.claim d ON d.token = p.heir_token AND NOT d.written AND p.heir = ANY(d.numbers)
        WHERE h.number = ANY(heirs) AND h.number = p.heir AND h.slots = '[]' AND d.token = ANY(heir_tokens) AND d.worker = worker_
        RETURNING h.slots
    ), begun_long_ago AS (
        UPDATE foliot.run r SET slots = p.slots FROM pair p
        WHERE r.number = ANY(heirs) AND r.number = p.heir AND r.state = 4 AND r.token = p.heir_token AND r.slots = '[]' AND r.worker = worker_
        RETURNING r.slots
    ), unit AS (
        SELECT e.name, count(*) AS count
        FROM (SELECT slots FROM begun UNION ALL SELECT slots FROM begun_long_ago) b
        CROSS JOIN LATERAL jsonb_array_elements_text(b.slots::jsonb) AS e(name) GROUP BY e.name
    )
    SELECT array_agg(u.name), array_agg(u.count) INTO names, counts FROM unit u;
    PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
    UPDATE foliot.slot s SET used = s.used + u.count FROM unnest(names, counts) AS u(name, count)
    WHERE s.name = ANY(names) AND s.name = u.name;
END $$;

-- Records outcomes as `finish_runs` does, passes slots on to standbys that have begun, and claims for the worker that tells of it:
-- at most `limit_` of the runs that got the slots freed here, and as many standbys of each slot as it asks for. A worker that was declared
-- dead claims nothing. `kind`: 0, not recorded, see `finish_runs`; 1, claimed; 2, a standby.
CREATE FUNCTION foliot.finish_and_claim(
    numbers_ bigint[], tokens_ bigint[], state_ smallint, started_ bigint[], finished_ bigint[], results_ bytea[],
    holders bigint[], holder_tokens bigint[], heirs bigint[], heir_tokens bigint[],
    worker_ integer, queues_ text[], jobs_ text[], limit_ integer, backlog_ integer,
    lines text[], line_jobs text[], mosts integer[], new_tokens bigint[]
) RETURNS TABLE (
    kind smallint, number bigint, name text, job text, payload bytea, token bigint, attempt integer, spent integer, fire_at bigint,
    nominal bigint, since bigint, schedule text, revision integer, tenant text, queue text, priority integer,
    origin smallint, lane smallint, options bytea, checkpoint bytea, phase smallint, lineage bigint, repair boolean,
    deaths smallint, early bigint, slot text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    chunks bigint[] := '{}';
    is_alive boolean;
    place integer;
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_ || holder_tokens || heir_tokens) ORDER BY c.token FOR UPDATE;
    IF heirs <> '{}' THEN
        PERFORM foliot.pass_slots(worker_, holders, holder_tokens, heirs, heir_tokens);
    END IF;
    is_alive := EXISTS (SELECT 1 FROM foliot.instance i WHERE i.number = worker_ AND i.ended_at IS NULL);
    IF is_alive AND limit_ > 0 THEN
        PERFORM set_config('foliot.passed', '{}', true);
    END IF;
    IF numbers_ <> '{}' THEN
        RETURN QUERY
        SELECT 0::smallint, f.number, NULL, NULL, NULL::bytea, f.token, NULL::integer, NULL::integer, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL, NULL::integer, NULL, NULL, NULL::integer, NULL::smallint, NULL::smallint, NULL::bytea, NULL::bytea,
            NULL::smallint, NULL::bigint, NULL::boolean, NULL::smallint, NULL::bigint, NULL
        FROM foliot.finish_runs(numbers_, tokens_, state_, started_, finished_, results_) f;
    END IF;
    IF NOT is_alive THEN
        RETURN;
    END IF;
    IF limit_ > 0 THEN
        chunks := current_setting('foliot.passed')::bigint[];
        PERFORM set_config('foliot.passed', '', true);
    END IF;
    IF chunks <> '{}' THEN
        -- One that it could not take whole says so by a row without a number, and has done nothing.
        RETURN QUERY
        WITH taken AS MATERIALIZED (
            SELECT * FROM foliot.claim_runs(worker_, queues_, jobs_, limit_, cardinality(chunks), new_tokens, false, backlog_,
                NULL, '{}', false, chunks[1 : cardinality(new_tokens) - cardinality(lines)], 0) c
        )
        SELECT 1::smallint, t.number, t.name, t.job, t.payload, t.token, t.attempt, t.spent, t.fire_at, t.nominal, t.since, t.schedule,
            t.revision, t.tenant, t.queue, t.priority, t.origin, t.lane, t.options, t.checkpoint, t.phase, t.lineage, t.repair,
            t.deaths, t.early, foliot.only_slot(r.slots)
        FROM taken t JOIN foliot.run r ON r.number = t.number
        WHERE NOT EXISTS (SELECT 1 FROM taken u WHERE u.number IS NULL AND u.name = 'carefully');
        IF EXISTS (SELECT 1 FROM foliot.handoff h WHERE h.n = ANY(chunks)) THEN
            PERFORM pg_notify('foliot_handoff', '');
        END IF;
    END IF;
    IF lines <> '{}' AND foliot.may_pass_on(foliot.now()) THEN
        FOR place IN 1 .. cardinality(lines) LOOP
            RETURN QUERY
            SELECT 2::smallint, r.number, r.name, r.job, r.payload, new_tokens[cardinality(new_tokens) + 1 - place], r.attempt + 1, r.spent,
                r.fire_at, r.nominal, r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, r.lane, r.options,
                r.checkpoint, r.phase, r.lineage, coalesce(r.repair, false), r.deaths, 0::bigint, lines[place]
            FROM foliot.take_standbys(worker_, new_tokens[cardinality(new_tokens) + 1 - place], lines[place], line_jobs[place],
                queues_, mosts[place]) r;
        END LOOP;
    END IF;
END $$;

-- Standbys that do not begin: each returns to its place among the waiters, who are let in where there is room. Answers which have
-- returned; the others are no standbys, or their claim is written, or their slot does not exist any more.
CREATE FUNCTION foliot.return_standbys(numbers_ bigint[], tokens_ bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    back bigint[];
    names text[];
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) ORDER BY c.token FOR UPDATE;
    SELECT array_agg(h.number), array_agg(DISTINCT h.waits_for) INTO back, names
    FROM unnest(numbers_, tokens_) AS u(number, token)
    JOIN foliot.claim c ON c.token = u.token AND NOT c.written AND u.number = ANY(c.numbers)
    JOIN foliot.holding h ON h.number = u.number AND h.slots = '[]'
    WHERE c.token = ANY(tokens_) AND h.number = ANY(numbers_);
    IF back IS NULL THEN
        RETURN '{}';
    END IF;
    PERFORM 1 FROM foliot.run r WHERE r.number = ANY(back) ORDER BY r.number FOR UPDATE;
    PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
    names := ARRAY(SELECT s.name FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name);
    WITH returned AS (
        UPDATE foliot.run r SET state = 2, waits_for = h.waits_for, fire_at = h.fire_at, fired_at = NULL, slots = NULL,
            reason = CASE WHEN h.waits_for LIKE 'key:%' THEN 'key' ELSE 'limit' END,
            detail = CASE WHEN h.waits_for LIKE 'key:%' THEN 'waits for another run with the key ' || substr(h.waits_for, 5) || ' to end'
                ELSE 'waits for a slot of ' || h.waits_for END
        FROM foliot.holding h
        WHERE r.number = ANY(back) AND h.number = r.number AND r.state < 2 AND h.waits_for = ANY(names) RETURNING r.number
    )
    SELECT coalesce(array_agg(r.number), '{}') INTO back FROM returned r;
    UPDATE foliot.claim c SET numbers = ARRAY(SELECT n FROM unnest(c.numbers) AS n WHERE n <> ALL(back)),
        open = c.open - (SELECT count(*) FROM unnest(c.numbers) AS n WHERE n = ANY(back))
    WHERE c.token = ANY(tokens_);
    DELETE FROM foliot.claim c WHERE c.token = ANY(tokens_) AND c.open <= 0;
    PERFORM foliot.let_in(names);
    RETURN back;
END $$;
