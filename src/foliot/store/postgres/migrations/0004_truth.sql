-- breaks: 4
-- What became of the world outside: the ledger of effects, items of batches, and budgets of retries. A release that does
-- not know this would take a run that waits for its check for one that waits for its handler.

-- `n` is the order in which effects were first begun; a lineage is named by the number of its first run.
CREATE TABLE foliot.effect (
    n           bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lineage     bigint  NOT NULL,
    run         bigint  NOT NULL,
    token       bigint  NOT NULL,
    started_at  bigint  NOT NULL,
    ended_at    bigint,
    attempt     integer NOT NULL,
    name        text    NOT NULL,
    key         text    NOT NULL,
    state       text    NOT NULL,
    settles     text,
    result      bytea,
    note        text,
    undo        text
);
CREATE UNIQUE INDEX effect_key ON foliot.effect (lineage, name, key);
CREATE INDEX effect_open ON foliot.effect (name, n) WHERE state = 'started';

CREATE TABLE foliot.item (
    lineage  bigint NOT NULL,
    at       bigint NOT NULL,
    batch    text   NOT NULL,
    key      text   NOT NULL,
    state    text   NOT NULL,
    error    text,
    PRIMARY KEY (lineage, batch, key)
);

CREATE TABLE foliot.batch (
    lineage  bigint NOT NULL,
    name     text   NOT NULL,
    size     bigint,
    PRIMARY KEY (lineage, name)
);

-- Retries of jobs that have a budget of them: how many of the hour that is being filled are spent.
CREATE TABLE foliot.budget (
    job    text    PRIMARY KEY,
    hour   bigint  NOT NULL,
    spent  integer NOT NULL
);

-- The ledger inside a transaction of the handler's own. Each takes one JSON object as text, which any driver can bind:
-- run and token of the attempt, the effect's name and key, and what is to be said of it. FL001 when the run is no longer
-- the attempt's: then the transaction cannot commit.
CREATE FUNCTION foliot.begin_effect(said text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted jsonb := said::jsonb;
    owned record := foliot.owned_by_attempt(wanted);
    lineage_ bigint := coalesce(owned.lineage, owned.number);
    found_ foliot.effect;
BEGIN
    SELECT e.* INTO found_ FROM foliot.effect e
    WHERE e.lineage = lineage_ AND e.name = wanted->>'name' AND e.key = wanted->>'key';
    IF found_.n IS NULL OR found_.state = 'not_done' OR (found_.state = 'started' AND (found_.token = owned.token
            OR (found_.settles = 'idempotent' AND wanted->>'settles' = 'idempotent'))) THEN
        PERFORM foliot.put_effect(owned.number, owned.token, owned.attempt, lineage_, wanted);
    END IF;
END $$;

CREATE FUNCTION foliot.end_effect(said text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted jsonb := said::jsonb;
    owned record := foliot.owned_by_attempt(wanted);
    lineage_ bigint := coalesce(owned.lineage, owned.number);
BEGIN
    IF wanted->>'state' = 'started' THEN
        PERFORM foliot.put_effect(owned.number, owned.token, owned.attempt, lineage_, wanted);
    ELSE
        UPDATE foliot.effect e SET state = wanted->>'state', ended_at = foliot.now(), note = wanted->>'note',
            result = convert_to(wanted->>'result', 'UTF8'), run = owned.number, attempt = owned.attempt,
            token = owned.token
        WHERE e.lineage = lineage_ AND e.name = wanted->>'name' AND e.key = wanted->>'key';
    END IF;
END $$;

CREATE FUNCTION foliot.put_effect(run_ bigint, token_ bigint, attempt_ integer, lineage_ bigint, wanted jsonb)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO foliot.effect (lineage, name, key, state, settles, run, attempt, token, started_at, undo)
    VALUES (lineage_, wanted->>'name', wanted->>'key', 'started', wanted->>'settles', run_, attempt_, token_,
        foliot.now(), wanted->>'undo')
    ON CONFLICT (lineage, name, key) DO UPDATE SET state = 'started', settles = excluded.settles, run = excluded.run,
        attempt = excluded.attempt, token = excluded.token, started_at = excluded.started_at, ended_at = NULL,
        result = NULL, note = NULL, undo = excluded.undo
$$;

CREATE FUNCTION foliot.effects_of(said text) RETURNS TABLE (
    name text, key text, state text, settles text, run bigint, attempt integer, token bigint, started_at bigint,
    ended_at bigint, result bytea, note text, undo text
) LANGUAGE sql AS $$
    SELECT e.name, e.key, e.state, e.settles, e.run, e.attempt, e.token, e.started_at, e.ended_at, e.result, e.note, e.undo
    FROM foliot.effect e
    WHERE e.lineage = coalesce((SELECT r.lineage FROM foliot.run r WHERE r.number = (said::jsonb->>'run')::bigint),
        (said::jsonb->>'run')::bigint)
    ORDER BY e.n
$$;

-- `checked`: the attempt's own code has a check for the run, whatever other workers have.
CREATE FUNCTION foliot.complete_as(said text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted jsonb := said::jsonb;
BEGIN
    IF wanted->>'checked' = 'true' THEN
        PERFORM foliot.complete_unchecked((wanted->>'run')::bigint, (wanted->>'token')::bigint, (wanted->>'result')::jsonb);
    ELSE
        PERFORM foliot.complete((wanted->>'run')::bigint, (wanted->>'token')::bigint, (wanted->>'result')::jsonb);
    END IF;
END $$;

-- The run that an attempt says is its own, locked.
CREATE FUNCTION foliot.owned_by_attempt(wanted jsonb) RETURNS record LANGUAGE plpgsql AS $$
DECLARE
    owned record;
BEGIN
    SELECT o.number, o.token, o.name, o.attempt, o.lineage INTO owned
    FROM foliot.own_runs(ARRAY[(wanted->>'run')::bigint], ARRAY[(wanted->>'token')::bigint]) o;
    IF owned.number IS NULL THEN
        RAISE EXCEPTION 'the attempt with token % does not own run %', wanted->>'token', wanted->>'run'
            USING ERRCODE = 'FL001', HINT = 'Its lease was lost, or it has ended already.';
    END IF;
    RETURN owned;
END $$;
