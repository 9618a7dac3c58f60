-- What must not be silent: alerts.

-- One row for each time that something was the case (see foliot.domain.alerts). `run_number` is that of the run, for kinds
-- that are about runs; `told_at` and `told_resolved_at`: when people were told.
CREATE TABLE foliot.alert (
    number            bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    opened_at         bigint  NOT NULL,
    seen_at           bigint  NOT NULL,
    resolved_at       bigint,
    snoozed_until     bigint,
    told_at           bigint,
    told_resolved_at  bigint,
    run_number        bigint,
    count             integer NOT NULL,
    kind              text    COLLATE "C" NOT NULL,
    subject           text    COLLATE "C" NOT NULL,
    severity          text    NOT NULL,
    cause             text    NOT NULL,
    action            text    NOT NULL,
    job               text,
    schedule          text,
    run               text,
    tenant            text,
    owner             text,
    runbook           text
);
-- Each is open once.
CREATE UNIQUE INDEX alert_open ON foliot.alert (kind, subject) WHERE resolved_at IS NULL;
CREATE INDEX alert_subject ON foliot.alert (subject, number);
CREATE INDEX alert_resolved ON foliot.alert (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX alert_untold ON foliot.alert (number)
WHERE (resolved_at IS NULL AND told_at IS NULL) OR (resolved_at IS NOT NULL AND told_at IS NOT NULL AND told_resolved_at IS NULL);

-- What the watch knows from its last look, and when that was. One row, made by the first look.
CREATE TABLE foliot.watched (
    id         smallint PRIMARY KEY CHECK (id = 1),
    version    bigint   NOT NULL,
    looked_at  bigint,
    memory     bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
