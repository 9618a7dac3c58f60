-- Times are microseconds since 1970 (UTC). States, origins and lanes are the numbers of foliot.domain.
-- Everything lives in one schema, and every name is written with it: no session state is needed, so any pooler will do.

-- One row. `shards` is decided once, before the first run is made: a run's shard follows from its number.
CREATE TABLE foliot.setting (
    id         smallint PRIMARY KEY CHECK (id = 1),
    shards     smallint NOT NULL CHECK (shards BETWEEN 1 AND 64),
    keep_days  integer  CHECK (keep_days >= 1)
);
COMMENT ON COLUMN foliot.setting.keep_days IS 'Ended runs are kept for so many days; NULL keeps them for ever.';
INSERT INTO foliot.setting VALUES (1, 16, 30);

CREATE FUNCTION foliot.now() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
COMMENT ON FUNCTION foliot.now IS 'The clock that decides. Tests replace it.';

-- When an attempt began, as its worker says. The worker's clock may lag behind ours by as much as is trusted, and nobody
-- begins before we gave it the run; one that lags by more is believed, and counted as early.
CREATE FUNCTION foliot.begun(started bigint, claimed bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN started < claimed AND started > claimed - 200000 THEN claimed ELSE started END;

-- Processes draw run numbers themselves, below the 21st bit of a millisecond's 22; the server draws above it.
CREATE SEQUENCE foliot.node;
CREATE SEQUENCE foliot.spread MINVALUE 0 MAXVALUE 2097151 CYCLE CACHE 32;

CREATE FUNCTION foliot.next_number() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (greatest(foliot.now() - 1577836800000000, 0) / 1000 << 22) + 2097152 + nextval('foliot.spread');

-- For how long the numbers of transactions mean what they say: a crash forgets the last ones, and they are given out
-- again. It also empties this table, because that is not logged. Whoever finds it empty begins a new life; whoever finds
-- that of another cluster, because a dump was restored here, begins one too.
CREATE UNLOGGED TABLE foliot.life (
    id       smallint PRIMARY KEY CHECK (id = 1),
    began    uuid     NOT NULL DEFAULT gen_random_uuid(),
    cluster  bigint   NOT NULL
);

-- Live and parked runs. NULL stands for what most rows have (nominal = fire time, default queue), because billions of
-- them wait here; columns are in the order that wastes the least on alignment.
CREATE TABLE foliot.run (
    number        bigint   NOT NULL PRIMARY KEY,
    fire_at       bigint   NOT NULL,
    xid           xid8     NOT NULL DEFAULT pg_current_xact_id(),
    state         smallint NOT NULL DEFAULT 0,
    origin        smallint NOT NULL DEFAULT 1,
    lane          smallint NOT NULL DEFAULT 0,
    shard         smallint NOT NULL,
    priority      integer  NOT NULL DEFAULT 0,
    attempt       integer  NOT NULL DEFAULT 0,
    spent         integer  NOT NULL DEFAULT 0,
    worker        integer,
    nominal       bigint,
    since         bigint,
    useful_until  bigint,
    token         bigint,
    fired_at      bigint,
    claimed_at    bigint,
    started_at    bigint,
    revision      integer,
    job           text     NOT NULL,
    payload       bytea    NOT NULL,
    name          text,
    schedule      text,
    tenant        text,
    queue         text,
    options       bytea,
    progress      bytea,
    checkpoint    bytea,
    reason        text,
    detail        text,
    withdrawn     text
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON COLUMN foliot.run.xid IS 'The transaction that inserted it: how rows that commit late are found.';
-- Exactly what can fire, in firing order, apart for each shard. A five-minute cell is a range of it.
CREATE INDEX run_due ON foliot.run (shard, fire_at, number) WHERE state <= 1;
CREATE INDEX run_schedule ON foliot.run (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX run_parked ON foliot.run (number) WHERE state >= 20;
CREATE INDEX run_retrying ON foliot.run (number) WHERE state = 1;

CREATE FUNCTION foliot.begin_life() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    here bigint := (SELECT system_identifier FROM pg_control_system());
BEGIN
    INSERT INTO foliot.life (id, cluster) VALUES (1, here) ON CONFLICT DO NOTHING;
    IF (SELECT cluster FROM foliot.life) <> here THEN
        -- Numbers of the other cluster's transactions lie in this one's future: nobody would ever see those runs.
        DELETE FROM foliot.stir;
        UPDATE foliot.run SET xid = pg_current_xact_id() WHERE xid >= pg_snapshot_xmax(pg_current_snapshot());
        UPDATE foliot.history SET xid = 3 WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
        UPDATE foliot.event SET xid = 3 WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
        UPDATE foliot.life SET cluster = here, began = gen_random_uuid();
    END IF;
END $$;

-- Names of runs, live and ended, for as long as history keeps them. Here one name can exist once, whatever is under
-- way in other transactions; a partitioned history could not promise that.
CREATE TABLE foliot.named (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    number  bigint NOT NULL
);

-- What the owner of a cell has to hear of: runs that came to lie in loaded cells, or near them. One row per batch and
-- shard. A reader remembers the snapshot it read with, so that it is told of each row once, in whatever order
-- transactions end.
CREATE TABLE foliot.stir (
    shard    smallint NOT NULL,
    xid      xid8     NOT NULL DEFAULT pg_current_xact_id(),
    numbers  bigint[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX stir_order ON foliot.stir (shard, xid);

-- Who owns a shard's cells. One row per shard covers all of its cells below the high-water mark; rows below zero are
-- duties that one instance does for all.
CREATE TABLE foliot.shard (
    shard       smallint PRIMARY KEY,
    owner       integer,
    epoch       bigint   NOT NULL,
    until       bigint   NOT NULL,
    high_water  bigint   NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Chunks of runs waiting for a worker. `job` is set on chunks that only a worker which knows that job may take;
-- `ready_at` on what was fired by a clock that has been set back since; `aside` on what a claim could not take, until
-- somebody has looked why.
CREATE TABLE foliot.handoff (
    n         bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fired_at  bigint   NOT NULL,
    ready_at  bigint   NOT NULL DEFAULT 0,
    priority  integer  NOT NULL,
    lane      smallint NOT NULL,
    aside     boolean  NOT NULL DEFAULT false,
    queue     text     NOT NULL,
    job       text,
    numbers   bigint[] NOT NULL
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX handoff_order ON foliot.handoff (lane, priority DESC, n);
CREATE INDEX handoff_aside ON foliot.handoff (n) WHERE aside;

-- Chunks owned by a worker. `open` counts the runs that have not ended; at zero the row goes. Workers choose tokens
-- themselves, so that one who never got the answer can ask what became of its claim.
-- While a claim is not `written`, it alone says that its runs are running: their rows still look pending, and a run that
-- ends soon is never written in between. Whoever has to do with one of them writes the claim first (`write_claims`).
CREATE TABLE foliot.claim (
    token       bigint   PRIMARY KEY,
    claimed_at  bigint   NOT NULL,
    fired_at    bigint   NOT NULL,
    worker      integer  NOT NULL,
    open        integer  NOT NULL,
    lane        smallint NOT NULL,
    written     boolean  NOT NULL DEFAULT false,
    numbers     bigint[] NOT NULL
) WITH (fillfactor = 70, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX claim_worker ON foliot.claim (worker);
CREATE INDEX claim_unwritten ON foliot.claim (worker, claimed_at) WHERE NOT written;

-- Running attempts that somebody asked to stop, until they end.
CREATE TABLE foliot.cancellation (
    number  bigint  PRIMARY KEY,
    worker  integer NOT NULL,
    reason  text    NOT NULL,
    note    text    NOT NULL
);

-- Ended runs, insert-only, a partition for each day, which retention drops whole.
CREATE SEQUENCE foliot.history_n CACHE 1;
CREATE TABLE foliot.history (
    n            bigint   NOT NULL DEFAULT nextval('foliot.history_n'),
    number       bigint   NOT NULL,
    finished_at  bigint   NOT NULL,
    xid          bigint   NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    fire_at      bigint   NOT NULL,
    nominal      bigint,
    since        bigint,
    token        bigint,
    fired_at     bigint,
    claimed_at   bigint,
    started_at   bigint,
    span_until   bigint,
    span_count   integer,
    worker       integer,
    revision     integer,
    priority     integer  NOT NULL,
    attempt      integer  NOT NULL,
    spent        integer  NOT NULL,
    state        smallint NOT NULL,
    origin       smallint NOT NULL,
    lane         smallint NOT NULL,
    job          text     NOT NULL,
    payload      bytea    NOT NULL,
    name         text,
    schedule     text,
    tenant       text,
    queue        text,
    options      bytea,
    progress     bytea,
    result       bytea,
    reason       text,
    detail       text
) PARTITION BY RANGE (finished_at);
CREATE TABLE foliot.history_other PARTITION OF foliot.history DEFAULT;
CREATE INDEX history_order ON foliot.history USING brin (xid) WITH (pages_per_range = 16);
CREATE INDEX history_number ON foliot.history (number);
CREATE INDEX history_schedule ON foliot.history (schedule, nominal) WHERE schedule IS NOT NULL;
CREATE INDEX history_kept ON foliot.history (schedule, nominal) WHERE state IN (10, 11) AND schedule IS NOT NULL;
-- The early-fire counter: the size of an index that must stay empty, and that costs nothing while it does.
CREATE INDEX history_early ON foliot.history (n) WHERE started_at < fire_at;

-- Finished attempts, insert-only, but for the last one of a run that succeeded: that one is told by its history row.
CREATE TABLE foliot.attempt (
    run          bigint  NOT NULL,
    token        bigint  NOT NULL,
    finished_at  bigint  NOT NULL,
    fire_at      bigint,
    claimed_at   bigint,
    started_at   bigint,
    attempt      integer NOT NULL,
    worker       integer,
    outcome      text    NOT NULL,
    error        text,
    PRIMARY KEY (run, attempt, token)
);
CREATE INDEX attempt_early ON foliot.attempt (run) WHERE started_at < fire_at;

CREATE TABLE foliot.schedule (
    id                 text    COLLATE "C" PRIMARY KEY,
    job                text    NOT NULL,
    rule               text    NOT NULL,
    payload            bytea   NOT NULL,
    policy             bytea   NOT NULL,
    options            bytea,
    delay              bigint,
    queue              text,
    priority           integer NOT NULL,
    tenant             text,
    owner              text,
    runbook            text,
    changes            text,
    revision           integer NOT NULL,
    fingerprint        text    NOT NULL,
    made_at            bigint  NOT NULL,
    paused_at          bigint,
    paused_until       bigint,
    paused_note        text,
    evaluated_through  bigint,
    last_created       text,
    fault              text,
    tables             text,
    last_wall          text,
    next_wall          text,
    source             text    NOT NULL DEFAULT 'code'
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX schedule_tables ON foliot.schedule (tables) WHERE tables IS NOT NULL;

-- What the store knows of jobs, for processes that do not have their code.
CREATE TABLE foliot.job (
    name     text   PRIMARY KEY,
    policy   bytea  NOT NULL,
    queue    text   NOT NULL,
    owner    text,
    runbook  text,
    changes  text,
    seen_at  bigint NOT NULL
);

-- One row per start of a process; numbers are never used again.
CREATE TABLE foliot.instance (
    number       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pid          integer NOT NULL,
    slots        integer NOT NULL,
    started_at   bigint  NOT NULL,
    beat_at      bigint  NOT NULL,
    ended_at     bigint,
    offset_low   bigint,
    offset_high  bigint,
    fenced       boolean NOT NULL DEFAULT false,
    role         text    NOT NULL,
    host         text    NOT NULL,
    birth        text    NOT NULL,
    version      text    NOT NULL,
    queues       text    NOT NULL,
    jobs         text    NOT NULL,
    release      text    NOT NULL DEFAULT ''
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX instance_live ON foliot.instance (number) WHERE ended_at IS NULL;

-- Releases of apps, in the order in which each was first applied, and what each declares: by schedule, the declaration's
-- fingerprint; an empty one for what it removed. An older release takes nothing back while a newer one runs.
CREATE TABLE foliot.declared (
    n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    release   text   NOT NULL UNIQUE,
    first_at  bigint NOT NULL,
    declares  text   NOT NULL
);

-- Only what is out of the ordinary; the happy path writes none.
CREATE TABLE foliot.event (
    n        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    xid      bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    kind     text   NOT NULL,
    subject  text   NOT NULL,
    detail   text   NOT NULL
);
CREATE INDEX event_order ON foliot.event (xid, n);
CREATE INDEX event_subject ON foliot.event (subject, n);

CREATE TABLE foliot.audit (
    n        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    actor    text   NOT NULL,
    action   text   NOT NULL,
    subject  text   NOT NULL,
    note     text   NOT NULL
);

-- Runs of claims that are not written, if their rows still look pending.
CREATE VIEW foliot.unwritten AS SELECT unnest(numbers) AS number FROM foliot.claim WHERE NOT written;

-- Live and ended runs in one shape, for people.
CREATE VIEW foliot.live_runs AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, coalesce(detail, withdrawn) AS detail, payload, worker, fired_at, claimed_at, started_at,
    NULL::bigint AS finished_at, progress, NULL::bytea AS result, NULL::bigint AS span_until, 1 AS span_count,
    withdrawn IS NOT NULL OR number IN (SELECT c.number FROM foliot.cancellation c) AS cancel_requested,
    number AS position, options
FROM foliot.run WHERE NOT (state < 2 AND number IN (SELECT u.number FROM foliot.unwritten u))
UNION ALL
SELECT r.number, r.name, 4::smallint, r.origin, r.job, r.schedule, r.revision, r.tenant, r.queue, c.lane, r.priority,
    r.nominal, r.since, r.fire_at, r.attempt + 1, r.spent, NULL, NULL, r.payload, c.worker, c.fired_at, c.claimed_at,
    NULL, NULL, r.progress, NULL, NULL, 1, false, r.number, r.options
FROM foliot.claim c CROSS JOIN LATERAL unnest(c.numbers) AS u(number) JOIN foliot.run r ON r.number = u.number
WHERE NOT c.written AND r.state < 2;
CREATE VIEW foliot.ended_runs AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at,
    finished_at, progress, result, span_until, coalesce(span_count, 1) AS span_count,
    false AS cancel_requested, xid::numeric * 18446744073709551616 + n AS position, options, xid, n
FROM foliot.history;

-- Where history of a day goes. Made beside the table and attached then, so that nobody who writes history has to wait;
-- a day of which something lies in the partition for all others stays there.
CREATE FUNCTION foliot.make_partitions(days integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first date := (to_timestamp(foliot.now() / 1000000.0) AT TIME ZONE 'UTC')::date;
    partition_ text;
    starts bigint;
BEGIN
    FOR ahead IN 0 .. days LOOP
        partition_ := 'history_' || to_char(first + ahead, 'YYYYMMDD');
        starts := extract(epoch FROM first + ahead)::bigint * 1000000;
        IF to_regclass(format('foliot.%I', partition_)) IS NULL
            AND NOT EXISTS (SELECT 1 FROM foliot.history_other
                            WHERE finished_at >= starts AND finished_at < starts + 86400000000) THEN
            EXECUTE format('CREATE TABLE foliot.%I (LIKE foliot.history INCLUDING DEFAULTS)', partition_);
            EXECUTE format('ALTER TABLE foliot.history ATTACH PARTITION foliot.%I FOR VALUES FROM (%s) TO (%s)',
                partition_, starts, starts + 86400000000);
        END IF;
    END LOOP;
END $$;
SELECT foliot.make_partitions(7);

-- The hot path: handing off, claiming. Each is one call, because a round trip costs more than the work on a few runs.

-- Hands off runs without a schedule: the shards are locked under their epochs, what the clock has not reached or what
-- changed meanwhile is left alone, the rest goes into chunks of one queue, lane and priority. If any of it needs more
-- thought (a tick, a run past its usefulness), nothing is done here, and `odd` says so. `lost` are shards that are no
-- longer the owner's. `told` is a snapshot: stirs that it has seen are in the owner's memory.
-- Nobody waits for the disk: should a crash forget this, then with it the server's life, and every owner reads its cells
-- anew. A claim that was acknowledged is on disk, and so is what came before it.
CREATE FUNCTION foliot.fire_runs(
    owner_ integer, shards_ smallint[], epochs_ bigint[], life_ text, fire_ats_ bigint[], numbers_ bigint[],
    late_ bigint, chunk_ integer, told pg_snapshot, OUT now_ bigint, OUT handed integer, OUT odd boolean, OUT lost smallint[]
) LANGUAGE plpgsql AS $$
DECLARE
    same_life boolean := life_ = '' OR life_ = (SELECT began::text FROM foliot.life);
    claimed bigint[];
    one record;
BEGIN
    handed := 0;
    odd := false;
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
            r.schedule IS NOT NULL OR coalesce(r.useful_until < now_, false) AS odd,
            array_agg(r.number ORDER BY r.fire_at, r.number) AS numbers
        FROM foliot.run r JOIN unnest(fire_ats_, numbers_) AS d(fire_at, number)
            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ AND r.state < 2 AND (r.schedule IS NULL OR r.fired_at IS NULL)
            AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
        GROUP BY 1, 2, 3, 4 ORDER BY 4 DESC, 3, 2 DESC
    LOOP
        IF one.odd THEN
            odd := true;
            RETURN;
        END IF;
        handed := handed + cardinality(one.numbers);
        FOR start IN 1 .. cardinality(one.numbers) BY chunk_ LOOP
            INSERT INTO foliot.handoff (queue, lane, priority, fired_at, numbers)
            VALUES (one.queue, one.lane, one.priority, now_, one.numbers[start : start + chunk_ - 1]);
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

-- Takes chunks by lane, priority and order, as many runs as fit, and with each chunk a token. What was cancelled, moved or
-- claimed since the chunk was made is passed over: the runs are locked first, and looked at after that. What a chunk named
-- and this claim did not take goes to a chunk aside, because somebody has to look why: while anything lies there, the last
-- row says so by having no number.
CREATE FUNCTION foliot.claim_runs(
    worker_ integer, queues_ text[], jobs_ text[], limit_ integer, chunks_ integer, tokens_ bigint[]
) RETURNS TABLE (
    number bigint, name text, job text, payload bytea, token bigint, attempt integer, spent integer, fire_at bigint,
    nominal bigint, since bigint, schedule text, revision integer, tenant text, queue text, priority integer,
    origin smallint, lane smallint, options bytea, checkpoint bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    clock bigint := foliot.now();
    room integer := limit_;
    used integer := 0;
    got integer;
    chunk record;
    part bigint[];
    free bigint[];
    claimed bigint[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.instance i WHERE i.number = worker_ AND i.ended_at IS NULL) THEN
        RAISE EXCEPTION 'worker % was declared dead', worker_ USING ERRCODE = 'FL003';
    END IF;
    LOOP
        FOR chunk IN
            SELECT h.n, h.lane, h.priority, h.fired_at, h.queue, h.numbers FROM foliot.handoff h
            WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(jobs_)) AND NOT h.aside
            ORDER BY h.lane, h.priority DESC, h.n LIMIT chunks_ FOR UPDATE SKIP LOCKED
        LOOP
            EXIT WHEN room <= 0;
            used := used + 1;
            part := chunk.numbers[1:room];
            room := room - cardinality(part);
            -- Nobody waits for a run that somebody's open transaction has its hands on.
            SELECT array_agg(x.number) INTO free FROM (
                SELECT r.number FROM foliot.run r WHERE r.number = ANY(part) FOR NO KEY UPDATE SKIP LOCKED
            ) x;
            claimed := ARRAY(SELECT u.number FROM foliot.unwritten u);
            RETURN QUERY
            WITH taken AS MATERIALIZED (
                SELECT r.number, r.name, r.job, r.payload, tokens_[used] AS token, r.attempt + 1, r.spent, r.fire_at, r.nominal,
                    r.since, r.schedule, r.revision, r.tenant, r.queue, r.priority, r.origin, chunk.lane, r.options,
                    r.checkpoint
                FROM foliot.run r
                WHERE r.number = ANY(free) AND r.state < 2 AND r.fire_at <= clock AND r.job = ANY(jobs_)
                    AND (r.useful_until IS NULL OR r.useful_until >= clock) AND coalesce(r.queue, 'default') = chunk.queue
                    AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
            ), noted AS (
                INSERT INTO foliot.claim (token, worker, claimed_at, fired_at, lane, open, numbers)
                SELECT tokens_[used], worker_, clock, chunk.fired_at, chunk.lane, count(*), array_agg(t.number)
                FROM taken t HAVING count(*) > 0
            )
            SELECT * FROM taken t ORDER BY t.fire_at, t.number;
            GET DIAGNOSTICS got = ROW_COUNT;
            IF got < cardinality(part) THEN
                INSERT INTO foliot.handoff (queue, lane, priority, fired_at, aside, numbers)
                SELECT chunk.queue, chunk.lane, chunk.priority, chunk.fired_at, true, array_agg(u.number)
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
        -- Others have their hands on all there is. Of a chunk as large as what we want, they may leave some.
        EXIT WHEN used > 0 OR limit_ < 1;
        SELECT h.n INTO chunk FROM foliot.handoff h
        WHERE h.ready_at <= clock AND h.queue = ANY(queues_) AND (h.job IS NULL OR h.job = ANY(jobs_)) AND NOT h.aside
            AND cardinality(h.numbers) >= limit_
        ORDER BY h.lane, h.priority DESC, h.n LIMIT 1;
        EXIT WHEN NOT FOUND;
        PERFORM 1 FROM foliot.handoff h WHERE h.n = chunk.n FOR UPDATE;
    END LOOP;
    IF EXISTS (SELECT 1 FROM foliot.handoff h WHERE h.aside) THEN
        RETURN NEXT;
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
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) ORDER BY c.token FOR UPDATE;
    schedules := ARRAY(SELECT DISTINCT r.schedule FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.schedule IS NOT NULL);
    IF schedules <> '{}' THEN
        schedules := ARRAY(
            SELECT s.id FROM foliot.schedule s WHERE s.id = ANY(schedules) AND s.delay IS NULL ORDER BY s.id
            FOR UPDATE SKIP LOCKED);
        schedules := ARRAY(
            SELECT id FROM unnest(schedules) AS id
            EXCEPT SELECT r.schedule FROM foliot.run r WHERE r.schedule = ANY(schedules) AND r.state = 2);
    END IF;
    RETURN QUERY
    WITH told AS MATERIALIZED (
        SELECT * FROM unnest(numbers_, tokens_, started_, finished_, results_)
            AS e(number, token, started_at, finished_at, result)
    ), claims AS MATERIALIZED (
        SELECT c.* FROM foliot.claim c WHERE c.token = ANY(tokens_)
    ), owned AS (
        SELECT c.*, unnest(c.numbers) AS number FROM claims c
    ), gone AS (
        DELETE FROM foliot.run r USING told e JOIN owned c ON c.token = e.token AND c.number = e.number
        WHERE r.number = ANY(numbers_) AND r.number = e.number
            AND ((r.state < 2 AND NOT c.written) OR (r.state = 4 AND r.token = e.token))
            AND (r.schedule IS NULL OR r.schedule = ANY(schedules))
            AND r.number <> ALL(ARRAY(SELECT number FROM foliot.cancellation))
        RETURNING r.number, r.name, r.origin, r.priority, r.job, r.payload, r.fire_at, r.nominal, r.since, r.schedule,
            r.revision, r.tenant, r.queue, r.options, r.spent, r.progress,
            r.attempt + CASE WHEN r.state < 2 THEN 1 ELSE 0 END AS attempt,
            e.token, c.worker, c.lane, c.fired_at, c.claimed_at, e.result,
            foliot.begun(e.started_at, c.claimed_at) AS begun_at, greatest(e.finished_at, c.claimed_at) AS finished_at
    ), kept AS (
        INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since,
            schedule, revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at,
            finished_at, progress, result)
        SELECT number, name, state_, origin, lane, priority, job, payload, fire_at, nominal, since, schedule, revision,
            tenant, queue, options, attempt, spent + 1, token, worker, fired_at, claimed_at, begun_at, finished_at,
            progress, result
        FROM gone
    ), closing AS (
        SELECT c.token, c.open, count(*) AS ended FROM claims c JOIN gone g ON g.token = c.token GROUP BY c.token, c.open
    ), closed AS (
        DELETE FROM foliot.claim WHERE token = ANY(ARRAY(SELECT token FROM closing WHERE open <= ended))
    ), shrunk AS (
        UPDATE foliot.claim c SET open = x.open - x.ended FROM closing x
        WHERE c.token = ANY(tokens_) AND c.token = x.token AND x.open > x.ended
    )
    SELECT e.number, e.token FROM told e
    WHERE NOT EXISTS (SELECT 1 FROM gone g WHERE g.number = e.number AND g.token = e.token);
END $$;

-- Makes the rows of runs say what their claims say: those that the caller has to do with, for which he waits, or all that
-- nobody has his hands on. A claim of which any run is left stays unwritten.
CREATE FUNCTION foliot.write_claims(tokens_ bigint[], wanted bigint[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
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
        fired_at = c.fired_at, claimed_at = c.claimed_at
    FROM (
        SELECT c.token, c.worker, c.lane, c.fired_at, c.claimed_at, unnest(c.numbers) AS number
        FROM foliot.claim c WHERE c.token = ANY(tokens_) AND NOT c.written
    ) c
    WHERE r.number = ANY(free) AND r.number = c.number;
    UPDATE foliot.claim c SET written = true
    WHERE c.token = ANY(tokens_) AND NOT c.written
        AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = ANY(c.numbers) AND r.state < 2);
END $$;

-- Locks runs that somebody wants to change, after their claims, and has those written. As they are then, nobody claims them.
CREATE FUNCTION foliot.hold_runs(numbers_ bigint[]) RETURNS SETOF foliot.run LANGUAGE plpgsql AS $$
BEGIN
    -- Claims first, as everybody does; a claim that comes in between is written as well.
    PERFORM foliot.write_claims(ARRAY(SELECT c.token FROM foliot.claim c WHERE NOT c.written AND c.numbers && numbers_), numbers_);
    PERFORM 1 FROM foliot.run r WHERE r.number = ANY(numbers_) ORDER BY r.number FOR UPDATE;
    PERFORM foliot.write_claims(ARRAY(SELECT c.token FROM foliot.claim c WHERE NOT c.written AND c.numbers && numbers_), numbers_);
    RETURN QUERY SELECT r.* FROM foliot.run r WHERE r.number = ANY(numbers_);
END $$;

-- Of these runs, those that wait: not claimed, and in nobody else's hands. They stay so until the transaction ends.
CREATE FUNCTION foliot.lock_pending(numbers_ bigint[]) RETURNS SETOF foliot.run LANGUAGE plpgsql AS $$
DECLARE
    free bigint[];
BEGIN
    SELECT array_agg(x.number) INTO free FROM (
        SELECT r.number FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.state < 2 FOR UPDATE SKIP LOCKED
    ) x;
    RETURN QUERY SELECT r.* FROM foliot.run r
    WHERE r.number = ANY(free) AND r.state < 2 AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
    ORDER BY r.number;
END $$;

-- The runs that attempts claim to own, locked, with the token that the store remembers.
CREATE FUNCTION foliot.own_runs(numbers_ bigint[], tokens_ bigint[])
RETURNS TABLE (number bigint, token bigint, schedule text, name text, worker integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM foliot.write_claims(tokens_, numbers_);
    PERFORM 1 FROM foliot.claim c
    WHERE c.token = ANY(ARRAY(SELECT r.token FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.state = 4))
    ORDER BY c.token FOR UPDATE;
    RETURN QUERY SELECT r.number, r.token, r.schedule, r.name, r.worker FROM foliot.run r
    WHERE r.number = ANY(numbers_) AND r.state = 4 ORDER BY r.number FOR UPDATE;
END $$;

-- Below this fire time a new run must be told of: its cell may be loaded before the transaction that makes it ends.
-- A quarter of an hour is more than twice as far as cells are leased ahead; whatever takes longer than the difference
-- is found by its xid.
CREATE FUNCTION foliot.near() RETURNS bigint LANGUAGE sql VOLATILE
RETURN greatest(foliot.now() + 900000000, (SELECT max(high_water) FROM foliot.shard WHERE shard >= 0));

CREATE TYPE foliot.kept AS (number bigint, name text, outcome text, state smallint, fire_at bigint);

-- Makes one promise by key, or does with the one that exists what `on_conflict` says; `refused` changes nothing.
-- `stem` is the key with its tenant, up to the generation: `class:7[acme]#`.
CREATE FUNCTION foliot.make_promise(
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
                -- What is due may be claimed, and an old snapshot does not show that.
                IF kept.fire_at <= foliot.now() AND current_setting('transaction_isolation') <> 'read committed' THEN
                    RAISE EXCEPTION '% is due already, and can be replaced only in a transaction of isolation level READ '
                        'COMMITTED, not %', kept.name, upper(current_setting('transaction_isolation'))
                        USING ERRCODE = '25001';
                END IF;
                -- Whoever is running keeps what he has, and does not wait for this transaction.
                IF kept.state IN (0, 2) THEN
                    PERFORM 1 FROM foliot.run r WHERE r.number = latest.number FOR UPDATE;
                END IF;
                UPDATE foliot.run r SET job = job_, payload = payload_, fire_at = fire_at_, nominal = NULL,
                    useful_until = useful_until_, priority = priority_, queue = queue_, options = options_,
                    fired_at = NULL, state = 0, reason = NULL, detail = NULL, spent = 0, progress = NULL,
                    checkpoint = NULL
                WHERE r.number = latest.number AND r.state IN (0, 2)
                    AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
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

CREATE FUNCTION foliot.insert_promise(
    number_ bigint, name_ text, job_ text, payload_ bytea, fire_at_ bigint, useful_until_ bigint, tenant_ text,
    queue_ text, priority_ integer, options_ bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    shard_ smallint := number_ % (SELECT shards FROM foliot.setting);
BEGIN
    INSERT INTO foliot.run (number, name, fire_at, shard, priority, useful_until, job, payload, tenant, queue, options)
    VALUES (number_, name_, fire_at_, shard_, priority_, useful_until_, job_, payload_, tenant_, queue_, options_);
    IF fire_at_ < foliot.near() THEN
        INSERT INTO foliot.stir (shard, numbers) VALUES (shard_, ARRAY[number_]);
    END IF;
END $$;

-- For any driver, in the caller's own transaction: the promise exists if and only if that commits.
--     SELECT outcome FROM foliot.promise('remind', now() + interval '1 day', '{"class_id": 7}', key => 'class:7')
CREATE FUNCTION foliot.promise(
    job text, at timestamptz, arguments jsonb DEFAULT '{}', key text DEFAULT NULL, tenant text DEFAULT NULL,
    queue text DEFAULT NULL, priority integer DEFAULT 0, on_conflict text DEFAULT 'keep',
    useful_until timestamptz DEFAULT NULL
) RETURNS foliot.kept LANGUAGE plpgsql AS $$
DECLARE
    due bigint;
    until bigint;
    queue_ text := nullif(coalesce(queue, (SELECT j.queue FROM foliot.job j WHERE j.name = job)), 'default');
    kept foliot.kept;
BEGIN
    IF job IS NULL OR at IS NULL OR jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'foliot.promise needs a job, a time, and arguments as a JSON object' USING ERRCODE = '22023';
    END IF;
    IF at < '1970-01-01Z' OR at >= '10000-01-01Z' OR useful_until < at OR useful_until >= '10000-01-01Z' THEN
        RAISE EXCEPTION 'foliot.promise: the time lies between 1970 and 9999, and useful_until after it'
            USING ERRCODE = '22023';
    END IF;
    due := extract(epoch FROM at) * 1000000;
    until := extract(epoch FROM useful_until) * 1000000;
    IF on_conflict NOT IN ('keep', 'replace', 'error', 'renew') THEN
        RAISE EXCEPTION 'on_conflict is keep, replace, error or renew, not %', on_conflict USING ERRCODE = '22023';
    END IF;
    IF key IS NULL THEN
        kept := (foliot.next_number(), NULL, 'made', 0::smallint, due);
        PERFORM foliot.insert_promise(kept.number, NULL, job, convert_to(arguments::text, 'UTF8'), due, until, tenant,
            queue_, priority, NULL);
    ELSE
        kept := foliot.make_promise(NULL, key || coalesce('[' || tenant || ']', '') || '#', job,
            convert_to(arguments::text, 'UTF8'), due, until, tenant, queue_, priority, NULL, on_conflict, NULL);
        IF kept.outcome = 'refused' THEN
            RAISE EXCEPTION 'the key % has a promise already: %', key, kept.name USING ERRCODE = '23505';
        END IF;
    END IF;
    PERFORM foliot.wake(due);
    RETURN kept;
END $$;

-- A hint to schedulers, sent when the transaction commits, and only for what is due before they look by themselves.
CREATE FUNCTION foliot.wake(due bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF due < foliot.now() + 500000 THEN
        PERFORM pg_notify('foliot', 'arrivals');
    END IF;
END $$;

-- Many promises in the caller's own transaction, given as one text, which any driver can bind: a JSON array of objects
-- with these fields. One row each, in order. Where one is refused none is made, and its row says so; the transaction
-- goes on either way.
CREATE TYPE foliot.wish AS (
    job text, payload bytea, fire_at bigint, key text, tenant text, queue text, priority integer, useful_until bigint,
    options bytea, on_conflict text, unique_for bigint
);

CREATE FUNCTION foliot.promise_all(promises text) RETURNS SETOF foliot.kept LANGUAGE plpgsql AS $$
DECLARE
    wanted jsonb := promises::jsonb;
    answers foliot.kept[];
BEGIN
    IF jsonb_array_length(wanted) > 1 AND wanted @? '$[*].on_conflict ? (@ != "keep")' THEN
        BEGIN
            answers := foliot.make_promises(wanted);
            IF EXISTS (SELECT 1 FROM unnest(answers) a WHERE a.outcome = 'refused') THEN
                RAISE EXCEPTION 'a promise was refused' USING ERRCODE = 'FL002';
            END IF;
        EXCEPTION WHEN SQLSTATE 'FL002' THEN
            NULL;  -- what was made beside it is undone; what the answers say is not
        END;
    ELSE
        answers := foliot.make_promises(wanted);
    END IF;
    RETURN QUERY SELECT * FROM unnest(answers);
END $$;

CREATE FUNCTION foliot.make_promises(wanted jsonb) RETURNS foliot.kept[] LANGUAGE plpgsql AS $$
DECLARE
    one record;
    answers foliot.kept[];
BEGIN
    FOR one IN
        WITH plain AS MATERIALIZED (
            SELECT w.*, foliot.next_number() AS number
            FROM jsonb_populate_recordset(NULL::foliot.wish, wanted) WITH ORDINALITY w WHERE w.key IS NULL
        ), made AS (
            INSERT INTO foliot.run (number, shard, priority, job, payload, fire_at, useful_until, tenant, queue, options)
            SELECT p.number, p.number % (SELECT s.shards FROM foliot.setting s), p.priority, p.job, p.payload, p.fire_at,
                p.useful_until, p.tenant, p.queue, p.options
            FROM plain p RETURNING number, shard, fire_at
        ), told AS (
            INSERT INTO foliot.stir (shard, numbers)
            SELECT m.shard, array_agg(m.number) FROM made m CROSS JOIN (SELECT foliot.near() AS near OFFSET 0) n
            WHERE m.fire_at < n.near GROUP BY m.shard
        )
        SELECT p.ordinality AS place, p.number, p.fire_at FROM plain p
    LOOP
        answers[one.place] := (one.number, NULL, 'made', 0::smallint, one.fire_at)::foliot.kept;
    END LOOP;
    -- In the order of their names, so that two callers with the same keys never wait for one another.
    FOR one IN
        SELECT w.*, w.key || coalesce('[' || w.tenant || ']', '') || '#' AS stem
        FROM jsonb_populate_recordset(NULL::foliot.wish, wanted) WITH ORDINALITY w WHERE w.key IS NOT NULL
        ORDER BY stem, w.ordinality
    LOOP
        answers[one.ordinality] := foliot.make_promise(NULL, one.stem, one.job, one.payload, one.fire_at,
            one.useful_until, one.tenant, one.queue, one.priority, one.options, one.on_conflict, one.unique_for);
    END LOOP;
    PERFORM foliot.wake((SELECT min(a.fire_at) FROM unnest(answers) a WHERE a.outcome NOT IN ('kept', 'refused')));
    RETURN answers;
END $$;

-- Ends a running attempt as succeeded in the caller's own transaction: what that writes and the end of the run are one.
-- `run` and `token` are the number and the token of the handler's context. If the run is no longer the attempt's, this
-- raises FL001, and the transaction cannot commit. Best called last: until the commit, others wait who end runs of the
-- same claim, or decide about the same schedule.
CREATE FUNCTION foliot.complete(run bigint, token bigint, result jsonb DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended foliot.run;
    claim_ foliot.claim;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'foliot.complete needs a transaction of isolation level READ COMMITTED, not %: what waits for this '
            'run could not be seen', upper(current_setting('transaction_isolation')) USING ERRCODE = '25001';
    END IF;
    -- First the schedule, as everybody does who must not wait for another with its run in hand.
    PERFORM 1 FROM foliot.schedule s
    WHERE s.id = (SELECT r.schedule FROM foliot.run r WHERE r.number = complete.run) FOR UPDATE;
    -- With the run in hand, nobody else can write its claim, nor take it away.
    PERFORM 1 FROM foliot.run r WHERE r.number = complete.run FOR UPDATE;
    SELECT c.* INTO claim_ FROM foliot.claim c
    WHERE c.token = complete.token AND NOT c.written AND complete.run = ANY(c.numbers);
    DELETE FROM foliot.run r WHERE r.number = complete.run
        AND ((r.state = 4 AND r.token = complete.token) OR (r.state < 2 AND claim_.token IS NOT NULL))
    RETURNING r.* INTO ended;
    IF FOUND AND ended.state < 2 THEN
        ended.attempt := ended.attempt + 1; ended.token := claim_.token; ended.worker := claim_.worker;
        ended.fired_at := claim_.fired_at; ended.claimed_at := claim_.claimed_at; ended.lane := claim_.lane;
    END IF;
    IF ended.number IS NULL THEN
        RAISE EXCEPTION 'run % cannot be completed: the attempt with token % does not own it', complete.run, complete.token
            USING ERRCODE = 'FL001', HINT = 'Its lease was lost, and another attempt has the run; or it has ended already.'
            ' Roll back, and let the handler end.';
    END IF;
    INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since,
        schedule, revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at,
        finished_at, progress, result)
    SELECT ended.number, ended.name, 10, ended.origin, ended.lane, ended.priority, ended.job, ended.payload,
        ended.fire_at, ended.nominal, ended.since, ended.schedule, ended.revision, ended.tenant, ended.queue,
        ended.options, ended.attempt, ended.spent + 1, ended.token, ended.worker, ended.fired_at, ended.claimed_at,
        coalesce(ended.started_at, ended.claimed_at), foliot.now(), ended.progress,
        convert_to(complete.result::text, 'UTF8');
    -- The claim is left as it is: other runs of it must not wait for the caller's transaction. A claim without runs goes
    -- when the store is tidied.
    DELETE FROM foliot.cancellation c WHERE c.number = complete.run;
    IF ended.schedule IS NOT NULL THEN
        PERFORM foliot.run_ended(ended.schedule);
    END IF;
END $$;

-- What follows when a run of a schedule has ended; the schedule is locked. As foliot.store.verbs.following does it.
CREATE FUNCTION foliot.run_ended(id_ text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    template foliot.schedule;
    number_ bigint;
    shard_ smallint;
    due bigint;
    useful bigint;
BEGIN
    WITH released AS (
        UPDATE foliot.run r SET state = 0, reason = NULL, detail = NULL WHERE r.schedule = id_ AND r.state = 2
        RETURNING r.shard, r.number
    )
    INSERT INTO foliot.stir (shard, numbers) SELECT shard, array_agg(number) FROM released GROUP BY shard;
    IF FOUND THEN
        PERFORM foliot.wake(foliot.now());
    END IF;
    SELECT s.* INTO template FROM foliot.schedule s WHERE s.id = id_ AND s.delay IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.schedule = s.id AND r.state < 20 AND r.origin = 0);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    BEGIN
        useful := convert_from(template.policy, 'UTF8')::jsonb->>'useful_until';
    EXCEPTION WHEN data_exception THEN
        NULL;  -- a policy that cannot be read is told when its schedule fires; the chain goes on
    END;
    due := foliot.now() + template.delay;
    -- A run that was made and ended within this very moment has the name already.
    WHILE EXISTS (SELECT 1 FROM foliot.named n WHERE n.name = foliot.tick_name(id_, due)) LOOP
        due := due + 1;
    END LOOP;
    number_ := foliot.next_number();
    shard_ := number_ % (SELECT s.shards FROM foliot.setting s);
    INSERT INTO foliot.named (name, number) VALUES (foliot.tick_name(id_, due), number_);
    INSERT INTO foliot.run (number, name, origin, fire_at, nominal, useful_until, shard, priority, job, payload, schedule,
        revision, tenant, queue, options)
    VALUES (number_, foliot.tick_name(id_, due), 0, due, due, due + useful, shard_, template.priority, template.job,
        template.payload, id_, template.revision, template.tenant, template.queue, template.options);
    IF due < foliot.near() THEN
        INSERT INTO foliot.stir (shard, numbers) VALUES (shard_, ARRAY[number_]);
    END IF;
    UPDATE foliot.schedule s SET last_created = foliot.tick_name(id_, due) WHERE s.id = id_;
    PERFORM foliot.wake(due);
END $$;

-- `daily@2026-04-03T02:00:00Z`, with a fraction only where there is one: as foliot.domain.identity writes it.
CREATE FUNCTION foliot.tick_name(schedule text, nominal bigint) RETURNS text LANGUAGE sql STABLE
RETURN schedule || '@' || to_char(to_timestamp(nominal / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || CASE WHEN nominal % 1000000 > 0 THEN '.' || rtrim(lpad((nominal % 1000000)::text, 6, '0'), '0') ELSE '' END || 'Z';
