-- Runs that need slots are handed off before their time, as other runs are, while their limits are far from binding. A batch reads
-- its runs once, and writes each slot once.

-- Starts by a rate that were handed off before their time: all at one moment, `ahead_at`. They are not in `tat` yet.
ALTER TABLE foliot.slot ADD COLUMN ahead_at bigint, ADD COLUMN ahead integer NOT NULL DEFAULT 0;

-- By GCRA, the theoretical arrival time of a rate once the starts before their time are counted.
CREATE FUNCTION foliot.tat_of(s foliot.slot) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN s.ahead > 0 THEN greatest(s.tat, s.ahead_at) + s.ahead * s.every ELSE s.tat END
$$;

-- A rate after so many more starts at a moment, which is now or to come; NULL if it does not allow them. Before their time
-- go only starts of a rate above 200/s (see GRAIN in foliot.domain.gates), and of one moment at a time.
CREATE FUNCTION foliot.after_starts(s foliot.slot, count_ bigint, now_ bigint, at_ bigint) RETURNS foliot.slot
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF s.ahead_at <= now_ THEN
        s.tat := foliot.tat_of(s);
        s.ahead := 0;
    END IF;
    IF at_ > now_ THEN
        IF s.every >= 5000 OR (s.ahead > 0 AND s.ahead_at <> at_) THEN
            RETURN NULL;
        END IF;
        s.ahead_at := at_;
        s.ahead := s.ahead + count_;
    ELSIF greatest(s.tat, now_) + (count_ - 1) * s.every - s.slack > now_ THEN
        RETURN NULL;
    ELSE
        s.tat := greatest(s.tat, now_) + count_ * s.every;
    END IF;
    IF s.ahead > 0 AND greatest(s.tat, s.ahead_at) + (s.ahead - 1) * s.every - s.slack > s.ahead_at THEN
        RETURN NULL;
    END IF;
    RETURN s;
END $$;

-- As before, for runs that are due between two moments: both are now, or both are to come.
-- Before their time runs take slots of a limit only while half of it stays free: a run that is due now does not wait for one
-- that is not. Starts by a rate are counted at their moment: see `after_starts`.
-- Each key has one write: its slot is made, or counted up if there is room.
DROP FUNCTION foliot.take_slots(bigint[], bigint);
CREATE FUNCTION foliot.take_slots(numbers_ bigint[], now_ bigint, from_ bigint, until_ bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    count_ bigint;
    names text[];
    counts bigint[];
    mosts integer[];
    everies bigint[];
    runs_ bigint[];
    held text[];
    keys integer;
    is_clear boolean;
    taken integer;
    taken_ integer := 0;
    spare integer := CASE WHEN until_ > now_ THEN 2 ELSE 1 END;
BEGIN
    PERFORM 1 FROM foliot.gate g ORDER BY g.name FOR SHARE;
    -- Runs are locked, because another transaction that ends a run must see what it holds.
    WITH due AS MATERIALIZED (
        SELECT r.number, r.job, r.queue, r.tenant,
            CASE WHEN position('"concurrency_key"'::bytea in r.options) > 0 OR position('"destination"'::bytea in r.options) > 0
                THEN r.options END AS options
        FROM foliot.run r
        WHERE r.number = ANY(numbers_) AND r.state < 2 AND r.fire_at <= until_
            AND r.slots IS NULL AND r.waits_for IS NULL AND r.forced IS NULL AND r.gives_up_at IS NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ), kind AS MATERIALIZED (
        SELECT d.job, coalesce(d.queue, 'default') AS queue, d.tenant, convert_from(d.options, 'UTF8')::jsonb AS wants,
            min(d.number) AS id, array_agg(d.number) AS numbers
        FROM due d GROUP BY d.job, d.queue, d.tenant, d.options
    ), gate AS MATERIALIZED (
        SELECT g.name, g.most, g.every FROM foliot.gate g WHERE g.most IS NOT NULL OR g.every IS NOT NULL
    ), allowed AS (
        SELECT k.id, k.numbers, g.name, g.most, g.every FROM kind k JOIN gate g ON g.name = 'job:' || k.job
        UNION ALL SELECT k.id, k.numbers, g.name, g.most, g.every FROM kind k JOIN gate g ON g.name = 'queue:' || k.queue
        UNION ALL SELECT k.id, k.numbers, g.name, g.most, g.every FROM kind k JOIN gate g ON g.name = 'tenant:' || k.tenant
        UNION ALL SELECT k.id, k.numbers, g.name, g.most, g.every FROM kind k JOIN gate g ON g.name = 'to:' || (k.wants ->> 'destination')
        UNION ALL SELECT k.id, k.numbers, 'tenant:' || k.tenant, g.most, g.every FROM kind k JOIN gate g ON g.name = 'tenant:*'
        WHERE k.tenant IS NOT NULL AND NOT EXISTS (SELECT 1 FROM gate o WHERE o.name = 'tenant:' || k.tenant)
    ), need AS MATERIALIZED (
        SELECT a.id, a.numbers, a.name, a.most, NULL::bigint AS every FROM allowed a WHERE a.most IS NOT NULL
        UNION ALL SELECT a.id, a.numbers, 'rate:' || a.name, NULL, a.every FROM allowed a WHERE a.every IS NOT NULL
        UNION ALL SELECT k.id, k.numbers, concat('key:', k.wants ->> 'concurrency_key', '[' || k.tenant || ']'),
            coalesce((k.wants ->> 'key_limit')::integer, 1), NULL
        FROM kind k WHERE k.wants ->> 'concurrency_key' IS NOT NULL
    )
    SELECT (SELECT count(*) FROM due), s.names, s.counts, s.mosts, s.everies, s.keys, s.is_clear, h.runs, h.held
    INTO count_, names, counts, mosts, everies, keys, is_clear, runs_, held
    FROM (
        SELECT array_agg(n.name) AS names, array_agg(n.count) AS counts, array_agg(n.most) AS mosts, array_agg(n.every) AS everies,
            count(*) FILTER (WHERE n.name LIKE 'key:%')::integer AS keys, bool_and(n.is_clear) AS is_clear
        FROM (
            SELECT n.name, sum(cardinality(n.numbers)) AS count, min(n.most) AS most, min(n.every) AS every,
                min(n.most) IS NOT DISTINCT FROM max(n.most) AS is_clear  -- not two limits of one key
            FROM need n GROUP BY n.name ORDER BY n.name COLLATE "C"
        ) n
    ) s, (
        SELECT array_agg(u.number) AS runs, array_agg(h.slots) AS held
        FROM (SELECT n.numbers, to_json(array_agg(n.name ORDER BY n.name COLLATE "C"))::text AS slots FROM need n
            WHERE n.every IS NULL GROUP BY n.id, n.numbers) h CROSS JOIN LATERAL unnest(h.numbers) AS u(number)
    ) h;
    IF count_ < cardinality(numbers_) OR NOT is_clear OR (from_ < until_ AND num_nonnulls(VARIADIC everies) > 0)
        OR (EXISTS (SELECT 1 FROM foliot.breaker b WHERE b.opened_at IS NOT NULL) AND EXISTS (
            SELECT 1 FROM foliot.run r WHERE r.number = ANY(numbers_) AND position('"destination"'::bytea in r.options) > 0))
    THEN
        RETURN false;
    END IF;
    IF names IS NULL THEN
        RETURN true;
    END IF;
    -- Before slots are locked: most of what does not fit is known by then.
    IF EXISTS (
        SELECT 1 FROM unnest(names, counts, mosts) AS n(name, count, most) LEFT JOIN foliot.slot s ON s.name = n.name
        WHERE n.most IS NOT NULL AND (coalesce(s.used, 0) + n.count) * spare > n.most)
    THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', '20ms', true);
    IF keys < cardinality(names) THEN
        PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
    END IF;
    IF keys > 0 THEN
        INSERT INTO foliot.slot (name, most, used)
        SELECT n.name, n.most, n.count FROM unnest(names, mosts, counts) AS n(name, most, count)
        WHERE n.name LIKE 'key:%' ORDER BY n.name COLLATE "C"
        ON CONFLICT (name) DO UPDATE SET most = excluded.most, used = slot.used + excluded.used
        WHERE (slot.used + excluded.used) * spare <= excluded.most;
        GET DIAGNOSTICS taken_ = ROW_COUNT;
    END IF;
    IF keys < cardinality(names) THEN
        UPDATE foliot.slot s SET used = s.used + n.count FROM unnest(names, counts, mosts) AS n(name, count, most)
        WHERE s.name = ANY(names) AND s.name = n.name AND n.name NOT LIKE 'key:%' AND s.every IS NULL AND s.most = n.most
            AND (s.used + n.count) * spare <= n.most;
        GET DIAGNOSTICS taken = ROW_COUNT;
        taken_ := taken_ + taken;
        UPDATE foliot.slot s SET tat = a.tat, ahead = a.ahead, ahead_at = a.ahead_at
        FROM unnest(names, counts, everies) AS n(name, count, every) JOIN foliot.slot o ON o.name = n.name AND o.every = n.every
            CROSS JOIN LATERAL foliot.after_starts(o, n.count, now_, until_) AS a
        WHERE s.name = ANY(names) AND o.name = ANY(names) AND s.name = n.name AND a.name IS NOT NULL;
        GET DIAGNOSTICS taken = ROW_COUNT;
        taken_ := taken_ + taken;
    END IF;
    PERFORM set_config('lock_timeout', '0', true);
    IF taken_ < cardinality(names) THEN
        RAISE SQLSTATE 'FL004';  -- there is no room in one of them: the others are given back
    END IF;
    INSERT INTO foliot.holding (number, slots) SELECT * FROM unnest(runs_, held);
    RETURN true;
EXCEPTION
    WHEN SQLSTATE 'FL004' OR lock_not_available OR deadlock_detected OR data_exception OR unique_violation THEN
        RETURN false;  -- unique: it holds slots already, of an earlier firing
END $$;

-- Runs that have their times by a rate, and need no other slot, give it up: they are handed off. A run that another transaction has
-- locked keeps it until it ends.
CREATE FUNCTION foliot.start_timed(numbers_ bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM foliot.gate g ORDER BY g.name FOR SHARE;  -- before the runs, as those who change a limit do
    UPDATE foliot.run r SET slots = NULL, waits_for = NULL, reason = NULL, detail = NULL
    WHERE r.number = ANY(ARRAY(
        -- Coalesced, because an index of what waits would read all that waits.
        SELECT x.number FROM foliot.run x WHERE x.number = ANY(numbers_) AND x.state < 2 AND coalesce(x.waits_for, '') LIKE 'rate:%'
        FOR NO KEY UPDATE SKIP LOCKED));
END $$;

-- The positions of the slots that runs wait for.
CREATE FUNCTION foliot.awaited(names text[]) RETURNS integer[] LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_bitmapscan = off SET enable_seqscan = off SET jit = off AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.state = 2 AND r.waits_for > '') THEN
        RETURN '{}';  -- sooner known than for each slot
    END IF;
    RETURN ARRAY(
        SELECT n.place::integer FROM unnest(names) WITH ORDINALITY AS n(name, place)
        WHERE (SELECT r.number FROM foliot.run r WHERE r.waits_for = n.name AND r.state = 2
            ORDER BY r.lane, r.priority DESC, r.fire_at, r.number LIMIT 1) IS NOT NULL);
END $$;

-- As before. One slot is not locked before it is written.
CREATE OR REPLACE FUNCTION foliot.free_units(names text[], counts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(names) > 1 THEN
        PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
    END IF;
    UPDATE foliot.slot s SET used = s.used - f.count FROM unnest(names, counts) AS f(name, count)
    WHERE s.name = ANY(names) AND s.name = f.name;
    PERFORM foliot.let_in(names);
END $$;

-- As before, in a language that keeps its plans from call to call.
CREATE OR REPLACE FUNCTION foliot.may_pass_on(now_ bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT 1 FROM foliot.pause p WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > now_))
        AND NOT EXISTS (SELECT 1 FROM foliot.breaker b WHERE b.opened_at IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%');
END $$;

-- Replaces a part of a function. Between two parts the body may be none.
CREATE FUNCTION foliot.amend(name_ text, old_ text, new_ text) RETURNS void LANGUAGE plpgsql SET check_function_bodies = off AS $$
DECLARE
    text_ text;
BEGIN
    SELECT pg_get_functiondef(p.oid) INTO STRICT text_ FROM pg_proc p
    WHERE p.proname = name_ AND p.pronamespace = 'foliot'::regnamespace;
    IF length(text_) - length(replace(text_, old_, '')) <> length(old_) THEN
        RAISE EXCEPTION 'foliot.% is not the function of the step before: % is not there once', name_, old_;
    END IF;
    EXECUTE replace(text_, old_, new_);
END $$;

-- Runs that need slots go before their time, too, if `take_slots` allows it, and so do those that have their time by a rate. Runs whose
-- limit is used up are left for their time, and then for the caller, without a try.
SELECT foliot.amend('fire_runs', $old$    lanes boolean := false;
$old$, $new$    lanes boolean := false;
    used_up text[] := '{}';
    rates text[] := '{}';
    may_be_early boolean := true;
$new$);
SELECT foliot.amend('fire_runs', $old$        INTO limits, paused, lanes;
$old$, $new$        INTO limits, paused, lanes;
        used_up := ARRAY(
            SELECT regexp_replace(s.name, '^rate:', '') FROM foliot.slot s
            WHERE s.name = ANY(limits || ARRAY(SELECT 'rate:' || l.name FROM unnest(limits) AS l(name)))
                AND CASE WHEN s.every IS NULL THEN s.used >= s.most ELSE s.used > 0 END);
        rates := ARRAY(SELECT g.name FROM foliot.gate g WHERE g.every IS NOT NULL AND g.most IS NULL);
$new$);
SELECT foliot.amend('fire_runs', $old$                OR r.slots IS NOT NULL OR r.forced IS NOT NULL
$old$, $new$                OR (r.slots IS NOT NULL AND NOT t.timed) OR r.forced IS NOT NULL
$new$);
SELECT foliot.amend('fire_runs', $old$            foliot.may_need_slots(limits, r.job, r.queue, r.tenant, r.options) AS limited,
$old$, $new$            NOT t.timed AND foliot.may_need_slots(limits, r.job, r.queue, r.tenant, r.options) AS limited, t.timed,
$new$);
SELECT foliot.amend('fire_runs', $old$            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ + lead_$old$, $new$            ON d.number = r.number AND d.fire_at = r.fire_at
            CROSS JOIN LATERAL (SELECT rates <> '{}' AND r.waits_for IS NOT NULL AND r.slots = '["' || r.waits_for || '"]'
                AND substr(r.waits_for, 6) = ANY(rates) AND r.tenant IS NULL AND r.gives_up_at IS NULL
                AND NOT foliot.may_need_slots(array_remove(limits, substr(r.waits_for, 6)), r.job, r.queue, NULL, r.options) AS timed) t
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ + lead_$new$);
SELECT foliot.amend('fire_runs', $old$            r.tenant IS NOT NULL AND ranks_ = '{}' AS unranked$old$, $new$            used_up <> '{}' AND foliot.may_need_slots(used_up, r.job, r.queue, r.tenant, NULL) AS waits,
            r.tenant IS NOT NULL AND ranks_ = '{}' AS unranked$new$);
SELECT foliot.amend('fire_runs', $old$    FOR one IN
        SELECT coalesce(r.queue,$old$, $new$    FOR one IN
        SELECT g.*, sum(cardinality(g.numbers)) FILTER (WHERE g.limited AND g.slot = 0) OVER () AS limited_now FROM (
        SELECT coalesce(r.queue,$new$);
SELECT foliot.amend('fire_runs', $old$max(r.fire_at) AS last,$old$, $new$min(r.fire_at) AS first_at, max(r.fire_at) AS last,$new$);
SELECT foliot.amend('fire_runs', $old$GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 4 DESC, 6 DESC, 5 DESC, 8, 3, 2 DESC, 7$old$,
    $new$GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) g
        ORDER BY g.odd DESC, g.unranked DESC, g.limited DESC, g.timed DESC, g.slot, g.waits DESC, g.lane, g.priority DESC, g.rank$new$);
SELECT foliot.amend('fire_runs', $old$        IF (one.odd OR one.limited) AND one.slot > 0 THEN$old$, $new$        IF one.slot > 0 AND (one.odd OR (one.limited AND (one.waits OR NOT may_be_early))) THEN$new$);
SELECT foliot.amend('fire_runs', $old$ELSIF one.limited AND NOT have_slots THEN$old$, $new$ELSIF one.limited AND one.slot = 0 AND NOT have_slots THEN$new$);
SELECT foliot.amend('fire_runs', $old$have_slots := foliot.take_slots(ARRAY($old$, $new$have_slots := NOT one.waits AND foliot.take_slots(CASE
                WHEN one.limited_now = cardinality(one.numbers) THEN one.numbers ELSE ARRAY($new$);
SELECT foliot.amend('fire_runs', $old$r.options)), now_);
$old$, $new$r.options)) END, now_, now_, now_);
$new$);
SELECT foliot.amend('fire_runs', $old$                odd := true;
                RETURN;
            END IF;
        END IF;
$old$, $new$                odd := true;
                RETURN;
            END IF;
        ELSIF one.limited AND one.slot > 0 THEN
            may_be_early := foliot.take_slots(one.numbers, now_, one.first_at, one.last);
            IF NOT may_be_early THEN
                patient := patient || one.numbers;
                CONTINUE;
            END IF;
        ELSIF one.timed THEN
            PERFORM foliot.start_timed(one.numbers);
        END IF;
$new$);
-- Starts before their time are counted, and slots are looked at one by one only if any run waits.
SELECT foliot.amend('let_in', $old$BEGIN
    SELECT array_agg(s.name)$old$, $new$BEGIN
    IF cardinality(names) > 4 AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.state = 2 AND r.waits_for > '') THEN
        RETURN;  -- sooner known than for each slot
    END IF;
    SELECT array_agg(s.name)$new$);
SELECT foliot.amend('let_in', $old$greatest(s.tat, now_)
                +$old$, $new$greatest(foliot.tat_of(s), now_)
                +$new$);
SELECT foliot.amend('let_in', $old$ELSE greatest(s.tat, now_) + c.count * s.every END
$old$, $new$ELSE greatest(foliot.tat_of(s), now_) + c.count * s.every END, ahead = 0
$new$);
-- Standbys are looked for only where runs wait.
SELECT foliot.amend('finish_and_claim', $old$        FOR place IN 1 .. cardinality(lines) LOOP
$old$, $new$        FOREACH place IN ARRAY foliot.awaited(lines) LOOP
$new$);
-- Holdings are read by their numbers. A join may read them all.
SELECT foliot.amend('run_let_go', $old$DELETE FROM foliot.holding h USING old_runs o WHERE h.number = o.number AND o.state < 2 RETURNING h.slots$old$,
    $new$DELETE FROM foliot.holding h WHERE h.number = ANY(ARRAY(SELECT o.number FROM old_runs o WHERE o.state < 2)) RETURNING h.slots$new$);
SELECT foliot.amend('run_let_go', $old$            WHERE h.number = o.number AND o.state < 2
$old$, $new$            WHERE h.number = ANY(ARRAY(SELECT x.number FROM old_runs x WHERE x.state < 2)) AND h.number = o.number AND o.state < 2
$new$);

DROP FUNCTION foliot.amend(text, text, text);
