-- breaks: 5
-- Who waits for whom. A release that does not know this would let go everybody at once, and set nothing free.

-- What an operator, or code, allows: `most` at a time, one in `every` microseconds with up to `burst` at once, and for
-- tenants the `weight` of their share. Names: job:X, tenant:X (tenant:* for each), queue:X, schedule:X, to:X (a
-- destination), lane:catch-up, lane:backfill, and lane:catch-up/job:X and so on.
CREATE TABLE foliot.gate (
    name        text             PRIMARY KEY,
    most        integer,
    every       bigint,
    burst       integer,
    weight      double precision,
    source      text             NOT NULL,
    changed_at  bigint           NOT NULL,
    note        text             NOT NULL DEFAULT ''
);

-- What is taken. `key:X` for business keys, the names of gates for what they allow at a time, `rate:` and such a name
-- for the few that have a time of their own by its rate (`tat`: when the next one would be on time, by GCRA; `slack`:
-- how much earlier is allowed). Firing and whoever sets free both lock these rows first, in the order of their names.
CREATE TABLE foliot.slot (
    name   text    COLLATE "C" PRIMARY KEY,
    used   integer NOT NULL DEFAULT 0,
    most   integer NOT NULL,
    every  bigint,
    slack  bigint  NOT NULL DEFAULT 0,
    tat    bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

ALTER TABLE foliot.run ADD COLUMN slots text, ADD COLUMN waits_for text, ADD COLUMN decided boolean,
    ADD COLUMN forced boolean;
COMMENT ON COLUMN foliot.run.slots IS 'What it has taken, as a JSON array of names.';
COMMENT ON COLUMN foliot.run.waits_for IS 'The slot that it is held for; turn:X for the overlap of its schedule.';
COMMENT ON COLUMN foliot.run.decided IS 'Its schedule has decided about this tick, and made the next one.';
COMMENT ON COLUMN foliot.run.forced IS 'An operator let it go, against overlap and limits.';
CREATE INDEX run_waiting ON foliot.run (waits_for, lane, priority DESC, fire_at, number) WHERE waits_for IS NOT NULL;

ALTER TABLE foliot.schedule ADD COLUMN skip_through bigint;
COMMENT ON COLUMN foliot.schedule.skip_through IS 'Ticks up to here fell into a pause, and are not made up for.';

-- Destinations that failed of late. While `opened_at` is set, work for them is held but for a probe in `every`.
CREATE TABLE foliot.breaker (
    destination  text    PRIMARY KEY,
    failures     integer NOT NULL,
    opened_at    bigint,
    every        bigint,
    changed_at   bigint  NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE foliot.run ADD COLUMN gives_up_at bigint;
COMMENT ON COLUMN foliot.run.gives_up_at IS 'When a run that is held for a destination is too old to be tried again.';
CREATE INDEX run_gives_up ON foliot.run (gives_up_at) WHERE gives_up_at IS NOT NULL;

-- Where a run goes that is about to be tried. A check goes nowhere; a run that an operator let go, or that is a probe, goes
-- in any case.
CREATE FUNCTION foliot.bound_for(one foliot.run) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF one.options IS NULL OR one.phase IS NOT NULL OR one.forced IS NOT NULL THEN
        RETURN NULL;
    END IF;
    RETURN convert_from(one.options, 'UTF8')::jsonb->>'destination';
EXCEPTION WHEN data_exception THEN
    RETURN NULL;  -- whoever executes it tells that its settings cannot be read
END $$;

-- Sets slots free, and lets the next ones in, in the same transaction. Whoever ends or cancels a run that is to be let in
-- is waited for: it may be gone then, and the one behind it is next.
CREATE FUNCTION foliot.free_slots(names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name_ text;
    free foliot.slot;
    next_ foliot.run;
    at_ bigint;
BEGIN
    FOREACH name_ IN ARRAY names LOOP
        UPDATE foliot.slot s SET used = s.used - 1 WHERE s.name = name_ RETURNING s.* INTO free;
        CONTINUE WHEN NOT FOUND OR free.used >= free.most;
        LOOP
            SELECT r.* INTO next_ FROM foliot.run r WHERE r.waits_for = name_ AND r.state = 2
            ORDER BY r.lane, r.priority DESC, r.fire_at, r.number LIMIT 1 FOR UPDATE;
            EXIT WHEN FOUND OR NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.waits_for = name_ AND r.state = 2);
        END LOOP;
        CONTINUE WHEN next_.number IS NULL;
        at_ := greatest(foliot.now(), CASE WHEN free.every IS NULL THEN 0 ELSE free.tat - free.slack END);
        UPDATE foliot.run r SET state = CASE WHEN r.spent > 0 THEN 1 ELSE 0 END, nominal = coalesce(r.nominal, r.fire_at),
            fire_at = at_, slots = (coalesce(r.slots::jsonb, '[]') || to_jsonb(name_))::text,
            waits_for = CASE WHEN name_ LIKE 'rate:%' THEN name_ END,
            reason = CASE WHEN name_ LIKE 'rate:%' THEN r.reason END,
            detail = CASE WHEN name_ LIKE 'rate:%' THEN r.detail END
        WHERE r.number = next_.number;
        UPDATE foliot.slot s SET used = s.used + 1,
            tat = CASE WHEN s.every IS NULL THEN s.tat ELSE greatest(s.tat, at_) + s.every END
        WHERE s.name = name_;
        INSERT INTO foliot.stir (shard, numbers) VALUES (next_.shard, ARRAY[next_.number]);
        PERFORM foliot.wake(at_);
    END LOOP;
END $$;

-- Whatever takes a run's slots from it comes by here.
CREATE FUNCTION foliot.run_let_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM foliot.free_slots(ARRAY(
        SELECT d.value FROM (
            SELECT value FROM jsonb_array_elements_text(OLD.slots::jsonb)
            EXCEPT SELECT value FROM jsonb_array_elements_text(CASE WHEN TG_OP = 'UPDATE' THEN NEW.slots::jsonb END)
        ) d ORDER BY d.value COLLATE "C"));
    RETURN NULL;
END $$;
CREATE TRIGGER run_left AFTER DELETE ON foliot.run FOR EACH ROW WHEN (OLD.slots IS NOT NULL)
EXECUTE FUNCTION foliot.run_let_go();
CREATE TRIGGER run_let_go AFTER UPDATE OF slots ON foliot.run FOR EACH ROW
WHEN (OLD.slots IS NOT NULL AND OLD.slots IS DISTINCT FROM NEW.slots) EXECUTE FUNCTION foliot.run_let_go();

-- Whether any of these limits may be about a run: then it is looked at closely.
CREATE FUNCTION foliot.is_limited(limits text[], one foliot.run) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT 'job:' || one.job = ANY(limits) OR 'queue:' || coalesce(one.queue, 'default') = ANY(limits)
        OR (one.tenant IS NOT NULL AND ARRAY['tenant:*', 'tenant:' || one.tenant] && limits)
        OR (one.options IS NOT NULL AND position('"destination"'::bytea in one.options) > 0)
        OR EXISTS (SELECT 1 FROM unnest(limits) AS l(name) WHERE l.name LIKE 'lane:%')
$$;

-- Of the slots of these runs, all: locked in one order, before any of them is set free.
CREATE FUNCTION foliot.lock_slots_of(numbers_ bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM foliot.slot) THEN
        PERFORM 1 FROM foliot.slot s WHERE s.name IN (
            SELECT jsonb_array_elements_text(r.slots::jsonb) FROM foliot.run r
            WHERE r.number = ANY(numbers_) AND r.slots IS NOT NULL)
        ORDER BY s.name FOR UPDATE;
    END IF;
END $$;

UPDATE foliot.run SET waits_for = 'turn:' || schedule WHERE state = 2 AND schedule IS NOT NULL;

-- As before; what waits for its time by a rate is held.
CREATE OR REPLACE VIEW foliot.live_runs AS
SELECT number, name, CASE WHEN phase IS NOT NULL AND state IN (0, 1, 4) THEN 5::smallint
        WHEN state < 2 AND waits_for IS NOT NULL THEN 2::smallint ELSE state END AS state,
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

-- Backfills: ticks of an interval that are made into runs, with the template and the rule that the schedule had when
-- each was started. `cursor` is the last tick that was decided upon; `version` is raised by every change. Its runs are
-- those of the schedule with the origin backfill, a nominal time in the interval, and a number between the two.
CREATE TABLE foliot.backfill (
    number        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version       bigint  NOT NULL DEFAULT 1,
    starts        bigint  NOT NULL,
    ends          bigint  NOT NULL,
    cursor        bigint  NOT NULL,
    total         bigint  NOT NULL,
    made          bigint  NOT NULL DEFAULT 0,
    existed       bigint  NOT NULL DEFAULT 0,
    pace_at       bigint  NOT NULL,
    every         bigint,
    forgiven      bigint,
    made_at       bigint  NOT NULL,
    ended_at      bigint,
    first_number  bigint,
    last_number   bigint,
    at_once       integer NOT NULL,
    stop_after    integer,
    revision      integer NOT NULL,
    priority      integer NOT NULL,
    newest_first  boolean NOT NULL,
    schedule      text    COLLATE "C" NOT NULL,
    state         text    NOT NULL,
    hours         text,
    reason        text,
    job           text    NOT NULL,
    rule          text    NOT NULL,
    actor         text    NOT NULL,
    note          text    NOT NULL,
    payload       bytea   NOT NULL,
    options       bytea,
    queue         text,
    tenant        text
) WITH (fillfactor = 60);
CREATE INDEX backfill_unended ON foliot.backfill (state, number) WHERE ended_at IS NULL;
-- Rows that stand for several ticks, which are few.
CREATE INDEX history_span ON foliot.history (schedule, span_until) WHERE span_until IS NOT NULL;
