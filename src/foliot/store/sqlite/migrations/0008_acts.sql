-- breaks: 8
-- What operators do. A release that does not know this would start what somebody has paused.

-- The audit log is sealed after the fact, in order: each seal's hash is made of the one before and of its row (see
-- foliot.domain.audit). `unsealed` names the rows that still wait for theirs, whoever wrote them.
CREATE TABLE seal (
    position  INTEGER PRIMARY KEY,
    audit     INTEGER NOT NULL UNIQUE,
    hash      TEXT    NOT NULL
) STRICT;
CREATE TABLE unsealed (audit INTEGER PRIMARY KEY) STRICT;
INSERT INTO unsealed SELECT n FROM audit;
CREATE TRIGGER audit_added AFTER INSERT ON audit BEGIN
    INSERT INTO unsealed VALUES (new.n);
END;
-- Neither is ever changed. A row that takes another's place would delete that one without a trigger's notice.
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;
CREATE TRIGGER audit_remains BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;
CREATE TRIGGER audit_is_kept BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE n = new.n) BEGIN
    SELECT RAISE(ABORT, 'the audit log is never changed');
END;
CREATE TRIGGER seal_stays BEFORE UPDATE ON seal BEGIN SELECT RAISE(ABORT, 'seals are never changed'); END;
CREATE TRIGGER seal_remains BEFORE DELETE ON seal BEGIN SELECT RAISE(ABORT, 'seals are never changed'); END;
CREATE TRIGGER seal_is_kept BEFORE INSERT ON seal
WHEN EXISTS (SELECT 1 FROM seal WHERE position = new.position OR audit = new.audit) BEGIN
    SELECT RAISE(ABORT, 'seals are never changed');
END;

-- What is paused: schedule:X, job:X, queue:X or tenant:X, and what of it (creation, retries, claims); the creation of a
-- schedule's own ticks is in its row. One that has ended by itself stays until its schedules know which ticks fell into it.
CREATE TABLE pause (
    name    TEXT    NOT NULL,
    what    TEXT    NOT NULL,
    since   INTEGER NOT NULL,
    until   INTEGER,
    actor   TEXT    NOT NULL,
    note    TEXT    NOT NULL,
    PRIMARY KEY (name, what)
) STRICT, WITHOUT ROWID;

ALTER TABLE schedule ADD COLUMN paused_by TEXT;
-- By which pauses a run may be kept from starting: claims:job:X, and retries:job:X for what was tried before. Not a check,
-- which only looks, nor what an operator let go.
CREATE VIEW pausable AS
SELECT r.number, w.value || a.value AS pause
FROM run r, json_each(json_array('job:' || r.job, 'queue:' || coalesce(r.queue, 'default'), 'tenant:' || r.tenant,
        'schedule:' || substr(r.schedule, 1, instr(r.schedule || '[', '[') - 1))) a,
    json_each(CASE WHEN r.attempt > 0 THEN '["claims:","retries:"]' ELSE '["claims:"]' END) w
WHERE r.phase IS NULL AND r.forced IS NULL AND a.value IS NOT NULL;

-- What a person wants of a worker: drain, quarantine. It hears of it with its heartbeat.
ALTER TABLE instance ADD COLUMN wish TEXT;
ALTER TABLE instance ADD COLUMN wish_note TEXT;

-- Schedules that were edited at run time, since their declaration was last applied: who did, and what it changed.
CREATE TABLE edit (
    schedule  TEXT    PRIMARY KEY,
    at        INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    fields    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
