-- The three steps that carry the load: handing off, claiming, ending. Each is one call, because a round trip costs more than
-- the work on a few runs. A statement inside of it costs more than that, too, before it has touched a row: so what has to be
-- known is asked for together, and what is usual goes by as few of them as there can be.

-- Hands off runs without a schedule: the shards are locked under their epochs, what the clock has not reached or what
-- changed meanwhile is left alone, the rest goes into chunks of one queue, lane, priority and rank. If any of it needs more
-- thought (a tick, a check, a run under suspicion or past its usefulness, one that may be limited or paused), nothing is done
-- here, and `odd` says so. `lost` are shards that are no longer the owner's. `ranks_` says where tenants' runs stand among one
-- another (see foliot.domain.fairness); without it, and if there are any, nothing is done either, and `unranked` says so.
-- `told` is a snapshot: stirs that it has seen are in the owner's memory.
-- What falls due within `lead_` goes, too, into chunks that are ready when the last of their runs is due: those of one
-- `slot_` share one. A slot ends with its last moment, so that what is due on the full second waits for nothing that comes
-- after it. What would need more thought is left for its time, and named in `patient`.
-- `whom_` are, by queue, workers to be called in turn: for chunks that are to come one of them until it has `share_` runs, and then
-- the next; for chunks that are there at once all are called, unless there is but one. The message: this moment, and until when
-- whatever was ready is taken, of chunks behind a number; and of each call when the chunk is ready (0: it is), who is to come
-- (nobody: all), and for which chunk.
-- Nobody waits for the disk: should a crash forget this, then with it the server's life, and every owner reads its cells
-- anew. A claim that was acknowledged is on disk, and so is what came before it.
CREATE FUNCTION foliot.fire_runs(
    owner_ integer, shards_ smallint[], epochs_ bigint[], life_ text, fire_ats_ bigint[], numbers_ bigint[],
    late_ bigint, chunk_ integer, told pg_snapshot, ranks_ bigint[], whom_ jsonb, lead_ bigint, slot_ bigint,
    share_ integer, OUT now_ bigint, OUT handed integer, OUT odd boolean, OUT lost smallint[], OUT unranked boolean, OUT patient bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    same_life boolean;
    is_special boolean;
    limits text[] := '{}';
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
                UNION ALL SELECT 'to:' || b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL
                UNION ALL SELECT p.name FROM foliot.pause p
                WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > foliot.now())),
            EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%'
                AND (g.most IS NOT NULL OR (g.every IS NOT NULL AND g.name <> 'lane:catch-up')))
        INTO limits, lanes;
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
                OR (r.options IS NOT NULL AND (position('"concurrency_key"'::bytea in r.options) > 0
                    OR position('"labels"'::bytea in r.options) > 0))
                OR (limits <> '{}' AND (SELECT foliot.is_limited(limits, x) FROM foliot.run x WHERE x.number = r.number))
                OR (lanes AND (r.lane > 0 OR now_ - r.fire_at > late_)) AS odd,
            r.tenant IS NOT NULL AND ranks_ = '{}' AS unranked, coalesce(d.rank, 1) AS rank,
            CASE WHEN r.fire_at > now_ THEN (r.fire_at + slot_ - 1) / slot_ ELSE 0 END AS slot,
            max(r.fire_at) AS last, array_agg(r.number ORDER BY r.fire_at, r.number) AS numbers
        FROM foliot.run r JOIN unnest(fire_ats_, numbers_, ranks_) AS d(fire_at, number, rank)
            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ + lead_ AND r.state < 2
            AND (r.schedule IS NULL OR r.fired_at IS NULL)
            AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
        GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 4 DESC, 5 DESC, 7, 3, 2 DESC, 6
    LOOP
        IF one.odd AND one.slot > 0 THEN
            patient := patient || one.numbers;
            CONTINUE;
        ELSIF one.odd OR one.unranked THEN
            odd := one.odd;
            unranked := one.unranked;
            RETURN;
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

-- Takes chunks by lane, priority, rank and order, as many runs as fit, and with each chunk a token. What was cancelled, moved or
-- claimed since the chunk was made is passed over: the runs are locked first, and looked at after that. What a chunk named
-- and this claim did not take (what is paused, say) goes to a chunk aside, because somebody has to look why: while anything
-- lies there, the last row says so by having no number. Of other lanes than live it takes `backlog_` runs at most (NULL: any
-- number). Of what fair share has put off it takes none once it has `put_off_` runs in all. Of runs that need labels it takes
-- those that need no others than the worker's.
-- Nearly every chunk can be taken whole, so runs are locked and read in one go, and what follows is written once it is
-- known that all could be. Where one could not, nothing is done: the last row says `carefully`, what came before it is to be
-- forgotten, and the caller asks again, `carefully_`.
-- Whoever is called for chunks before their time names them, in `named_`, and takes nothing else: they are ready within
-- `ahead_`. `early` is by how much the server's clock has not reached a run's time: its worker waits for as long, and what is
-- written of it counts from its time. A claim that finds nothing but chunks that are not ready yet says `later`, and after how
-- long.
CREATE FUNCTION foliot.claim_runs(
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
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers FROM foliot.handoff h
            WHERE h.n = ANY(named_) AND h.ready_at <= clock + ahead_ AND h.queue = ANY(queues_)
                AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside AND NOT h.alone
            ORDER BY h.lane, h.priority DESC, h.rank, h.n FOR UPDATE SKIP LOCKED;
        ELSIF put_off_ > 0 THEN
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers FROM foliot.handoff h
            WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside
                AND (suspects_ OR NOT h.alone) AND (h.lane = 0 OR backlog_ > 0)
            ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT chunks_ FOR UPDATE SKIP LOCKED;
        ELSE
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers FROM foliot.handoff h
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
                    INSERT INTO foliot.handoff (queue, lane, priority, rank, fired_at, job, alone, aside, numbers)
                    SELECT chunk.queue, chunk.lane, chunk.priority, chunk.rank, chunk.fired_at, chunk.job, chunk.alone, true,
                        array_agg(u.number)
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

-- Attempts that ended their runs well. Claims are locked first, then schedules: a tick that has to wait for one of these
-- runs is held under the schedule's lock. Answers what was left as it is: it was not the attempt's any more, or needs more
-- thought, because somebody asked it to stop, or has his hands on its schedule, or because something follows from its end.
CREATE FUNCTION foliot.finish_runs(
    numbers_ bigint[], tokens_ bigint[], state_ smallint, started_ bigint[], finished_ bigint[], results_ bytea[]
) RETURNS TABLE (number bigint, token bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    schedules text[];
    has_slots boolean;
    ended bigint[];
    under bigint[];
    mine bigint := pg_current_xact_id()::text::bigint;
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) ORDER BY c.token FOR UPDATE;
    SELECT ARRAY(SELECT DISTINCT r.schedule FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.schedule IS NOT NULL),
        EXISTS (SELECT 1 FROM foliot.slot)
    INTO schedules, has_slots;
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
    IF has_slots THEN
        PERFORM foliot.lock_slots_of(numbers_);
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
