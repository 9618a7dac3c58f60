-- breaks: 5
-- Who waits for whom. A release that does not know this would let go everybody at once, and set nothing free.

-- What an operator, or code, allows: `most` at a time, one in `every` microseconds with up to `burst` at once, and for
-- tenants the `weight` of their share. Names: job:X, tenant:X (tenant:* for each), queue:X, schedule:X, to:X (a
-- destination), lane:catch-up, lane:backfill, and lane:catch-up/job:X and so on.
CREATE TABLE gate (
    name        TEXT    PRIMARY KEY,
    most        INTEGER,
    every       INTEGER,
    burst       INTEGER,
    weight      REAL,
    source      TEXT    NOT NULL,
    changed_at  INTEGER NOT NULL,
    note        TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- What is taken. `key:X` for business keys, the names of gates for what they allow at a time, `rate:` and such a name
-- for the few that have a time of their own by its rate (`tat`: when the next one would be on time, by GCRA; `slack`:
-- how much earlier is allowed). Firing and whoever sets free both lock these rows first, in the order of their names.
CREATE TABLE slot (
    name   TEXT    PRIMARY KEY,
    used   INTEGER NOT NULL DEFAULT 0,
    most   INTEGER NOT NULL,
    every  INTEGER,
    slack  INTEGER NOT NULL DEFAULT 0,
    tat    INTEGER NOT NULL DEFAULT 0,
    next   INTEGER
) STRICT, WITHOUT ROWID;

-- `slots`: what a run has taken, as a JSON array of names. `waits_for`: the slot that it is held for (`turn:X` for
-- the overlap of its schedule). `decided`: its schedule has decided about this tick, and made the next one. `forced`: an operator let it go,
-- against overlap and limits.
ALTER TABLE run ADD COLUMN slots TEXT;
ALTER TABLE run ADD COLUMN waits_for TEXT;
ALTER TABLE run ADD COLUMN decided INTEGER;
ALTER TABLE run ADD COLUMN forced INTEGER;
CREATE INDEX run_waiting ON run (waits_for, lane, priority DESC, fire_at, number) WHERE waits_for IS NOT NULL;

-- Ticks up to here fell into a pause that has ended, and are not made up for.
ALTER TABLE schedule ADD COLUMN skip_through INTEGER;

-- Destinations that failed of late. While `opened_at` is set, work for them is held but for a probe in `every`.
CREATE TABLE breaker (
    destination  TEXT    PRIMARY KEY,
    failures     INTEGER NOT NULL,
    opened_at    INTEGER,
    every        INTEGER,
    changed_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- When a run that is held for a destination is too old to be tried again.
ALTER TABLE run ADD COLUMN gives_up_at INTEGER;
CREATE INDEX run_gives_up ON run (gives_up_at) WHERE gives_up_at IS NOT NULL;

-- Where runs go that wait, or are about to be tried. Checks go nowhere; a run that an operator let go, or that is a probe,
-- goes in any case.
CREATE VIEW bound_for AS
SELECT number, CASE WHEN json_valid(CAST(options AS TEXT)) THEN CAST(options AS TEXT) ->> '$.destination' END AS destination
FROM run WHERE options IS NOT NULL AND phase IS NULL AND forced IS NULL;

-- Whatever takes a run's slots from it, sets them free here, and lets the next one in, in the same transaction.
CREATE TABLE freed (slot TEXT NOT NULL) STRICT;
CREATE TRIGGER run_left AFTER DELETE ON run WHEN old.slots IS NOT NULL BEGIN
    INSERT INTO freed SELECT value FROM json_each(old.slots);
END;
CREATE TRIGGER run_let_go AFTER UPDATE OF slots ON run WHEN old.slots IS NOT NULL AND old.slots IS NOT new.slots BEGIN
    INSERT INTO freed SELECT value FROM json_each(old.slots)
    WHERE value NOT IN (SELECT value FROM json_each(coalesce(new.slots, '[]')));
END;
CREATE TRIGGER slot_freed AFTER INSERT ON freed BEGIN
    UPDATE slot SET used = used - 1 WHERE name = new.slot;
    UPDATE slot SET next = (SELECT number FROM run WHERE waits_for = new.slot AND state = 2
        ORDER BY lane, priority DESC, fire_at, number LIMIT 1)
    WHERE name = new.slot AND used < most;
    UPDATE run SET state = CASE WHEN spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(nominal, fire_at),
        fire_at = max(foliot_now(), (SELECT CASE WHEN every IS NULL THEN 0 ELSE tat - slack END FROM slot
            WHERE name = new.slot)),
        slots = json_insert(coalesce(slots, '[]'), '$[#]', new.slot),
        waits_for = CASE WHEN new.slot LIKE 'rate:%' THEN new.slot END,
        reason = CASE WHEN new.slot LIKE 'rate:%' THEN reason END, detail = CASE WHEN new.slot LIKE 'rate:%' THEN detail END
    WHERE number = (SELECT next FROM slot WHERE name = new.slot);
    UPDATE sequence SET run = run + 1 WHERE (SELECT next FROM slot WHERE name = new.slot) IS NOT NULL;
    INSERT INTO stir SELECT q.run, s.next FROM slot s, sequence q WHERE s.name = new.slot AND s.next IS NOT NULL;
    UPDATE slot SET used = used + 1, next = NULL,
        tat = CASE WHEN every IS NULL THEN tat ELSE max(tat, (SELECT fire_at FROM run WHERE number = slot.next)) + every END
    WHERE name = new.slot AND next IS NOT NULL;
    DELETE FROM freed;
END;

-- `rank` orders chunks that are alike in lane and priority, so that tenants share (see foliot.domain.fairness; 1 where there
-- are none).
ALTER TABLE handoff ADD COLUMN rank INTEGER NOT NULL DEFAULT 1;
DROP INDEX handoff_order;
CREATE INDEX handoff_order ON handoff (lane, priority DESC, rank, n);

UPDATE run SET waits_for = 'turn:' || schedule WHERE state = 2 AND schedule IS NOT NULL;

-- As before; what waits for its time by a rate is held.
DROP VIEW live_runs;
CREATE VIEW live_runs AS
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5 WHEN state < 2 AND waits_for IS NOT NULL
        THEN 2 ELSE state END AS state, origin, job,
    schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at, attempt, spent, reason,
    coalesce(detail, withdrawn) AS detail, payload, worker, fired_at, claimed_at, started_at, NULL AS finished_at,
    progress, result, NULL AS span_until, 1 AS span_count,
    withdrawn IS NOT NULL OR number IN (SELECT number FROM cancellation) AS cancel_requested, number AS position,
    options, phase, repair, deaths, checkpoint IS NOT NULL AS has_checkpoint
FROM run;

-- Backfills: ticks of an interval that are made into runs, with the template and the rule that the schedule had when
-- each was started. `cursor` is the last tick that was decided upon; `version` is raised by every change. Its runs are
-- those of the schedule with the origin backfill, a nominal time in the interval, and a number between the two.
CREATE TABLE backfill (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule      TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    version       INTEGER NOT NULL DEFAULT 1,
    starts        INTEGER NOT NULL,
    ends          INTEGER NOT NULL,
    newest_first  INTEGER NOT NULL,
    cursor        INTEGER NOT NULL,
    total         INTEGER NOT NULL,
    made          INTEGER NOT NULL DEFAULT 0,
    existed       INTEGER NOT NULL DEFAULT 0,
    every         INTEGER,
    at_once       INTEGER NOT NULL,
    hours         TEXT,
    pace_at       INTEGER NOT NULL,
    stop_after    INTEGER,
    forgiven      INTEGER,
    reason        TEXT,
    job           TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    revision      INTEGER NOT NULL,
    actor         TEXT    NOT NULL,
    note          TEXT    NOT NULL,
    made_at       INTEGER NOT NULL,
    ended_at      INTEGER,
    first_number  INTEGER,
    last_number   INTEGER,
    payload       BLOB    NOT NULL,
    options       BLOB,
    queue         TEXT,
    priority      INTEGER NOT NULL,
    tenant        TEXT
) STRICT;
CREATE INDEX backfill_unended ON backfill (state, number) WHERE ended_at IS NULL;
-- Rows that stand for several ticks, which are few.
CREATE INDEX history_span ON history (schedule, span_until) WHERE span_until IS NOT NULL;
