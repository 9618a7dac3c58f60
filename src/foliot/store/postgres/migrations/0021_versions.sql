-- A chunk names runs as they were when they were handed off, and a claim takes them only as that: `version` counts the changes of
-- a run (it was moved, it was replaced, or an attempt ended and the run goes on; NULL: none). A chunk has the version of its
-- runs. NULL in a chunk: it was made by a release that does not write versions, and is not compared.
ALTER TABLE foliot.run ADD COLUMN version integer;
ALTER TABLE foliot.handoff ADD COLUMN version integer;

-- As before. Replacing a promise raises its version.
CREATE OR REPLACE FUNCTION foliot.make_promise(
    number_ bigint, stem text, job_ text, payload_ bytea, fire_at_ bigint, useful_until_ bigint, tenant_ text,
    queue_ text, priority_ integer, options_ bytea, on_conflict text, unique_for bigint
) RETURNS foliot.kept LANGUAGE plpgsql AS $$
DECLARE
    latest record;
    live boolean;
    kept foliot.kept;
    generation bigint := 0;
    outcome_ text := 'made';
    shard_ smallint;
BEGIN
    LOOP
        -- The order of generations: by length and then by text, as numbers are written without leading zeros.
        SELECT n.name, n.number INTO latest FROM foliot.named n
        WHERE n.name >= stem AND n.name < left(stem, -1) || '$' AND substr(n.name, length(stem) + 1) ~ '^[0-9]+$'
        ORDER BY length(n.name) DESC, n.name DESC LIMIT 1;
        IF FOUND THEN
            generation := substr(latest.name, length(stem) + 1)::bigint;
            SELECT r.number, r.name, 'kept', r.state, r.fire_at INTO kept FROM foliot.live_runs r
            WHERE r.number = latest.number;
            live := FOUND;
            IF NOT live THEN
                SELECT h.number, h.name, 'kept', h.state, h.fire_at INTO kept FROM foliot.history h
                WHERE h.number = latest.number;
            END IF;
            IF NOT live AND (NOT FOUND OR (latest.number >> 22) * 1000 + 1577836800000000 + unique_for < foliot.now()) THEN
                NULL;  -- forgotten: a new one is made
            ELSIF on_conflict = 'keep' THEN
                RETURN kept;
            ELSIF on_conflict = 'replace' THEN
                -- What is due, or will be in a moment, may be claimed, and an old snapshot does not show that.
                IF kept.fire_at <= foliot.now() + 1000000 AND current_setting('transaction_isolation') <> 'read committed' THEN
                    RAISE EXCEPTION '% is due within a second, and can be replaced only in a transaction of isolation level '
                        'READ COMMITTED, not %', kept.name, upper(current_setting('transaction_isolation'))
                        USING ERRCODE = '25001';
                END IF;
                -- Whoever is running keeps what he has, and does not wait for this transaction.
                IF kept.state IN (0, 2) THEN
                    PERFORM 1 FROM foliot.run r WHERE r.number = latest.number FOR UPDATE;
                END IF;
                UPDATE foliot.run r SET job = job_, payload = payload_, fire_at = fire_at_, nominal = NULL,
                    useful_until = useful_until_, priority = priority_, queue = queue_, options = options_,
                    fired_at = NULL, state = 0, reason = NULL, detail = NULL, waits_for = NULL, slots = NULL, forced = NULL, gives_up_at = NULL,
                    spent = 0, progress = NULL, checkpoint = NULL, version = coalesce(r.version, 0) + 1
                WHERE r.number = latest.number AND r.state IN (0, 2)
                    AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
                    AND NOT EXISTS (SELECT 1 FROM foliot.effect e WHERE e.lineage = r.number)
                    AND NOT EXISTS (SELECT 1 FROM foliot.item i WHERE i.lineage = r.number)
                RETURNING r.shard INTO shard_;
                IF FOUND THEN
                    INSERT INTO foliot.stir (shard, numbers) VALUES (shard_, ARRAY[latest.number]);
                    kept.outcome := 'replaced'; kept.state := 0; kept.fire_at := fire_at_;
                ELSE
                    kept.outcome := 'refused';
                    kept.state := coalesce(
                        (SELECT r.state FROM foliot.live_runs r WHERE r.number = latest.number), kept.state);
                END IF;
                RETURN kept;
            ELSIF on_conflict = 'renew' AND (NOT live OR kept.state >= 20) THEN
                outcome_ := 'renewed';
            ELSE
                kept.outcome := 'refused';
                RETURN kept;
            END IF;
        END IF;
        kept := (coalesce(number_, foliot.next_number()), stem || (generation + 1), outcome_, 0::smallint, fire_at_);
        INSERT INTO foliot.named (name, number) VALUES (kept.name, kept.number) ON CONFLICT (name) DO NOTHING;
        EXIT WHEN FOUND;
        -- Somebody else made it at the same moment: look again.
    END LOOP;
    PERFORM foliot.insert_promise(kept.number, kept.name, job_, payload_, fire_at_, useful_until_, tenant_, queue_,
        priority_, options_);
    RETURN kept;
END $$;

-- As before. The holding of a run that is changed ends, also if the run keeps its time.
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
                AND (n.slots IS NOT NULL OR n.state = 2 OR n.state >= 20 OR (n.state < 2
                    AND (n.fire_at <> o.fire_at OR n.version IS DISTINCT FROM o.version)))
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

-- As before. Each chunk has the version of its runs.
CREATE OR REPLACE FUNCTION foliot.pass_on(numbers_ bigint[], now_ bigint) RETURNS void LANGUAGE plpgsql AS $$
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
                FROM line l GROUP BY l.queue, l.lane, l.priority, l.version, (l.place - 1) / 200 RETURNING numbers
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

-- As before. Each chunk has the version of its runs.
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
            coalesce(r.version, 0) AS version,
            max(r.fire_at) AS last, array_agg(r.number ORDER BY r.fire_at, r.number) AS numbers
        FROM foliot.run r JOIN unnest(fire_ats_, numbers_, ranks_) AS d(fire_at, number, rank)
            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ + lead_ AND r.state < 2
            AND (r.schedule IS NULL OR r.fired_at IS NULL)
            AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 4 DESC, 6 DESC, 5 DESC, 8, 3, 2 DESC, 7
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
            INSERT INTO foliot.handoff (queue, lane, priority, rank, version, fired_at, ready_at, numbers)
            VALUES (one.queue, one.lane, one.priority, one.rank, one.version, greatest(now_, one.last),
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

-- As before. Runs of another version than the chunk names are passed over.
CREATE OR REPLACE FUNCTION foliot.claim_runs(
    worker_ integer, queues_ text[], jobs_ text[], limit_ integer, chunks_ integer, tokens_ bigint[], suspects_ boolean,
    backlog_ integer, put_off_ integer, labels_ text[], carefully_ boolean, named_ bigint[], ahead_ bigint
) RETURNS TABLE (
    number bigint, name text, job text, payload bytea, token bigint, attempt integer, spent integer, fire_at bigint,
    nominal bigint, since bigint, schedule text, revision integer, tenant text, queue text, priority integer,
    origin smallint, lane smallint, options bytea, checkpoint bytea, phase smallint, lineage bigint, repair boolean,
    deaths smallint, early bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    clock bigint := foliot.now();
    room integer := limit_;
    used integer := 0;
    got integer;
    most integer;
    takes text[] := jobs_;
    found_ refcursor;
    chunk record;
    part bigint[];
    free bigint[];
    parts bigint[] := '{}';
    firsts integer[] := '{}';
    lanes smallint[] := '{}';
    fired_ats bigint[] := '{}';
    lines bigint[] := '{}';
    is_alive boolean;
    is_any boolean;
    later bigint;
    broken text[];
    paused text[];
BEGIN
    SELECT EXISTS (SELECT 1 FROM foliot.instance i WHERE i.number = worker_ AND i.ended_at IS NULL),
        EXISTS (SELECT 1 FROM foliot.handoff),
        ARRAY(SELECT b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL),
        ARRAY(SELECT p.what || ':' || p.name FROM foliot.pause p
            WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > clock))
    INTO is_alive, is_any, broken, paused;
    IF NOT is_alive THEN
        RAISE EXCEPTION 'worker % was declared dead', worker_ USING ERRCODE = 'FL003';
    END IF;
    IF NOT is_any THEN
        RETURN;  -- somebody else was sooner
    END IF;
    carefully_ := carefully_ OR broken <> '{}' OR paused <> '{}';
    backlog_ := coalesce(backlog_, limit_);
    put_off_ := coalesce(put_off_, limit_);
    IF labels_ <> '{}' THEN
        takes := takes || ARRAY(
            SELECT DISTINCT h.job FROM foliot.handoff h WHERE position('@' in h.job) > 0
                AND split_part(h.job, '@', 1) = ANY(jobs_) AND string_to_array(split_part(h.job, '@', 2), ',') <@ labels_);
    END IF;
    LOOP
        IF named_ <> '{}' THEN
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers, h.version
            FROM foliot.handoff h
            WHERE h.n = ANY(named_) AND h.ready_at <= clock + ahead_ AND h.queue = ANY(queues_)
                AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside AND NOT h.alone
            ORDER BY h.lane, h.priority DESC, h.rank, h.n FOR UPDATE SKIP LOCKED;
        ELSIF put_off_ > 0 THEN
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers, h.version
            FROM foliot.handoff h
            WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside
                AND (suspects_ OR NOT h.alone) AND (h.lane = 0 OR backlog_ > 0)
            ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT chunks_ FOR UPDATE SKIP LOCKED;
        ELSE
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers, h.version
            FROM foliot.handoff h
            WHERE NOT (h.rank > 1 AND h.rank % 2 = 1)
                AND h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside
                AND (suspects_ OR NOT h.alone) AND (h.lane = 0 OR backlog_ > 0)
            ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT chunks_ FOR UPDATE SKIP LOCKED;
        END IF;
        LOOP
            FETCH found_ INTO chunk;
            EXIT WHEN NOT FOUND OR room <= 0 OR (chunk.lane > 0 AND backlog_ <= 0);
            -- Of runs that may have killed a worker, one at a time.
            CONTINUE WHEN chunk.alone AND NOT suspects_;
            most := least(room, CASE WHEN chunk.lane > 0 THEN backlog_ END,
                CASE WHEN chunk.rank > 1 AND chunk.rank % 2 = 1 THEN put_off_ - (limit_ - room) END);
            CONTINUE WHEN most <= 0;
            suspects_ := suspects_ AND NOT chunk.alone;
            used := used + 1;
            part := chunk.numbers[1:most];
            room := room - cardinality(part);
            backlog_ := backlog_ - CASE WHEN chunk.lane = 0 THEN 0 ELSE cardinality(part) END;
            IF carefully_ THEN
                -- Nobody waits for a run that somebody's open transaction has its hands on.
                SELECT array_agg(x.number) INTO free FROM (
                    SELECT r.number FROM foliot.run r WHERE r.number = ANY(part) FOR NO KEY UPDATE SKIP LOCKED
                ) x;
                RETURN QUERY
                WITH taken AS MATERIALIZED (
                    SELECT r.number, r.name, r.job, r.payload, tokens_[used] AS token, r.attempt + 1, r.spent, r.fire_at, r.nominal,
                        r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, chunk.lane, r.options,
                        r.checkpoint, r.phase, r.lineage, coalesce(r.repair, false), r.deaths,
                        greatest(r.fire_at - clock, 0) AS early
                    FROM foliot.run r
                    WHERE r.number = ANY(free) AND r.state < 2 AND r.fire_at <= clock + ahead_
                        AND (chunk.version IS NULL OR coalesce(r.version, 0) = chunk.version)
                        AND CASE WHEN r.phase IS NULL THEN r.job ELSE r.job || '?' END = ANY(jobs_)
                        AND (r.useful_until IS NULL OR r.useful_until >= clock) AND coalesce(r.queue, 'default') = chunk.queue
                        AND (broken = '{}' OR NOT coalesce(foliot.bound_for(r) = ANY(broken), false))
                        AND (paused = '{}' OR NOT foliot.is_paused(paused, r))
                        AND NOT EXISTS (SELECT 1 FROM foliot.unwritten u WHERE u.number = r.number)
                ), noted AS (
                    INSERT INTO foliot.claim (token, worker, claimed_at, fired_at, lane, open, numbers)
                    SELECT tokens_[used], worker_, clock, chunk.fired_at, chunk.lane, count(*), array_agg(t.number)
                    FROM taken t HAVING count(*) > 0
                )
                SELECT * FROM taken t ORDER BY t.fire_at, t.number;
                GET DIAGNOSTICS got = ROW_COUNT;
                IF got < cardinality(part) THEN
                    INSERT INTO foliot.handoff (queue, lane, priority, rank, version, fired_at, job, alone, aside, numbers)
                    SELECT chunk.queue, chunk.lane, chunk.priority, chunk.rank, chunk.version, chunk.fired_at, chunk.job, chunk.alone,
                        true, array_agg(u.number)
                    FROM unnest(part) AS u(number)
                    WHERE u.number NOT IN (SELECT unnest(c.numbers) FROM foliot.claim c WHERE c.token = tokens_[used])
                    HAVING count(*) > 0;
                END IF;
                IF cardinality(part) = cardinality(chunk.numbers) THEN
                    DELETE FROM foliot.handoff h WHERE h.n = chunk.n;
                ELSE
                    UPDATE foliot.handoff h SET numbers = chunk.numbers[cardinality(part) + 1 :] WHERE h.n = chunk.n;
                END IF;
            ELSE
                RETURN QUERY
                SELECT r.number, r.name, r.job, r.payload, tokens_[used], r.attempt + 1, r.spent, r.fire_at, r.nominal,
                    r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, chunk.lane, r.options,
                    r.checkpoint, r.phase, r.lineage, coalesce(r.repair, false), r.deaths,
                    greatest(r.fire_at - clock, 0)
                FROM foliot.run r
                WHERE r.number = ANY(part) AND r.state < 2 AND r.fire_at <= clock + ahead_
                    AND (chunk.version IS NULL OR coalesce(r.version, 0) = chunk.version)
                    AND CASE WHEN r.phase IS NULL THEN r.job ELSE r.job || '?' END = ANY(jobs_)
                    AND (r.useful_until IS NULL OR r.useful_until >= clock) AND coalesce(r.queue, 'default') = chunk.queue
                FOR NO KEY UPDATE OF r SKIP LOCKED;
                GET DIAGNOSTICS got = ROW_COUNT;
                IF got < cardinality(part) THEN
                    number := NULL;
                    name := 'carefully';
                    RETURN NEXT;
                    RETURN;
                END IF;
                firsts := firsts || cardinality(parts) + 1;
                parts := parts || part;
                lanes := lanes || chunk.lane;
                fired_ats := fired_ats || chunk.fired_at;
                lines := lines || chunk.n;
            END IF;
        END LOOP;
        CLOSE found_;
        -- Others have their hands on all there is. Of a chunk as large as what we want, they may leave some.
        EXIT WHEN used > 0 OR limit_ < 1 OR named_ <> '{}';
        SELECT h.n INTO chunk FROM foliot.handoff h
        WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside
            AND cardinality(h.numbers) >= limit_ AND NOT h.alone AND (h.lane = 0 OR backlog_ > 0)
            AND (put_off_ > 0 OR NOT (h.rank > 1 AND h.rank % 2 = 1))
        ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT 1;
        EXIT WHEN NOT FOUND;
        PERFORM 1 FROM foliot.handoff h WHERE h.n = chunk.n FOR UPDATE;
    END LOOP;
    IF parts <> '{}' THEN
        -- With a newer snapshot than the locks had, so that a claim is seen which was committed before them.
        IF EXISTS (SELECT 1 FROM unnest(parts) AS p(number) JOIN foliot.unwritten u ON u.number = p.number)
            OR (used > 1 AND (SELECT count(DISTINCT p.number) FROM unnest(parts) AS p(number)) < cardinality(parts)) THEN
            number := NULL;
            name := 'carefully';
            RETURN NEXT;
            RETURN;
        END IF;
        FOR place IN 1 .. used LOOP
            part := parts[firsts[place] : coalesce(firsts[place + 1] - 1, cardinality(parts))];
            INSERT INTO foliot.claim (token, worker, claimed_at, fired_at, lane, open, numbers)
            VALUES (tokens_[place], worker_, clock, fired_ats[place], lanes[place], cardinality(part), part);
            DELETE FROM foliot.handoff h WHERE h.n = lines[place] AND cardinality(h.numbers) = cardinality(part);
            IF NOT FOUND THEN
                UPDATE foliot.handoff h SET numbers = h.numbers[cardinality(part) + 1 :] WHERE h.n = lines[place];
            END IF;
        END LOOP;
    END IF;
    IF EXISTS (SELECT 1 FROM foliot.handoff h WHERE h.aside) THEN
        RETURN NEXT;
    ELSIF used = 0 AND limit_ > 0 AND named_ = '{}' THEN
        SELECT min(h.ready_at) INTO later FROM foliot.handoff h WHERE h.ready_at > clock AND h.queue = ANY(queues_);
        IF later IS NOT NULL THEN
            name := 'later';
            fire_at := later - clock;
            RETURN NEXT;
        END IF;
    END IF;
END $$;

-- As before. Runs of another version than the chunk names are passed over.
CREATE OR REPLACE FUNCTION foliot.claim_within(
    worker_ integer, tenant_ text, queues_ text[], jobs_ text[], limit_ integer, tokens_ bigint[], suspects_ boolean,
    labels_ text[]
) RETURNS TABLE (
    number bigint, name text, job text, payload bytea, token bigint, attempt integer, spent integer, fire_at bigint,
    nominal bigint, since bigint, schedule text, revision integer, tenant text, queue text, priority integer,
    origin smallint, lane smallint, options bytea, checkpoint bytea, phase smallint, lineage bigint, repair boolean,
    deaths smallint, early bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    clock bigint := foliot.now();
    room integer := limit_;
    used integer := 0;
    got integer;
    takes text[] := jobs_;
    line bigint;
    chunk record;
    foreign_ bigint[];
    part bigint[];
    free bigint[];
    broken text[];
    paused text[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.instance i WHERE i.number = worker_ AND i.ended_at IS NULL) THEN
        RAISE EXCEPTION 'worker % was declared dead', worker_ USING ERRCODE = 'FL003';
    END IF;
    SELECT ARRAY(SELECT b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL),
        ARRAY(SELECT p.what || ':' || p.name FROM foliot.pause p
            WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > clock))
    INTO broken, paused;
    IF labels_ <> '{}' THEN
        takes := takes || ARRAY(
            SELECT DISTINCT h.job FROM foliot.handoff h WHERE position('@' in h.job) > 0
                AND split_part(h.job, '@', 1) = ANY(jobs_) AND string_to_array(split_part(h.job, '@', 2), ',') <@ labels_);
    END IF;
    FOR line IN
        SELECT h.n FROM foliot.handoff h
        WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside
            AND (suspects_ OR NOT h.alone)
        ORDER BY h.lane, h.priority DESC, h.rank, h.n
    LOOP
        EXIT WHEN room <= 0 OR used >= cardinality(tokens_);
        -- Looked at before it is locked: most chunks may be of other tenants.
        CONTINUE WHEN NOT EXISTS (
            SELECT 1 FROM foliot.handoff h CROSS JOIN unnest(h.numbers) AS u(number)
            LEFT JOIN foliot.run r ON r.number = u.number
            WHERE h.n = line AND (r.number IS NULL OR r.state >= 2 OR r.tenant IS NOT DISTINCT FROM tenant_));
        SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers, h.version INTO chunk
        FROM foliot.handoff h WHERE h.n = line FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND OR (chunk.alone AND NOT suspects_);
        foreign_ := ARRAY(
            SELECT r.number FROM foliot.run r
            WHERE r.number = ANY(chunk.numbers) AND r.state < 2 AND r.tenant IS DISTINCT FROM tenant_);
        part := ARRAY(
            SELECT u.number FROM unnest(chunk.numbers) WITH ORDINALITY AS u(number, place)
            WHERE u.number <> ALL(foreign_) ORDER BY u.place LIMIT room);
        CONTINUE WHEN part = '{}';
        suspects_ := suspects_ AND NOT chunk.alone;
        used := used + 1;
        room := room - cardinality(part);
        SELECT array_agg(x.number) INTO free FROM (
            SELECT r.number FROM foliot.run r WHERE r.number = ANY(part) FOR NO KEY UPDATE SKIP LOCKED
        ) x;
        RETURN QUERY
        WITH taken AS MATERIALIZED (
            SELECT r.number, r.name, r.job, r.payload, tokens_[used] AS token, r.attempt + 1, r.spent, r.fire_at, r.nominal,
                r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, chunk.lane, r.options,
                r.checkpoint, r.phase, r.lineage, coalesce(r.repair, false), r.deaths, 0::bigint AS early
            FROM foliot.run r
            WHERE r.number = ANY(free) AND r.state < 2 AND r.fire_at <= clock AND r.tenant IS NOT DISTINCT FROM tenant_
                AND (chunk.version IS NULL OR coalesce(r.version, 0) = chunk.version)
                AND CASE WHEN r.phase IS NULL THEN r.job ELSE r.job || '?' END = ANY(jobs_)
                AND (r.useful_until IS NULL OR r.useful_until >= clock) AND coalesce(r.queue, 'default') = chunk.queue
                AND (broken = '{}' OR NOT coalesce(foliot.bound_for(r) = ANY(broken), false))
                AND (paused = '{}' OR NOT foliot.is_paused(paused, r))
                AND NOT EXISTS (SELECT 1 FROM foliot.unwritten u WHERE u.number = r.number)
        ), noted AS (
            INSERT INTO foliot.claim (token, worker, claimed_at, fired_at, lane, open, numbers)
            SELECT tokens_[used], worker_, clock, chunk.fired_at, chunk.lane, count(*), array_agg(t.number)
            FROM taken t HAVING count(*) > 0
        )
        SELECT * FROM taken t ORDER BY t.fire_at, t.number;
        GET DIAGNOSTICS got = ROW_COUNT;
        IF got < cardinality(part) THEN
            INSERT INTO foliot.handoff (queue, lane, priority, rank, version, fired_at, job, alone, aside, numbers)
            SELECT chunk.queue, chunk.lane, chunk.priority, chunk.rank, chunk.version, chunk.fired_at, chunk.job, chunk.alone, true,
                array_agg(u.number)
            FROM unnest(part) AS u(number)
            WHERE u.number NOT IN (SELECT unnest(c.numbers) FROM foliot.claim c WHERE c.token = tokens_[used])
            HAVING count(*) > 0;
        END IF;
        IF cardinality(part) = cardinality(chunk.numbers) THEN
            DELETE FROM foliot.handoff h WHERE h.n = chunk.n;
        ELSE
            UPDATE foliot.handoff h SET numbers = ARRAY(
                SELECT u.number FROM unnest(chunk.numbers) WITH ORDINALITY AS u(number, place)
                WHERE u.number <> ALL(part) ORDER BY u.place)
            WHERE h.n = chunk.n;
        END IF;
    END LOOP;
    IF EXISTS (SELECT 1 FROM foliot.handoff h WHERE h.aside) THEN
        RETURN NEXT;
    END IF;
END $$;
