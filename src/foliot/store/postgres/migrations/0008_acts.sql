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

-- What a person wants of a worker: drain, quarantine. It hears of it with its heartbeat.
ALTER TABLE foliot.instance ADD COLUMN wish text, ADD COLUMN wish_note text;

-- Schedules that were edited at run time, since their declaration was last applied: who did, and what it changed.
CREATE TABLE foliot.edit (
    at        bigint NOT NULL,
    schedule  text   COLLATE "C" PRIMARY KEY,
    actor     text   NOT NULL,
    fields    text   NOT NULL
);
