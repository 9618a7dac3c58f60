-- Slots that are kept free of tenants that have had their share (see foliot.domain.fairness): what others may take of them
-- is found without looking through what was put off.
CREATE INDEX handoff_light ON foliot.handoff (lane, priority DESC, rank, n) WHERE NOT (rank > 1 AND rank % 2 = 1);

-- What each worker has, as a JSON array. Runs that need labels are handed off under their job's name and these (`resize@gpu`).
ALTER TABLE foliot.instance ADD COLUMN labels text NOT NULL DEFAULT '[]';
-- By queue, how many of its slots only runs of that queue take, as a JSON object.
ALTER TABLE foliot.instance ADD COLUMN reserved text NOT NULL DEFAULT '{}';
CREATE INDEX handoff_labelled ON foliot.handoff (job) WHERE position('@' in job) > 0;

-- The labels that a run needs, as they stand behind a name that it is handed off under.
CREATE FUNCTION foliot.at_labels(options_ bytea) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF options_ IS NULL OR position('"labels"'::bytea in options_) = 0 THEN
        RETURN '';
    END IF;
    RETURN coalesce((SELECT '@' || string_agg(l.name, ',' ORDER BY l.name COLLATE "C")
        FROM jsonb_array_elements_text(convert_from(options_, 'UTF8')::jsonb->'labels') AS l(name)), '');
EXCEPTION WHEN data_exception THEN
    RETURN '';  -- whoever executes it tells that its settings cannot be read
END $$;

-- Firing leaves runs with labels to whoever can read them, and a completion hands a check off for its labels. Both are as
-- before otherwise.
DO $do$
DECLARE
    fire_ text := pg_get_functiondef('foliot.fire_runs'::regproc);
    complete_ text := pg_get_functiondef('foliot.complete_unchecked'::regproc);
BEGIN
    EXECUTE replace(fire_, $$OR (r.options IS NOT NULL AND position('"concurrency_key"'::bytea in r.options) > 0)$$,
        $$OR (r.options IS NOT NULL AND (position('"concurrency_key"'::bytea in r.options) > 0
                    OR position('"labels"'::bytea in r.options) > 0))$$);
    EXECUTE replace(complete_, $$owned.job || '?'$$, $$owned.job || '?' || foliot.at_labels(owned.options)$$);
END $do$;

-- Takes chunks by lane, priority, rank and order, as many runs as fit, and with each chunk a token. What was cancelled, moved or
-- claimed since the chunk was made is passed over: the runs are locked first, and looked at after that. What a chunk named
-- and this claim did not take goes to a chunk aside, because somebody has to look why: while anything lies there, the last
-- row says so by having no number. Of other lanes than live it takes `backlog_` runs at most (NULL: any number). Of what
-- fair share has put off it takes none once it has `put_off_` runs in all. Of runs that need labels it takes those that need
-- no others than the worker's. Beside the one of older releases, which know nothing of that.
CREATE FUNCTION foliot.claim_runs(
    worker_ integer, queues_ text[], jobs_ text[], limit_ integer, chunks_ integer, tokens_ bigint[], suspects_ boolean,
    backlog_ integer, put_off_ integer, labels_ text[]
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
    takes text[] := jobs_;
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
    IF labels_ <> '{}' THEN
        takes := takes || ARRAY(
            SELECT DISTINCT h.job FROM foliot.handoff h WHERE position('@' in h.job) > 0
                AND split_part(h.job, '@', 1) = ANY(jobs_) AND string_to_array(split_part(h.job, '@', 2), ',') <@ labels_);
    END IF;
    LOOP
        IF put_off_ > 0 THEN
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
        WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(takes)) AND NOT h.aside
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
