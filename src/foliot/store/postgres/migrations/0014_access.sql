-- Which runs a token of scope `work` takes: those of these jobs, these queues and its tenant (both lists are JSON, empty: any).
-- Older releases made such tokens without lists: they take nothing any more.
ALTER TABLE foliot.token ADD COLUMN jobs text NOT NULL DEFAULT '[]', ADD COLUMN queues text NOT NULL DEFAULT '[]',
    ADD COLUMN all_tenants boolean NOT NULL DEFAULT false;

-- When a browser was logged in: of a token's sessions the oldest ends when there are too many.
ALTER TABLE foliot.session ADD COLUMN began_at bigint NOT NULL DEFAULT 0;

-- As `claim_runs`, for a worker that is bound to a tenant (NULL: to runs without one). Runs of other tenants stay in their
-- chunks, in their order; runs that wait no more are cleared out of them. Each chunk that has runs for this worker is locked
-- and taken carefully, under a token of its own. A chunk that another transaction has locked is passed by.
CREATE FUNCTION foliot.claim_within(
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
        SELECT h.n, h.lane, h.priority, h.rank, h.fired_at, h.queue, h.job, h.alone, h.numbers INTO chunk
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
