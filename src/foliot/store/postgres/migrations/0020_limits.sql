-- Slots are freed and given by the batch: one write per slot, however many runs of a statement had it.

-- The waiters of a slot, in the order in which they are let in. Runs that wait for their time by a rate are not among them.
CREATE INDEX run_next ON foliot.run (waits_for, lane, priority DESC, fire_at, number) WHERE state = 2;

-- The slots that runs need, by the limits of now and by their own keys: `most` at a time, or one in `every` microseconds. Without
-- limits of lanes, schedules, pauses and breakers.
CREATE FUNCTION foliot.needs_of(numbers_ bigint[]) RETURNS TABLE (number bigint, name text, most integer, every bigint)
LANGUAGE sql STABLE AS $$
    WITH due AS MATERIALIZED (
        SELECT r.number, r.job, coalesce(r.queue, 'default') AS queue, r.tenant,
            CASE WHEN position('"concurrency_key"'::bytea in r.options) > 0 OR position('"destination"'::bytea in r.options) > 0
                THEN convert_from(r.options, 'UTF8')::jsonb END AS wants
        FROM foliot.run r WHERE r.number = ANY(numbers_)
    ), gate AS MATERIALIZED (
        SELECT g.name, g.most, g.every FROM foliot.gate g WHERE g.most IS NOT NULL OR g.every IS NOT NULL
    ), allowed AS (
        SELECT d.number, g.name, g.most, g.every FROM due d JOIN gate g ON g.name = 'job:' || d.job
        UNION ALL SELECT d.number, g.name, g.most, g.every FROM due d JOIN gate g ON g.name = 'queue:' || d.queue
        UNION ALL SELECT d.number, g.name, g.most, g.every FROM due d JOIN gate g ON g.name = 'tenant:' || d.tenant
        UNION ALL SELECT d.number, g.name, g.most, g.every FROM due d JOIN gate g ON g.name = 'to:' || (d.wants ->> 'destination')
        UNION ALL SELECT d.number, 'tenant:' || d.tenant, g.most, g.every FROM due d JOIN gate g ON g.name = 'tenant:*'
        WHERE d.tenant IS NOT NULL AND NOT EXISTS (SELECT 1 FROM gate o WHERE o.name = 'tenant:' || d.tenant)
    )
    SELECT a.number, a.name, a.most, NULL::bigint AS every FROM allowed a WHERE a.most IS NOT NULL
    UNION ALL SELECT a.number, 'rate:' || a.name, NULL, a.every FROM allowed a WHERE a.every IS NOT NULL
    UNION ALL SELECT d.number, concat('key:', d.wants ->> 'concurrency_key', '[' || d.tenant || ']'),
        coalesce((d.wants ->> 'key_limit')::integer, 1), NULL
    FROM due d WHERE d.wants ->> 'concurrency_key' IS NOT NULL
$$;

-- Runs that were let in: those that have all that they need are handed off here, so that a slot does not stay empty until a
-- scheduler has heard of it. All others (ticks, tenants' runs, runs that wait for their time, ...) go to the scheduler.
CREATE FUNCTION foliot.pass_on(numbers_ bigint[], now_ bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ready bigint[] := '{}';
    next_ bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.pause p WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > now_))
        AND NOT EXISTS (SELECT 1 FROM foliot.breaker b WHERE b.opened_at IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%')
    THEN
        BEGIN
            WITH need AS MATERIALIZED (
                SELECT n.number, n.name FROM foliot.needs_of(numbers_) n
            ), missing AS MATERIALIZED (
                SELECT n.number FROM need n JOIN foliot.run r ON r.number = n.number
                WHERE r.number = ANY(numbers_) AND NOT r.slots::jsonb ? n.name
            ), line AS (
                SELECT r.number, coalesce(r.queue, 'default') AS queue, r.lane, r.priority, w.place
                FROM unnest(numbers_) WITH ORDINALITY AS w(number, place) JOIN foliot.run r ON r.number = w.number
                WHERE r.number = ANY(numbers_) AND r.state < 2 AND r.waits_for IS NULL AND r.schedule IS NULL AND r.phase IS NULL
                    AND r.deaths IS NULL AND r.tenant IS NULL AND r.forced IS NULL AND r.fire_at <= now_
                    AND (r.useful_until IS NULL OR r.useful_until >= now_)
                    AND NOT coalesce(position('"labels"'::bytea in r.options) > 0, false)
                    AND NOT EXISTS (SELECT 1 FROM missing m WHERE m.number = r.number)
            ), chunk AS (
                INSERT INTO foliot.handoff (queue, lane, priority, rank, fired_at, ready_at, numbers)
                SELECT l.queue, l.lane, l.priority, 1, now_, 0, array_agg(l.number ORDER BY l.place)
                FROM line l GROUP BY l.queue, l.lane, l.priority, (l.place - 1) / 200 RETURNING numbers
            )
            SELECT array_agg(u.number) INTO ready FROM chunk c CROSS JOIN LATERAL unnest(c.numbers) AS u(number);
        EXCEPTION WHEN data_exception THEN
            NULL;  -- the settings of some run cannot be read: the scheduler looks at each
        END;
        IF ready IS NOT NULL THEN
            PERFORM pg_notify('foliot_handoff', '');
        END IF;
    END IF;
    IF cardinality(ready) = cardinality(numbers_) THEN
        RETURN;
    END IF;
    WITH left_ AS (
        SELECT r.shard, r.number, r.fire_at FROM foliot.run r
        WHERE r.number = ANY(numbers_) AND NOT r.number = ANY(coalesce(ready, '{}'))
    ), told AS (
        INSERT INTO foliot.stir (shard, numbers) SELECT l.shard, array_agg(l.number) FROM left_ l GROUP BY l.shard
    )
    SELECT min(l.fire_at) INTO next_ FROM left_ l;
    PERFORM foliot.wake(next_);
END $$;

-- Lets waiters in where their slot has room, at most 1,000 of each slot; the next call goes on. A waiter
-- that another transaction ends or cancels is waited for; if it is gone then, the next one is let in instead. By a rate,
-- waiters get the next times in their order (GCRA).
-- The settings, and an order in each question, make the planner read waiters by `run_next`. A plan that was made while few
-- runs waited would sort them all. A plan without sorting has a high cost, for which a user's own connection would compile it.
CREATE FUNCTION foliot.let_in(names text[]) RETURNS void LANGUAGE plpgsql
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
        SELECT array_agg(CASE WHEN s.every IS NULL THEN now_
            ELSE greatest(now_, greatest(s.tat, now_) + (n.place - 1) * s.every - s.slack) END ORDER BY n.position)
        INTO ats
        FROM (
            SELECT u.slot, u.position, row_number() OVER (PARTITION BY u.slot ORDER BY u.position) AS place
            FROM unnest(slots_) WITH ORDINALITY AS u(slot, position)
        ) n JOIN foliot.slot s ON s.name = n.slot;
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

-- Frees slots, so many units of each, and lets waiters in, in the same transaction. Locks the slots first, in the order of their
-- names.
CREATE FUNCTION foliot.free_units(names text[], counts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
    UPDATE foliot.slot s SET used = s.used - f.count FROM unnest(names, counts) AS f(name, count)
    WHERE s.name = ANY(names) AND s.name = f.name;
    PERFORM foliot.let_in(names);
END $$;

CREATE OR REPLACE FUNCTION foliot.free_slots(names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM foliot.free_units(array_agg(f.name), array_agg(f.count))
    FROM (SELECT u.name, count(*) AS count FROM unnest(names) AS u(name) GROUP BY u.name) f;
END $$;

-- What a run has taken that was handed off without a write of its row: a JSON array of names, as `run.slots`, which is NULL
-- then. It moves to the row when that is written for another reason (`write_claims`, `lock_pending`), and ends with the run.
CREATE TABLE foliot.holding (
    number  bigint NOT NULL PRIMARY KEY,
    slots   text   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A statement that ends runs, or takes slots from them, frees these slots here, all together. A holding ends when its run ends,
-- waits, is parked or gets another time. Where its row gets slots, the holding has become these.
DROP TRIGGER run_left ON foliot.run;
DROP TRIGGER run_let_go ON foliot.run;
CREATE OR REPLACE FUNCTION foliot.run_let_go() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    names text[];
    counts bigint[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.slot) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN
        WITH ended AS (
            DELETE FROM foliot.holding h USING old_runs o WHERE h.number = o.number AND o.state < 2 RETURNING h.slots
        ), freed AS (
            SELECT slots, count(*) AS count
            FROM (SELECT slots FROM ended UNION ALL SELECT o.slots FROM old_runs o WHERE o.slots IS NOT NULL) f GROUP BY slots
        ), unit AS (
            SELECT e.name, sum(f.count)::bigint AS count
            FROM freed f CROSS JOIN LATERAL jsonb_array_elements_text(f.slots::jsonb) AS e(name) GROUP BY e.name
        )
        SELECT array_agg(u.name), array_agg(u.count) INTO names, counts FROM unit u;
    ELSIF EXISTS (SELECT 1 FROM old_runs o WHERE o.slots IS NOT NULL OR o.state < 2) THEN
        WITH ended AS (
            DELETE FROM foliot.holding h USING old_runs o JOIN new_runs n ON n.number = o.number
            WHERE h.number = o.number AND o.state < 2
                AND (n.slots IS NOT NULL OR n.state = 2 OR n.state >= 20 OR (n.state < 2 AND n.fire_at <> o.fire_at))
            RETURNING h.slots, n.slots AS kept
        ), freed AS (
            SELECT slots, kept FROM ended
            UNION ALL SELECT o.slots, n.slots FROM old_runs o JOIN new_runs n ON n.number = o.number
            WHERE o.slots IS NOT NULL AND n.slots IS DISTINCT FROM o.slots
        ), unit AS (
            SELECT e.name, count(*) AS count
            FROM freed f CROSS JOIN LATERAL jsonb_array_elements_text(f.slots::jsonb) AS e(name)
            WHERE NOT coalesce(f.kept::jsonb, '[]') ? e.name GROUP BY e.name
        )
        SELECT array_agg(u.name), array_agg(u.count) INTO names, counts FROM unit u;
    END IF;
    IF names IS NOT NULL THEN
        PERFORM foliot.free_units(names, counts);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER run_left AFTER DELETE ON foliot.run REFERENCING OLD TABLE AS old_runs
FOR EACH STATEMENT EXECUTE FUNCTION foliot.run_let_go();
CREATE TRIGGER run_let_go AFTER UPDATE ON foliot.run REFERENCING OLD TABLE AS old_runs NEW TABLE AS new_runs
FOR EACH STATEMENT EXECUTE FUNCTION foliot.run_let_go();

-- Takes the slots that these due runs need, if there is room for all of them, and notes them as holdings. Otherwise takes
-- nothing and answers false: the caller decides about each run. Waits for a slot that another transaction has locked no longer
-- than 20 ms. Limits of lanes and of schedules are for the caller. The gates' own slots have been put by whoever set the gate.
CREATE FUNCTION foliot.take_slots(numbers_ bigint[], now_ bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    names text[];
    counts bigint[];
    mosts integer[];
    everies bigint[];
    runs_ bigint[];
    held text[];
    fits boolean;
BEGIN
    -- Locked, because another transaction that ends a run must see what it holds.
    IF (SELECT count(*) FROM (
        SELECT 1 FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.state < 2 AND r.fire_at <= now_
            AND r.slots IS NULL AND r.waits_for IS NULL AND r.forced IS NULL AND r.gives_up_at IS NULL
        FOR NO KEY UPDATE SKIP LOCKED) r) < cardinality(numbers_)
    THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM foliot.gate g ORDER BY g.name FOR SHARE;
    WITH need AS MATERIALIZED (
        SELECT * FROM foliot.needs_of(numbers_)
    )
    SELECT s.names, s.counts, s.mosts, s.everies, h.runs, h.held INTO names, counts, mosts, everies, runs_, held
    FROM (
        SELECT array_agg(n.name) AS names, array_agg(n.count) AS counts, array_agg(n.most) AS mosts, array_agg(n.every) AS everies
        FROM (SELECT name, count(*) AS count, max(most) AS most, max(every) AS every FROM need GROUP BY name) n
    ) s, (
        SELECT array_agg(n.number) AS runs, array_agg(n.held) AS held
        FROM (SELECT number, to_json(array_agg(name ORDER BY name COLLATE "C"))::text AS held FROM need WHERE every IS NULL
            GROUP BY number) n
    ) h;
    IF EXISTS (SELECT 1 FROM foliot.breaker b WHERE b.opened_at IS NOT NULL) AND EXISTS (
        SELECT 1 FROM foliot.run r WHERE r.number = ANY(numbers_) AND position('"destination"'::bytea in r.options) > 0)
    THEN
        RETURN false;
    END IF;
    IF names IS NULL THEN
        RETURN true;
    END IF;
    PERFORM set_config('lock_timeout', '20ms', true);
    PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
    INSERT INTO foliot.slot (name, most)
    SELECT n.name, n.most FROM unnest(names, mosts) AS n(name, most) WHERE n.name LIKE 'key:%' ORDER BY n.name COLLATE "C"
    ON CONFLICT (name) DO UPDATE SET most = excluded.most WHERE slot.most <> excluded.most;
    PERFORM set_config('lock_timeout', '0', true);
    SELECT bool_and(s.name IS NOT NULL AND CASE WHEN n.every IS NULL THEN s.most = n.most AND s.used + n.count <= n.most
        ELSE s.every = n.every AND greatest(s.tat, now_) + (n.count - 1) * s.every - s.slack <= now_ END)
    INTO fits
    FROM unnest(names, counts, mosts, everies) AS n(name, count, most, every) LEFT JOIN foliot.slot s ON s.name = n.name;
    IF fits THEN
        UPDATE foliot.slot s SET used = s.used + CASE WHEN s.every IS NULL THEN n.count ELSE 0 END,
            tat = CASE WHEN s.every IS NULL THEN s.tat ELSE greatest(s.tat, now_) + n.count * s.every END
        FROM unnest(names, counts) AS n(name, count) WHERE s.name = ANY(names) AND s.name = n.name;
        INSERT INTO foliot.holding (number, slots) SELECT * FROM unnest(runs_, held);
    END IF;
    RETURN fits;
EXCEPTION
    WHEN lock_not_available OR deadlock_detected OR data_exception OR unique_violation THEN
        RETURN false;  -- unique: it holds slots already, of an earlier firing
END $$;

-- As before, and writes what a run holds into its row.
CREATE OR REPLACE FUNCTION foliot.write_claims(tokens_ bigint[], wanted bigint[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free bigint[];
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) AND NOT c.written ORDER BY c.token FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM 1 FROM foliot.run r WHERE r.number = ANY(wanted) ORDER BY r.number FOR UPDATE;
    SELECT array_agg(x.number) INTO free FROM (
        SELECT r.number FROM foliot.run r
        WHERE r.number = ANY(ARRAY(SELECT unnest(c.numbers) FROM foliot.claim c WHERE c.token = ANY(tokens_) AND NOT c.written))
            AND r.state < 2 AND (wanted = '{}' OR r.number = ANY(wanted))
        FOR NO KEY UPDATE SKIP LOCKED
    ) x;
    UPDATE foliot.run r SET state = 4, token = c.token, worker = c.worker, attempt = r.attempt + 1, lane = c.lane,
        fired_at = foliot.fired(c.fired_at, c.claimed_at, r.fire_at), claimed_at = greatest(c.claimed_at, r.fire_at),
        slots = coalesce(r.slots, c.slots)
    FROM (
        SELECT c.token, c.worker, c.lane, c.fired_at, c.claimed_at, u.number, h.slots
        FROM foliot.claim c CROSS JOIN LATERAL unnest(c.numbers) AS u(number) LEFT JOIN foliot.holding h ON h.number = u.number
        WHERE c.token = ANY(tokens_) AND NOT c.written
    ) c
    WHERE r.number = ANY(free) AND r.number = c.number;
    UPDATE foliot.claim c SET written = true
    WHERE c.token = ANY(tokens_) AND NOT c.written
        AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = ANY(c.numbers) AND r.state < 2);
END $$;

-- As before, and writes what a run holds into its row.
CREATE OR REPLACE FUNCTION foliot.lock_pending(numbers_ bigint[]) RETURNS SETOF foliot.run LANGUAGE plpgsql AS $$
DECLARE
    free bigint[];
BEGIN
    SELECT array_agg(x.number) INTO free FROM (
        SELECT r.number FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.state < 2 FOR UPDATE SKIP LOCKED
    ) x;
    IF EXISTS (SELECT 1 FROM foliot.holding h WHERE h.number = ANY(free)) THEN
        UPDATE foliot.run r SET slots = h.slots FROM foliot.holding h
        WHERE r.number = ANY(free) AND h.number = r.number AND r.state < 2
            AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u);
    END IF;
    RETURN QUERY SELECT r.* FROM foliot.run r
    WHERE r.number = ANY(free) AND r.state < 2 AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
    ORDER BY r.number;
END $$;

-- Whether a run may need slots, by the names of what is limited. Inlined.
CREATE FUNCTION foliot.may_need_slots(limits text[], job text, queue text, tenant text, options bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(position('"concurrency_key"'::bytea in options) > 0, false) OR (limits <> '{}' AND (
        'job:' || job = ANY(limits) OR 'queue:' || coalesce(queue, 'default') = ANY(limits)
        OR coalesce('tenant:' || tenant = ANY(limits) OR (tenant IS NOT NULL AND 'tenant:*' = ANY(limits)), false)
        OR coalesce(position('"destination"'::bytea in options) > 0, false)))
$$;

-- As before. Runs that need slots are handed off here, too, if there is room for all of them: see `take_slots`.
CREATE OR REPLACE FUNCTION foliot.fire_runs(
    owner_ integer, shards_ smallint[], epochs_ bigint[], life_ text, fire_ats_ bigint[], numbers_ bigint[],
    late_ bigint, chunk_ integer, told pg_snapshot, ranks_ bigint[], whom_ jsonb, lead_ bigint, slot_ bigint,
    share_ integer, OUT now_ bigint, OUT handed integer, OUT odd boolean, OUT lost smallint[], OUT unranked boolean, OUT patient bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    same_life boolean;
    is_special boolean;
    limits text[] := '{}';
    paused text[] := '{}';
    lanes boolean := false;
    claimed bigint[];
    chunks integer := 0;
    at_once integer := 0;
    whom jsonb;
    first text;
    calls text[] := '{}';
    called bigint := 0;
    coming integer := 0;
    line bigint;
    taken bigint;
    have_slots boolean := false;
    one record;
BEGIN
    handed := 0;
    odd := false;
    unranked := false;
    patient := '{}';
    SELECT array_agg(s.shard) INTO lost FROM (
        SELECT s.shard FROM foliot.shard s
        WHERE s.shard = ANY(shards_) AND s.owner = owner_ AND s.epoch = epochs_[array_position(shards_, s.shard)]
        ORDER BY s.shard FOR NO KEY UPDATE
    ) s;
    -- After that, and so with a newer snapshot: what the owner before us handed off, and somebody claimed, is seen.
    SELECT life_ = '' OR life_ = (SELECT began::text FROM foliot.life),
        EXISTS (SELECT 1 FROM foliot.gate) OR EXISTS (SELECT 1 FROM foliot.breaker) OR EXISTS (SELECT 1 FROM foliot.pause),
        ARRAY(SELECT u.number FROM foliot.unwritten u)
    INTO same_life, is_special, claimed;
    IF is_special THEN
        SELECT ARRAY(
                SELECT g.name FROM foliot.gate g WHERE (g.most IS NOT NULL OR g.every IS NOT NULL) AND g.name NOT LIKE 'lane:%'
                UNION ALL SELECT 'to:' || b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL),
            ARRAY(SELECT p.name FROM foliot.pause p WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > foliot.now())),
            EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%'
                AND (g.most IS NOT NULL OR (g.every IS NOT NULL AND g.name <> 'lane:catch-up')))
        INTO limits, paused, lanes;
    END IF;
    IF same_life AND coalesce(cardinality(lost), 0) = cardinality(shards_) THEN
        lost := NULL;
    ELSE
        lost := CASE WHEN same_life THEN ARRAY(SELECT unnest(shards_) EXCEPT SELECT unnest(lost)) ELSE shards_ END;
        RETURN;
    END IF;
    now_ := foliot.now();
    FOR one IN
        SELECT coalesce(r.queue, 'default') AS queue, r.priority,
            CASE WHEN r.lane = 0 AND now_ - r.fire_at > late_ THEN 1::smallint ELSE r.lane END AS lane,
            r.schedule IS NOT NULL OR r.phase IS NOT NULL OR r.deaths IS NOT NULL OR coalesce(r.useful_until < now_, false)
                OR r.slots IS NOT NULL OR r.forced IS NOT NULL
                OR (r.options IS NOT NULL AND position('"labels"'::bytea in r.options) > 0)
                OR (paused <> '{}' AND (SELECT foliot.is_limited(paused, x) FROM foliot.run x WHERE x.number = r.number))
                OR (lanes AND (r.lane > 0 OR now_ - r.fire_at > late_)) AS odd,
            foliot.may_need_slots(limits, r.job, r.queue, r.tenant, r.options) AS limited,
            r.tenant IS NOT NULL AND ranks_ = '{}' AS unranked, coalesce(d.rank, 1) AS rank,
            CASE WHEN r.fire_at > now_ THEN (r.fire_at + slot_ - 1) / slot_ ELSE 0 END AS slot,
            max(r.fire_at) AS last, array_agg(r.number ORDER BY r.fire_at, r.number) AS numbers
        FROM foliot.run r JOIN unnest(fire_ats_, numbers_, ranks_) AS d(fire_at, number, rank)
            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ + lead_ AND r.state < 2
            AND (r.schedule IS NULL OR r.fired_at IS NULL)
            AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 4 DESC, 6 DESC, 5 DESC, 8, 3, 2 DESC, 7
    LOOP
        IF (one.odd OR one.limited) AND one.slot > 0 THEN
            patient := patient || one.numbers;
            CONTINUE;
        ELSIF one.odd OR one.unranked THEN
            odd := one.odd;
            unranked := one.unranked;
            RETURN;
        ELSIF one.limited AND NOT have_slots THEN
            -- For all of them at once, and before anything is handed off.
            have_slots := foliot.take_slots(ARRAY(
                SELECT r.number FROM foliot.run r JOIN unnest(fire_ats_, numbers_) AS d(fire_at, number)
                    ON d.number = r.number AND d.fire_at = r.fire_at
                WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ AND r.state < 2 AND r.number <> ALL(claimed)
                    AND foliot.may_need_slots(limits, r.job, r.queue, r.tenant, r.options)), now_);
            IF NOT have_slots THEN
                odd := true;
                RETURN;
            END IF;
        END IF;
        handed := handed + cardinality(one.numbers);
        whom := whom_ -> one.queue;
        FOR start IN 1 .. cardinality(one.numbers) BY chunk_ LOOP
            INSERT INTO foliot.handoff (queue, lane, priority, rank, fired_at, ready_at, numbers)
            VALUES (one.queue, one.lane, one.priority, one.rank, greatest(now_, one.last),
                CASE WHEN one.slot > 0 THEN one.last ELSE 0 END, one.numbers[start : start + chunk_ - 1])
            RETURNING n INTO line;
            chunks := chunks + 1;
            IF one.slot = 0 THEN
                at_once := at_once + 1;
                first := concat(whom ->> 0, ':' || line);
            ELSIF chunks <= 100 THEN
                calls := calls || concat(one.last, ':', whom ->> (coming / share_ % nullif(jsonb_array_length(whom), 0)), ':', line);
                coming := coming + least(chunk_, cardinality(one.numbers) - start + 1);
            ELSIF one.slot <> called THEN  -- a message has its limits
                calls := calls || concat(one.slot * slot_, ':');
                called := one.slot;
            END IF;
        END LOOP;
    END LOOP;
    IF told IS NOT NULL THEN
        DELETE FROM foliot.stir s WHERE s.shard = ANY(shards_) AND s.xid < pg_snapshot_xmax(told)
            AND pg_visible_in_snapshot(s.xid, told);
    END IF;
    IF at_once > 0 THEN
        calls := concat('0:', CASE WHEN at_once = 1 THEN first END) || calls;
    END IF;
    IF handed > 0 THEN
        -- Not all of them: while somebody's old transaction keeps the server from forgetting, there are many that are gone.
        SELECT least(now_, min(h.fired_at)) - 10000 INTO taken FROM foliot.handoff h WHERE h.n > line - 400 AND NOT h.aside;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true), CASE WHEN handed > 0 THEN
        pg_notify('foliot_handoff', concat_ws(' ', concat_ws('/', now_, taken, line - 400), array_to_string(calls, ' '))) END;
END $$;


-- As before. The slots of what ended are locked and freed where it is deleted. While failures of any destination are counted,
-- successes of runs that have one are left to the caller, which counts them.
CREATE OR REPLACE FUNCTION foliot.finish_runs(
    numbers_ bigint[], tokens_ bigint[], state_ smallint, started_ bigint[], finished_ bigint[], results_ bytea[]
) RETURNS TABLE (number bigint, token bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    schedules text[];
    broken boolean;
    ended bigint[];
    under bigint[];
    mine bigint := pg_current_xact_id()::text::bigint;
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) ORDER BY c.token FOR UPDATE;
    SELECT ARRAY(SELECT DISTINCT r.schedule FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.schedule IS NOT NULL),
        EXISTS (SELECT 1 FROM foliot.breaker)
    INTO schedules, broken;
    IF schedules <> '{}' THEN
        schedules := ARRAY(
            SELECT s.id FROM foliot.schedule s WHERE s.id = ANY(schedules) AND s.delay IS NULL ORDER BY s.id
            FOR UPDATE SKIP LOCKED) || ARRAY(
            SELECT s.id FROM foliot.series s WHERE s.id = ANY(schedules) ORDER BY s.id FOR UPDATE SKIP LOCKED);
        schedules := ARRAY(
            SELECT id FROM unnest(schedules) AS id
            EXCEPT SELECT r.schedule FROM foliot.run r WHERE r.schedule = ANY(schedules) AND r.state = 2
            EXCEPT SELECT substr(r.waits_for, 10) FROM foliot.run r
            WHERE r.waits_for = ANY(ARRAY(SELECT 'upstream:' || id FROM unnest(schedules) AS id)));
    END IF;
    WITH told AS (
        SELECT * FROM unnest(numbers_, tokens_, started_, finished_, results_)
            AS e(number, token, started_at, finished_at, result)
    ), gone AS (
        DELETE FROM foliot.run r USING told e JOIN (
            SELECT c.token, c.worker, c.lane, c.fired_at, c.claimed_at, c.written, unnest(c.numbers) AS number
            FROM foliot.claim c WHERE c.token = ANY(tokens_)
        ) c ON c.token = e.token AND c.number = e.number
        WHERE r.number = ANY(numbers_) AND r.number = e.number
            AND ((r.state < 2 AND NOT c.written) OR (r.state = 4 AND r.token = e.token)) AND r.phase IS NULL
            AND (r.schedule IS NULL OR r.schedule = ANY(schedules))
            AND r.number <> ALL(ARRAY(SELECT number FROM foliot.cancellation))
            AND NOT (broken AND coalesce(position('"destination"'::bytea in r.options) > 0, false))
        RETURNING r.number, r.name, r.origin, r.priority, r.job, r.payload, r.fire_at, r.nominal, r.since, r.schedule,
            r.revision, r.tenant, r.queue, r.options, r.spent, r.progress, r.lineage,
            r.attempt + CASE WHEN r.state < 2 THEN 1 ELSE 0 END AS attempt,
            e.token, c.worker, c.lane, foliot.fired(c.fired_at, c.claimed_at, r.fire_at) AS fired_at,
            greatest(c.claimed_at, r.fire_at) AS claimed_at, e.result,
            foliot.begun(e.started_at, c.claimed_at, r.fire_at) AS begun_at,
            greatest(e.finished_at, c.claimed_at, r.fire_at) AS finished_at
    ), kept AS (
        INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since,
            schedule, revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at,
            finished_at, progress, result, lineage, xid)
        SELECT number, name, state_, origin, lane, priority, job, payload, fire_at, nominal, since, schedule, revision,
            tenant, queue, options, attempt, spent + 1, token, worker, fired_at, claimed_at, begun_at, finished_at,
            progress, result, lineage, mine
        FROM gone
    )
    SELECT array_agg(g.number), array_agg(g.token) INTO ended, under FROM gone g;
    WITH closing AS MATERIALIZED (
        SELECT e.token, count(*) AS ended FROM unnest(under) AS e(token) GROUP BY e.token
    ), closed AS (
        DELETE FROM foliot.claim c USING closing x WHERE c.token = ANY(tokens_) AND c.token = x.token AND c.open <= x.ended
    )
    UPDATE foliot.claim c SET open = c.open - x.ended FROM closing x
    WHERE c.token = ANY(tokens_) AND c.token = x.token AND c.open > x.ended;
    IF cardinality(ended) IS DISTINCT FROM cardinality(numbers_) THEN
        RETURN QUERY SELECT e.number, e.token FROM unnest(numbers_, tokens_) AS e(number, token)
        EXCEPT SELECT * FROM unnest(ended, under);
    END IF;
END $$;
