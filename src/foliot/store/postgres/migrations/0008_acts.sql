-- breaks: 8
-- What operators do. A release that does not know this would start what somebody has paused.

-- The audit log is sealed after the fact, in order: each seal's hash is made of the one before and of its row (see
-- foliot.domain.audit). `unsealed` names the rows that still wait for theirs, whoever wrote them: transactions commit in any
-- order, so no number says up to where all are sealed.
CREATE TABLE foliot.seal (
    position  bigint PRIMARY KEY,
    audit     bigint NOT NULL UNIQUE,
    hash      text   NOT NULL
);
CREATE TABLE foliot.unsealed (audit bigint PRIMARY KEY)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO foliot.unsealed SELECT n FROM foliot.audit;
CREATE FUNCTION foliot.audit_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO foliot.unsealed SELECT n FROM added;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_added AFTER INSERT ON foliot.audit REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION foliot.audit_added();
-- Neither is ever changed.
CREATE FUNCTION foliot.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'foliot.% is never changed', TG_TABLE_NAME;
END $$;
CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON foliot.audit FOR EACH STATEMENT
EXECUTE FUNCTION foliot.refuse_change();
CREATE TRIGGER seal_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON foliot.seal FOR EACH STATEMENT
EXECUTE FUNCTION foliot.refuse_change();

-- What is paused: schedule:X, job:X, queue:X or tenant:X, and what of it (creation, retries, claims); the creation of a
-- schedule's own ticks is in its row. One that has ended by itself stays until its schedules know which ticks fell into it.
CREATE TABLE foliot.pause (
    since  bigint NOT NULL,
    until  bigint,
    name   text   COLLATE "C" NOT NULL,
    what   text   COLLATE "C" NOT NULL,
    actor  text   NOT NULL,
    note   text   NOT NULL,
    PRIMARY KEY (name, what)
);
ALTER TABLE foliot.schedule ADD COLUMN paused_by text;

-- Whether a run must not start now: not for a check, which only looks, nor for what an operator let go. `paused` has texts
-- such as claims:job:X, and retries:job:X for what was tried before.
CREATE FUNCTION foliot.is_paused(paused text[], one foliot.run) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT one.phase IS NULL AND one.forced IS NULL AND EXISTS (
        SELECT 1 FROM unnest(ARRAY['job:' || one.job, 'queue:' || coalesce(one.queue, 'default'), 'tenant:' || one.tenant,
            'schedule:' || split_part(one.schedule, '[', 1)]) AS a(name)
        WHERE 'claims:' || a.name = ANY(paused) OR (one.attempt > 0 AND 'retries:' || a.name = ANY(paused)))
$$;

-- As before; what may be paused needs more thought.
CREATE OR REPLACE FUNCTION foliot.fire_runs(
    owner_ integer, shards_ smallint[], epochs_ bigint[], life_ text, fire_ats_ bigint[], numbers_ bigint[],
    late_ bigint, chunk_ integer, told pg_snapshot, ranks_ bigint[],
    OUT now_ bigint, OUT handed integer, OUT odd boolean, OUT lost smallint[], OUT unranked boolean
) LANGUAGE plpgsql AS $$
DECLARE
    same_life boolean := life_ = '' OR life_ = (SELECT began::text FROM foliot.life);
    limits text[] := ARRAY(SELECT g.name FROM foliot.gate g
        WHERE (g.most IS NOT NULL OR g.every IS NOT NULL) AND g.name NOT LIKE 'lane:%'
        UNION ALL SELECT 'to:' || b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL
        UNION ALL SELECT p.name FROM foliot.pause p
        WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > foliot.now()));
    lanes boolean := EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%'
        AND (g.most IS NOT NULL OR (g.every IS NOT NULL AND g.name <> 'lane:catch-up')));
    claimed bigint[];
    one record;
BEGIN
    handed := 0;
    odd := false;
    unranked := false;
    SELECT array_agg(s.shard) INTO lost FROM (
        SELECT s.shard FROM foliot.shard s JOIN unnest(shards_, epochs_) AS w(shard, epoch) ON w.shard = s.shard
        WHERE s.shard = ANY(shards_) AND s.owner = owner_ AND s.epoch = w.epoch ORDER BY s.shard FOR NO KEY UPDATE OF s
    ) s;
    IF same_life AND coalesce(cardinality(lost), 0) = cardinality(shards_) THEN
        lost := NULL;
    ELSE
        lost := CASE WHEN same_life THEN ARRAY(SELECT unnest(shards_) EXCEPT SELECT unnest(lost)) ELSE shards_ END;
        RETURN;
    END IF;
    now_ := foliot.now();
    claimed := ARRAY(SELECT u.number FROM foliot.unwritten u);
    FOR one IN
        SELECT coalesce(r.queue, 'default') AS queue, r.priority,
            CASE WHEN r.lane = 0 AND now_ - r.fire_at > late_ THEN 1::smallint ELSE r.lane END AS lane,
            r.schedule IS NOT NULL OR r.phase IS NOT NULL OR r.deaths IS NOT NULL OR coalesce(r.useful_until < now_, false)
                OR r.slots IS NOT NULL OR r.forced IS NOT NULL
                OR (r.options IS NOT NULL AND (position('"concurrency_key"'::bytea in r.options) > 0
                    OR position('"labels"'::bytea in r.options) > 0))
                OR (limits <> '{}' AND foliot.is_limited(limits, r))
                OR (lanes AND (r.lane > 0 OR now_ - r.fire_at > late_)) AS odd,
            r.tenant IS NOT NULL AND ranks_ = '{}' AS unranked, coalesce(d.rank, 1) AS rank,
            array_agg(r.number ORDER BY r.fire_at, r.number) AS numbers
        FROM foliot.run r JOIN unnest(fire_ats_, numbers_, ranks_) AS d(fire_at, number, rank)
            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ AND r.state < 2 AND (r.schedule IS NULL OR r.fired_at IS NULL)
            AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 4 DESC, 5 DESC, 3, 2 DESC, 6
    LOOP
        IF one.odd OR one.unranked THEN
            odd := one.odd;
            unranked := one.unranked;
            RETURN;
        END IF;
        handed := handed + cardinality(one.numbers);
        FOR start IN 1 .. cardinality(one.numbers) BY chunk_ LOOP
            INSERT INTO foliot.handoff (queue, lane, priority, rank, fired_at, numbers)
            VALUES (one.queue, one.lane, one.priority, one.rank, now_, one.numbers[start : start + chunk_ - 1]);
        END LOOP;
    END LOOP;
    IF told IS NOT NULL THEN
        DELETE FROM foliot.stir s WHERE s.shard = ANY(shards_) AND s.xid < pg_snapshot_xmax(told)
            AND pg_visible_in_snapshot(s.xid, told);
    END IF;
    IF handed > 0 THEN
        PERFORM pg_notify('foliot', 'handoff');
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;

-- As before; what is paused is not taken, and goes to the chunk aside.
CREATE OR REPLACE FUNCTION foliot.claim_runs(
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
    paused text[] := ARRAY(SELECT p.what || ':' || p.name FROM foliot.pause p
        WHERE p.what <> 'creation' AND (p.until IS NULL OR p.until > clock));
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
                    AND (paused = '{}' OR NOT foliot.is_paused(paused, r))
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

-- What a person wants of a worker: drain, quarantine. It hears of it with its heartbeat.
ALTER TABLE foliot.instance ADD COLUMN wish text, ADD COLUMN wish_note text;

-- Schedules that were edited at run time, since their declaration was last applied: who did, and what it changed.
CREATE TABLE foliot.edit (
    at        bigint NOT NULL,
    schedule  text   COLLATE "C" PRIMARY KEY,
    actor     text   NOT NULL,
    fields    text   NOT NULL
);
