-- Slots that are kept free of tenants that have had their share (see foliot.domain.fairness): what others may take of them
-- is found without looking through what was put off.
CREATE INDEX handoff_light ON foliot.handoff (lane, priority DESC, rank, n) WHERE NOT (rank > 1 AND rank % 2 = 1);

-- Takes chunks by lane, priority, rank and order, as many runs as fit, and with each chunk a token. What was cancelled, moved or
-- claimed since the chunk was made is passed over: the runs are locked first, and looked at after that. What a chunk named
-- and this claim did not take goes to a chunk aside, because somebody has to look why: while anything lies there, the last
-- row says so by having no number. Of other lanes than live it takes `backlog_` runs at most (NULL: any number). Of what
-- fair share has put off it takes none once it has `put_off_` runs in all. Beside the one of older releases, which know
-- nothing of that.
CREATE FUNCTION foliot.claim_runs(
    worker_ integer, queues_ text[], jobs_ text[], limit_ integer, chunks_ integer, tokens_ bigint[], suspects_ boolean,
    backlog_ integer, put_off_ integer
) RETURNS TABLE (
    number bigint, name text, job text, payload bytea, token bigint, attempt integer, spent integer, fire_at bigint,
    nominal bigint, since bigint, schedule text, revision integer, tenant text, queue text, priority integer,
    origin smallint, lane smallint, options bytea, checkpoint bytea, phase smallint, lineage bigint, repair boolean,
    deaths smallint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    clock bigint := foliot.now();
    room integer := limit_;
    used integer := 0;
    got integer;
    most integer;
    found_ refcursor;
    chunk record;
    part bigint[];
    free bigint[];
    claimed bigint[];
    broken text[] := ARRAY(SELECT b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL);
BEGIN
    backlog_ := coalesce(backlog_, limit_);
    put_off_ := coalesce(put_off_, limit_);
    IF NOT EXISTS (SELECT 1 FROM foliot.instance i WHERE i.number = worker_ AND i.ended_at IS NULL) THEN
        RAISE EXCEPTION 'worker % was declared dead', worker_ USING ERRCODE = 'FL003';
    END IF;
    LOOP
        IF put_off_ > 0 THEN
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers FROM foliot.handoff h
            WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(jobs_)) AND NOT h.aside
                AND (suspects_ OR NOT h.alone) AND (h.lane = 0 OR backlog_ > 0)
            ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT chunks_ FOR UPDATE SKIP LOCKED;
        ELSE
            OPEN found_ FOR
            SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers FROM foliot.handoff h
            WHERE NOT (h.rank > 1 AND h.rank % 2 = 1)
                AND h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(jobs_)) AND NOT h.aside
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
            -- Nobody waits for a run that somebody's open transaction has its hands on.
            SELECT array_agg(x.number) INTO free FROM (
                SELECT r.number FROM foliot.run r WHERE r.number = ANY(part) FOR NO KEY UPDATE SKIP LOCKED
            ) x;
            claimed := ARRAY(SELECT u.number FROM foliot.unwritten u);
            RETURN QUERY
            WITH taken AS MATERIALIZED (
                SELECT r.number, r.name, r.job, r.payload, tokens_[used] AS token, r.attempt + 1, r.spent, r.fire_at, r.nominal,
                    r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, chunk.lane, r.options,
                    r.checkpoint, r.phase, r.lineage, coalesce(r.repair, false), r.deaths
                FROM foliot.run r
                WHERE r.number = ANY(free) AND r.state < 2 AND r.fire_at <= clock
                    AND CASE WHEN r.phase IS NULL THEN r.job ELSE r.job || '?' END = ANY(jobs_)
                    AND (r.useful_until IS NULL OR r.useful_until >= clock) AND coalesce(r.queue, 'default') = chunk.queue
                    AND (broken = '{}' OR NOT coalesce(foliot.bound_for(r) = ANY(broken), false))
                    AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
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
        END LOOP;
        CLOSE found_;
        -- Others have their hands on all there is. Of a chunk as large as what we want, they may leave some.
        EXIT WHEN used > 0 OR limit_ < 1;
        SELECT h.n INTO chunk FROM foliot.handoff h
        WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(jobs_)) AND NOT h.aside
            AND cardinality(h.numbers) >= limit_ AND NOT h.alone AND (h.lane = 0 OR backlog_ > 0)
            AND (put_off_ > 0 OR NOT (h.rank > 1 AND h.rank % 2 = 1))
        ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT 1;
        EXIT WHEN NOT FOUND;
        PERFORM 1 FROM foliot.handoff h WHERE h.n = chunk.n FOR UPDATE;
    END LOOP;
    IF EXISTS (SELECT 1 FROM foliot.handoff h WHERE h.aside) THEN
        RETURN NEXT;
    END IF;
END $$;
