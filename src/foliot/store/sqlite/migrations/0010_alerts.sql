-- What must not be silent: alerts.

-- One row for each time that something was the case (see foliot.domain.alerts). `run_number` is that of the run, for kinds
-- that are about runs; `told_at` and `told_resolved_at`: when people were told.
CREATE TABLE alert (
    number            INTEGER PRIMARY KEY AUTOINCREMENT,
    kind              TEXT    NOT NULL,
    subject           TEXT    NOT NULL,
    severity          TEXT    NOT NULL,
    cause             TEXT    NOT NULL,
    action            TEXT    NOT NULL,
    opened_at         INTEGER NOT NULL,
    seen_at           INTEGER NOT NULL,
    count             INTEGER NOT NULL,
    resolved_at       INTEGER,
    snoozed_until     INTEGER,
    job               TEXT,
    schedule          TEXT,
    run               TEXT,
    tenant            TEXT,
    owner             TEXT,
    runbook           TEXT,
    told_at           INTEGER,
    told_resolved_at  INTEGER,
    run_number        INTEGER
) STRICT;
-- Each is open once.
CREATE UNIQUE INDEX alert_open ON alert (kind, subject) WHERE resolved_at IS NULL;
CREATE INDEX alert_subject ON alert (subject, number);
CREATE INDEX alert_resolved ON alert (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX alert_untold ON alert (number)
WHERE (resolved_at IS NULL AND told_at IS NULL) OR (resolved_at IS NOT NULL AND told_at IS NOT NULL AND told_resolved_at IS NULL);

-- What the watch knows from its last look, and when that was. One row, made by the first look.
CREATE TABLE watched (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    version    INTEGER NOT NULL,
    looked_at  INTEGER,
    memory     BLOB
) STRICT;
