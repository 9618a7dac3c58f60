-- Times are microseconds since 1970 (UTC). States, origins and lanes are the numbers of foliot.domain.

-- One row. Run numbers and tokens are handed out inside write transactions, so their order is the order of commits:
-- "everything after this number" is "everything that became visible since".
CREATE TABLE sequence (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    run    INTEGER NOT NULL,
    token  INTEGER NOT NULL
) STRICT;
INSERT INTO sequence VALUES (1, 0, 0);

-- Live and parked runs. NULL stands for what most rows have (nominal = fire time, default queue), because a
-- hundred million of them wait here.
CREATE TABLE run (
    number        INTEGER PRIMARY KEY,
    name          TEXT,
    state         INTEGER NOT NULL,
    origin        INTEGER NOT NULL,
    lane          INTEGER NOT NULL DEFAULT 0,
    priority      INTEGER NOT NULL DEFAULT 0,
    job           TEXT    NOT NULL,
    payload       BLOB    NOT NULL,
    fire_at       INTEGER NOT NULL,
    nominal       INTEGER,
    since         INTEGER,
    useful_until  INTEGER,
    schedule      TEXT,
    revision      INTEGER,
    tenant        TEXT,
    queue         TEXT,
    options       BLOB,
    attempt       INTEGER NOT NULL DEFAULT 0,
    spent         INTEGER NOT NULL DEFAULT 0,
    token         INTEGER,
    worker        INTEGER,
    fired_at      INTEGER,
    claimed_at    INTEGER,
    started_at    INTEGER,
    progress      BLOB,
    checkpoint    BLOB,
    reason        TEXT,
    detail        TEXT,
    withdrawn     TEXT
) STRICT;
-- Exactly what can fire, in firing order (the row number breaks ties). A five-minute cell is a range of it.
CREATE INDEX run_due ON run (fire_at) WHERE state <= 1;
CREATE UNIQUE INDEX run_name ON run (name) WHERE name IS NOT NULL;
CREATE INDEX run_schedule ON run (schedule, state) WHERE schedule IS NOT NULL;
CREATE INDEX run_parked ON run (state, number) WHERE state >= 20;
CREATE INDEX run_retrying ON run (number) WHERE state = 1;

-- Pending runs whose time or state was changed in place: how the owner of their cell hears of them. `seq` comes from
-- sequence.run, so that one cursor orders new rows and changed rows alike.
CREATE TABLE stir (
    seq     INTEGER PRIMARY KEY,
    number  INTEGER NOT NULL
) STRICT;

-- Who owns a shard's cells. One row per shard covers all of its cells below the high-water mark.
CREATE TABLE shard (
    shard       INTEGER PRIMARY KEY,
    owner       INTEGER,
    epoch       INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    high_water  INTEGER NOT NULL
) STRICT;

-- Chunks of runs waiting for a worker: run numbers as packed 64-bit integers. `job` is set on chunks that only a
-- worker which knows that job may take; `ready_at` on what was fired by a clock that has been set back since.
CREATE TABLE handoff (
    n         INTEGER PRIMARY KEY,
    queue     TEXT    NOT NULL,
    lane      INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    job       TEXT,
    ready_at  INTEGER NOT NULL DEFAULT 0,
    fired_at  INTEGER NOT NULL,
    numbers   BLOB    NOT NULL
) STRICT;
CREATE INDEX handoff_order ON handoff (lane, priority DESC, n);

-- Chunks owned by a worker. `open` counts the runs that have not ended; at zero the row goes.
CREATE TABLE claim (
    token       INTEGER PRIMARY KEY,
    worker      INTEGER NOT NULL,
    claimed_at  INTEGER NOT NULL,
    open        INTEGER NOT NULL,
    numbers     BLOB    NOT NULL
) STRICT;

-- Running attempts that somebody asked to stop, until they end.
CREATE TABLE cancellation (
    number  INTEGER PRIMARY KEY,
    worker  INTEGER NOT NULL,
    reason  TEXT    NOT NULL,
    note    TEXT    NOT NULL
) STRICT;

-- Ended runs, insert-only, in the order of their endings.
CREATE TABLE history (
    n            INTEGER PRIMARY KEY,
    number       INTEGER NOT NULL,
    name         TEXT,
    state        INTEGER NOT NULL,
    origin       INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    job          TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    fire_at      INTEGER NOT NULL,
    nominal      INTEGER,
    since        INTEGER,
    schedule     TEXT,
    revision     INTEGER,
    tenant       TEXT,
    queue        TEXT,
    options      BLOB,
    attempt      INTEGER NOT NULL,
    spent        INTEGER NOT NULL,
    token        INTEGER,
    worker       INTEGER,
    fired_at     INTEGER,
    claimed_at   INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER NOT NULL,
    progress     BLOB,
    reason       TEXT,
    detail       TEXT,
    result       BLOB,
    span_until   INTEGER,
    span_count   INTEGER
) STRICT;
CREATE UNIQUE INDEX history_number ON history (number);
CREATE UNIQUE INDEX history_name ON history (name) WHERE name IS NOT NULL;
CREATE INDEX history_schedule ON history (schedule, nominal) WHERE schedule IS NOT NULL;
CREATE INDEX history_kept ON history (schedule, nominal) WHERE state IN (10, 11) AND schedule IS NOT NULL;
-- The early-fire counter: the size of an index that must stay empty, and that costs nothing while it does.
CREATE INDEX history_early ON history (n) WHERE started_at < fire_at;

-- Finished attempts, insert-only, but for the last one of a run that succeeded: that one is told by its history row.
CREATE TABLE attempt (
    run          INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    worker       INTEGER,
    fire_at      INTEGER,
    claimed_at   INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER NOT NULL,
    outcome      TEXT    NOT NULL,
    error        TEXT,
    PRIMARY KEY (run, attempt, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempt_early ON attempt (run) WHERE started_at < fire_at;

CREATE TABLE schedule (
    id                 TEXT    PRIMARY KEY,
    job                TEXT    NOT NULL,
    rule               TEXT    NOT NULL,
    payload            BLOB    NOT NULL,
    policy             BLOB    NOT NULL,
    options            BLOB,
    delay              INTEGER,
    queue              TEXT,
    priority           INTEGER NOT NULL,
    tenant             TEXT,
    owner              TEXT,
    runbook            TEXT,
    changes            TEXT,
    revision           INTEGER NOT NULL,
    fingerprint        TEXT    NOT NULL,
    made_at            INTEGER NOT NULL,
    paused_at          INTEGER,
    paused_until       INTEGER,
    paused_note        TEXT,
    evaluated_through  INTEGER,
    last_created       TEXT,
    fault              TEXT
) STRICT, WITHOUT ROWID;

-- What the store knows of jobs, for processes that do not have their code.
CREATE TABLE job (
    name     TEXT PRIMARY KEY,
    policy   BLOB NOT NULL,
    queue    TEXT NOT NULL,
    owner    TEXT,
    runbook  TEXT,
    changes  TEXT,
    seen_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per start of a process; numbers are never used again.
CREATE TABLE instance (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    role        TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    birth       TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    queues      TEXT    NOT NULL,
    jobs        TEXT    NOT NULL,
    slots       INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    beat_at     INTEGER NOT NULL,
    ended_at    INTEGER
) STRICT;
CREATE INDEX instance_live ON instance (number) WHERE ended_at IS NULL;

-- Only what is out of the ordinary; the happy path writes none.
CREATE TABLE event (
    n        INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    detail   TEXT    NOT NULL
) STRICT;
CREATE INDEX event_subject ON event (subject, n);

-- Live and ended runs in one shape, for people.
CREATE VIEW live_story AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, coalesce(detail, withdrawn) AS detail, payload, worker, fired_at, claimed_at, started_at,
    NULL AS finished_at, progress, NULL AS result, NULL AS span_until, 1 AS span_count,
    withdrawn IS NOT NULL OR number IN (SELECT number FROM cancellation) AS cancel_requested, number AS position
FROM run;
CREATE VIEW ended_story AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at,
    finished_at, progress, result, span_until, coalesce(span_count, 1) AS span_count,
    0 AS cancel_requested, n AS position
FROM history;

CREATE TABLE audit (
    n        INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    action   TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    note     TEXT    NOT NULL
) STRICT;
