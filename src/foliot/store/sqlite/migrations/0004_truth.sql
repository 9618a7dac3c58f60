-- breaks: 4
-- What became of the world outside, and of runs whose end is uncertain. A release that does not know this would take a
-- run that waits for its check for one that waits for its handler.

-- `phase`: a run that waits for its check or is being checked (1: its handler succeeded; 2: nobody knows), shown as
-- verifying. `lineage`: the run whose ledger a rerun shares. `deaths`: it may have killed a worker, and is tried alone;
-- so many did die. `ending`: how its attempt has ended, once its process has.
ALTER TABLE run ADD COLUMN phase INTEGER;
ALTER TABLE run ADD COLUMN lineage INTEGER;
ALTER TABLE run ADD COLUMN repair INTEGER;
ALTER TABLE run ADD COLUMN deaths INTEGER;
ALTER TABLE run ADD COLUMN ending TEXT;
ALTER TABLE run ADD COLUMN result BLOB;
CREATE INDEX run_phase ON run (number) WHERE phase IS NOT NULL;
CREATE INDEX run_lineage ON run (lineage) WHERE lineage IS NOT NULL;
ALTER TABLE history ADD COLUMN lineage INTEGER;

-- A chunk with one run that may have killed a worker.
ALTER TABLE handoff ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;

ALTER TABLE attempt ADD COLUMN stage TEXT;
ALTER TABLE attempt ADD COLUMN reason TEXT;
ALTER TABLE attempt ADD COLUMN progress BLOB;
ALTER TABLE job ADD COLUMN traits BLOB;

-- The ledger. `n` is the order in which effects were first begun; a lineage is named by the number of its first run.
CREATE TABLE effect (
    n           INTEGER PRIMARY KEY,
    lineage     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    settles     TEXT,
    run         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    result      BLOB,
    note        TEXT,
    undo        TEXT
) STRICT;
CREATE UNIQUE INDEX effect_key ON effect (lineage, name, key);
CREATE INDEX effect_open ON effect (name, n) WHERE state = 'started';

CREATE TABLE item (
    lineage  INTEGER NOT NULL,
    batch    TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    error    TEXT,
    at       INTEGER NOT NULL,
    PRIMARY KEY (lineage, batch, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE batch (
    lineage  INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    size     INTEGER,
    PRIMARY KEY (lineage, name)
) STRICT, WITHOUT ROWID;

-- Retries of jobs that have a budget of them: how many of the hour that is being filled are spent.
CREATE TABLE budget (
    job    TEXT    PRIMARY KEY,
    hour   INTEGER NOT NULL,
    spent  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_subject ON audit (subject, n);

-- As before, with more at the end.
DROP VIEW live_runs;
CREATE VIEW live_runs AS
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5 ELSE state END AS state, origin, job,
    schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at, attempt, spent, reason,
    coalesce(detail, withdrawn) AS detail, payload, worker, fired_at, claimed_at, started_at, NULL AS finished_at,
    progress, result, NULL AS span_until, 1 AS span_count,
    withdrawn IS NOT NULL OR number IN (SELECT number FROM cancellation) AS cancel_requested, number AS position,
    options, phase, repair, deaths, checkpoint IS NOT NULL AS has_checkpoint
FROM run;
DROP VIEW ended_runs;
CREATE VIEW ended_runs AS
SELECT number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at,
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at,
    finished_at, progress, result, span_until, coalesce(span_count, 1) AS span_count,
    0 AS cancel_requested, n AS position, options, NULL AS phase, NULL AS repair, NULL AS deaths, 0 AS has_checkpoint
FROM history;
