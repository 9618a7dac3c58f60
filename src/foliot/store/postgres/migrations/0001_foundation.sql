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
-- begins before we gave it the run; one that lags by more is believed, and counted as early. Where it was given before its
-- time, less is forgiven: what began long before it is to be seen.
CREATE FUNCTION foliot.begun(started bigint, claimed bigint, due bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN started < greatest(claimed, due) AND started > CASE WHEN claimed > due THEN claimed - 200000 ELSE due - 20000 END
    THEN greatest(claimed, due) ELSE started END;

-- When a run was fired that was claimed together with others: before its time it is neither, whenever it was handed off.
CREATE FUNCTION foliot.fired(fired bigint, claimed bigint, due bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(fired, greatest(claimed, due));

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
    withdrawn     text,
    phase         smallint,
    deaths        smallint,
    repair        boolean,
    lineage       bigint,
    ending        text,
    result        bytea
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON COLUMN foliot.run.xid IS 'The transaction that inserted it: how rows that commit late are found.';
COMMENT ON COLUMN foliot.run.phase IS 'It waits for its check, or is being checked, and is shown as verifying. '
    '1: its handler succeeded; 2: nobody knows whether it did.';
COMMENT ON COLUMN foliot.run.lineage IS 'The run whose ledger it shares, because it repeats that one.';
COMMENT ON COLUMN foliot.run.deaths IS 'It may have killed a worker, and is tried alone; so many did die.';
COMMENT ON COLUMN foliot.run.ending IS 'How its attempt has ended, once its process has.';
-- Exactly what can fire, in firing order, apart for each shard. A five-minute cell is a range of it.
CREATE INDEX run_due ON foliot.run (shard, fire_at, number) WHERE state <= 1;
CREATE INDEX run_schedule ON foliot.run (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX run_parked ON foliot.run (number) WHERE state >= 20;
CREATE INDEX run_retrying ON foliot.run (number) WHERE state = 1;
CREATE INDEX run_phase ON foliot.run (number) WHERE phase IS NOT NULL;
CREATE INDEX run_lineage ON foliot.run (lineage) WHERE lineage IS NOT NULL;

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

-- Chunks of runs waiting for a worker. `job` is set on chunks that only a worker which knows that job may take, or the
-- job's check (`settle?`); `alone` on one with a run that may have killed a worker;
-- `ready_at` on what was handed off before its time, or fired by a clock that has been set back since; `aside` on what a
-- claim could not take, until somebody has looked why; `rank` orders what is alike in lane and priority, so that tenants share (see
-- foliot.domain.fairness; 1 where there are none).
CREATE TABLE foliot.handoff (
    n         bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fired_at  bigint   NOT NULL,
    ready_at  bigint   NOT NULL DEFAULT 0,
    rank      bigint   NOT NULL DEFAULT 1,
    priority  integer  NOT NULL,
    lane      smallint NOT NULL,
    aside     boolean  NOT NULL DEFAULT false,
    alone     boolean  NOT NULL DEFAULT false,
    queue     text     NOT NULL,
    job       text,
    numbers   bigint[] NOT NULL
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX handoff_order ON foliot.handoff (lane, priority DESC, rank, n);
CREATE INDEX handoff_aside ON foliot.handoff (n) WHERE aside;

CREATE FUNCTION foliot.line_heads(
    queue_ text, lane_ smallint, priority_ integer, clock bigint, OUT own bigint, OUT beside bigint
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT h.rank INTO own FROM foliot.handoff h
    WHERE h.lane = lane_ AND h.priority = priority_ AND h.queue = queue_ AND h.job IS NULL AND NOT h.aside
        AND (h.ready_at <= clock OR h.ready_at = h.fired_at)
    ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT 1;
    SELECT h.rank INTO beside FROM foliot.handoff h
    WHERE h.lane = lane_ AND h.priority = priority_ AND h.job IS NULL AND NOT h.aside
        AND (h.ready_at <= clock OR h.ready_at = h.fired_at)
    ORDER BY h.lane, h.priority DESC, h.rank, h.n LIMIT 1;
END $$;
COMMENT ON FUNCTION foliot.line_heads IS 'Where a line stands: the first rank that waits in it for whoever comes, or for its '
    'time, and the first over all queues of its lane and priority.';

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
CREATE SEQUENCE foliot.history_n CACHE 32;
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
    detail       text,
    lineage      bigint
) PARTITION BY RANGE (finished_at);
CREATE TABLE foliot.history_other PARTITION OF foliot.history DEFAULT;
CREATE INDEX history_order ON foliot.history USING brin (xid) WITH (pages_per_range = 16);
CREATE INDEX history_number ON foliot.history (number);
CREATE INDEX history_lineage ON foliot.history (lineage) WHERE lineage IS NOT NULL;
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
    stage        text,
    reason       text,
    progress     bytea,
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
    traits   bytea,
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
CREATE INDEX audit_subject ON foliot.audit (subject, n);

-- Runs of claims that are not written, if their rows still look pending.
CREATE VIEW foliot.unwritten AS SELECT unnest(numbers) AS number FROM foliot.claim WHERE NOT written;

-- Live and ended runs in one shape, for people.
CREATE VIEW foliot.live_runs AS
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5::smallint ELSE state END AS state,
    origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at, attempt, spent, reason,
    coalesce(detail, withdrawn) AS detail, payload, worker, fired_at, claimed_at, started_at,
    NULL::bigint AS finished_at, progress, result, NULL::bigint AS span_until, 1 AS span_count,
    withdrawn IS NOT NULL OR number IN (SELECT c.number FROM foliot.cancellation c) AS cancel_requested,
    number AS position, options, phase, repair, deaths, checkpoint IS NOT NULL AS has_checkpoint
FROM foliot.run WHERE NOT (state < 2 AND number IN (SELECT u.number FROM foliot.unwritten u))
UNION ALL
SELECT r.number, r.name, CASE WHEN r.phase IS NULL THEN 4::smallint ELSE 5::smallint END, r.origin, r.job, r.schedule, r.revision, r.tenant, r.queue, c.lane, r.priority,
    r.nominal, r.since, r.fire_at, r.attempt + 1, r.spent, NULL, NULL, r.payload, c.worker,
    foliot.fired(c.fired_at, c.claimed_at, r.fire_at), greatest(c.claimed_at, r.fire_at),
    CASE WHEN r.phase IS NOT NULL THEN r.started_at END, NULL, r.progress, r.result, NULL, 1, false, r.number, r.options,
    r.phase, r.repair, r.deaths, r.checkpoint IS NOT NULL
FROM foliot.claim c CROSS JOIN LATERAL unnest(c.numbers) AS u(number) JOIN foliot.run r ON r.number = u.number
WHERE NOT c.written AND r.state < 2;
CREATE VIEW foliot.ended_runs AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at,
    finished_at, progress, result, span_until, coalesce(span_count, 1) AS span_count,
    false AS cancel_requested, xid::numeric * 18446744073709551616 + n AS position, options, NULL::smallint AS phase,
    NULL::boolean AS repair, NULL::smallint AS deaths, false AS has_checkpoint, xid, n
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
