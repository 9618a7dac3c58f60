-- Promises, made by processes of Foliot's or by anybody in a transaction of his own, and completion in the handler's.

-- Below this fire time a new run must be told of: its cell may be loaded before the transaction that makes it ends.
-- A quarter of an hour is more than twice as far as cells are leased ahead; whatever takes longer than the difference
-- is found by its xid.
CREATE FUNCTION foliot.near() RETURNS bigint LANGUAGE sql VOLATILE
RETURN greatest(foliot.now() + 900000000, (SELECT max(high_water) FROM foliot.shard WHERE shard >= 0));

CREATE TYPE foliot.kept AS (number bigint, name text, outcome text, state smallint, fire_at bigint);

-- Makes one promise by key, or does with the one that exists what `on_conflict` says; `refused` changes nothing.
-- `stem` is the key with its tenant, up to the generation: `class:7[acme]#`.
CREATE FUNCTION foliot.make_promise(
    number_ bigint, stem text, job_ text, payload_ bytea, fire_at_ bigint, useful_until_ bigint, tenant_ text,
    queue_ text, priority_ integer, options_ bytea, on_conflict text, unique_for bigint
) RETURNS foliot.kept LANGUAGE plpgsql AS $$
DECLARE
    latest record;
    live boolean;
    kept foliot.kept;
    generation bigint := 0;
    outcome_ text := 'made';
    shard_ smallint;
BEGIN
    LOOP
        -- The order of generations: by length and then by text, as numbers are written without leading zeros.
        SELECT n.name, n.number INTO latest FROM foliot.named n
        WHERE n.name >= stem AND n.name < left(stem, -1) || '$' AND substr(n.name, length(stem) + 1) ~ '^[0-9]+$'
        ORDER BY length(n.name) DESC, n.name DESC LIMIT 1;
        IF FOUND THEN
            generation := substr(latest.name, length(stem) + 1)::bigint;
            SELECT r.number, r.name, 'kept', r.state, r.fire_at INTO kept FROM foliot.live_runs r
            WHERE r.number = latest.number;
            live := FOUND;
            IF NOT live THEN
                SELECT h.number, h.name, 'kept', h.state, h.fire_at INTO kept FROM foliot.history h
                WHERE h.number = latest.number;
            END IF;
            IF NOT live AND (NOT FOUND OR (latest.number >> 22) * 1000 + 1577836800000000 + unique_for < foliot.now()) THEN
                NULL;  -- forgotten: a new one is made
            ELSIF on_conflict = 'keep' THEN
                RETURN kept;
            ELSIF on_conflict = 'replace' THEN
                -- What is due, or will be in a moment, may be claimed, and an old snapshot does not show that.
                IF kept.fire_at <= foliot.now() + 1000000 AND current_setting('transaction_isolation') <> 'read committed' THEN
                    RAISE EXCEPTION '% is due within a second, and can be replaced only in a transaction of isolation level '
                        'READ COMMITTED, not %', kept.name, upper(current_setting('transaction_isolation'))
                        USING ERRCODE = '25001';
                END IF;
                -- Whoever is running keeps what he has, and does not wait for this transaction.
                IF kept.state IN (0, 2) THEN
                    PERFORM 1 FROM foliot.run r WHERE r.number = latest.number FOR UPDATE;
                END IF;
                UPDATE foliot.run r SET job = job_, payload = payload_, fire_at = fire_at_, nominal = NULL,
                    useful_until = useful_until_, priority = priority_, queue = queue_, options = options_,
                    fired_at = NULL, state = 0, reason = NULL, detail = NULL, waits_for = NULL, slots = NULL, forced = NULL, gives_up_at = NULL,
                    spent = 0, progress = NULL,
                    checkpoint = NULL
                WHERE r.number = latest.number AND r.state IN (0, 2)
                    AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
                    AND NOT EXISTS (SELECT 1 FROM foliot.effect e WHERE e.lineage = r.number)
                    AND NOT EXISTS (SELECT 1 FROM foliot.item i WHERE i.lineage = r.number)
                RETURNING r.shard INTO shard_;
                IF FOUND THEN
                    INSERT INTO foliot.stir (shard, numbers) VALUES (shard_, ARRAY[latest.number]);
                    kept.outcome := 'replaced'; kept.state := 0; kept.fire_at := fire_at_;
                ELSE
                    kept.outcome := 'refused';
                    kept.state := coalesce(
                        (SELECT r.state FROM foliot.live_runs r WHERE r.number = latest.number), kept.state);
                END IF;
                RETURN kept;
            ELSIF on_conflict = 'renew' AND (NOT live OR kept.state >= 20) THEN
                outcome_ := 'renewed';
            ELSE
                kept.outcome := 'refused';
                RETURN kept;
            END IF;
        END IF;
        kept := (coalesce(number_, foliot.next_number()), stem || (generation + 1), outcome_, 0::smallint, fire_at_);
        INSERT INTO foliot.named (name, number) VALUES (kept.name, kept.number) ON CONFLICT (name) DO NOTHING;
        EXIT WHEN FOUND;
        -- Somebody else made it at the same moment: look again.
    END LOOP;
    PERFORM foliot.insert_promise(kept.number, kept.name, job_, payload_, fire_at_, useful_until_, tenant_, queue_,
        priority_, options_);
    RETURN kept;
END $$;

CREATE FUNCTION foliot.insert_promise(
    number_ bigint, name_ text, job_ text, payload_ bytea, fire_at_ bigint, useful_until_ bigint, tenant_ text,
    queue_ text, priority_ integer, options_ bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    shard_ smallint := number_ % (SELECT shards FROM foliot.setting);
BEGIN
    INSERT INTO foliot.run (number, name, fire_at, shard, priority, useful_until, job, payload, tenant, queue, options)
    VALUES (number_, name_, fire_at_, shard_, priority_, useful_until_, job_, payload_, tenant_, queue_, options_);
    IF fire_at_ < foliot.near() THEN
        INSERT INTO foliot.stir (shard, numbers) VALUES (shard_, ARRAY[number_]);
    END IF;
END $$;

-- For any driver, in the caller's own transaction: the promise exists if and only if that commits.
--     SELECT outcome FROM foliot.promise('remind', now() + interval '1 day', '{"class_id": 7}', key => 'class:7')
CREATE FUNCTION foliot.promise(
    job text, at timestamptz, arguments jsonb DEFAULT '{}', key text DEFAULT NULL, tenant text DEFAULT NULL,
    queue text DEFAULT NULL, priority integer DEFAULT 0, on_conflict text DEFAULT 'keep',
    useful_until timestamptz DEFAULT NULL
) RETURNS foliot.kept LANGUAGE plpgsql AS $$
DECLARE
    due bigint;
    until bigint;
    queue_ text := nullif(coalesce(queue, (SELECT j.queue FROM foliot.job j WHERE j.name = job)), 'default');
    kept foliot.kept;
BEGIN
    IF job IS NULL OR at IS NULL OR jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'foliot.promise needs a job, a time, and arguments as a JSON object' USING ERRCODE = '22023';
    END IF;
    IF at < '1970-01-01Z' OR at >= '10000-01-01Z' OR useful_until < at OR useful_until >= '10000-01-01Z' THEN
        RAISE EXCEPTION 'foliot.promise: the time lies between 1970 and 9999, and useful_until after it'
            USING ERRCODE = '22023';
    END IF;
    due := extract(epoch FROM at) * 1000000;
    until := extract(epoch FROM useful_until) * 1000000;
    IF on_conflict NOT IN ('keep', 'replace', 'error', 'renew') THEN
        RAISE EXCEPTION 'on_conflict is keep, replace, error or renew, not %', on_conflict USING ERRCODE = '22023';
    END IF;
    IF key IS NULL THEN
        kept := (foliot.next_number(), NULL, 'made', 0::smallint, due);
        PERFORM foliot.insert_promise(kept.number, NULL, job, convert_to(arguments::text, 'UTF8'), due, until, tenant,
            queue_, priority, NULL);
    ELSE
        kept := foliot.make_promise(NULL, key || coalesce('[' || tenant || ']', '') || '#', job,
            convert_to(arguments::text, 'UTF8'), due, until, tenant, queue_, priority, NULL, on_conflict, NULL);
        IF kept.outcome = 'refused' THEN
            RAISE EXCEPTION 'the key % has a promise already: %', key, kept.name USING ERRCODE = '23505';
        END IF;
    END IF;
    PERFORM foliot.wake(due);
    RETURN kept;
END $$;

-- A hint to schedulers, sent when the transaction commits, and only for what is due before they look by themselves.
CREATE FUNCTION foliot.wake(due bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF due < foliot.now() + 500000 THEN
        PERFORM pg_notify('foliot_arrivals', '');
    END IF;
END $$;

-- Many promises in the caller's own transaction, given as one text, which any driver can bind: a JSON array of objects
-- with these fields. One row each, in order. Where one is refused none is made, and its row says so; the transaction
-- goes on either way.
CREATE TYPE foliot.wish AS (
    job text, payload bytea, fire_at bigint, key text, tenant text, queue text, priority integer, useful_until bigint,
    options bytea, on_conflict text, unique_for bigint
);

CREATE FUNCTION foliot.promise_all(promises text) RETURNS SETOF foliot.kept LANGUAGE plpgsql AS $$
DECLARE
    wanted jsonb := promises::jsonb;
    answers foliot.kept[];
BEGIN
    IF jsonb_array_length(wanted) > 1 AND wanted @? '$[*].on_conflict ? (@ != "keep")' THEN
        BEGIN
            answers := foliot.make_promises(wanted);
            IF EXISTS (SELECT 1 FROM unnest(answers) a WHERE a.outcome = 'refused') THEN
                RAISE EXCEPTION 'a promise was refused' USING ERRCODE = 'FL002';
            END IF;
        EXCEPTION WHEN SQLSTATE 'FL002' THEN
            NULL;  -- what was made beside it is undone; what the answers say is not
        END;
    ELSE
        answers := foliot.make_promises(wanted);
    END IF;
    RETURN QUERY SELECT * FROM unnest(answers);
END $$;

CREATE FUNCTION foliot.make_promises(wanted jsonb) RETURNS foliot.kept[] LANGUAGE plpgsql AS $$
DECLARE
    one record;
    answers foliot.kept[];
BEGIN
    FOR one IN
        WITH plain AS MATERIALIZED (
            SELECT w.*, foliot.next_number() AS number
            FROM jsonb_populate_recordset(NULL::foliot.wish, wanted) WITH ORDINALITY w WHERE w.key IS NULL
        ), made AS (
            INSERT INTO foliot.run (number, shard, priority, job, payload, fire_at, useful_until, tenant, queue, options)
            SELECT p.number, p.number % (SELECT s.shards FROM foliot.setting s), p.priority, p.job, p.payload, p.fire_at,
                p.useful_until, p.tenant, p.queue, p.options
            FROM plain p RETURNING number, shard, fire_at
        ), told AS (
            INSERT INTO foliot.stir (shard, numbers)
            SELECT m.shard, array_agg(m.number) FROM made m CROSS JOIN (SELECT foliot.near() AS near OFFSET 0) n
            WHERE m.fire_at < n.near GROUP BY m.shard
        )
        SELECT p.ordinality AS place, p.number, p.fire_at FROM plain p
    LOOP
        answers[one.place] := (one.number, NULL, 'made', 0::smallint, one.fire_at)::foliot.kept;
    END LOOP;
    -- In the order of their names, so that two callers with the same keys never wait for one another.
    FOR one IN
        SELECT w.*, w.key || coalesce('[' || w.tenant || ']', '') || '#' AS stem
        FROM jsonb_populate_recordset(NULL::foliot.wish, wanted) WITH ORDINALITY w WHERE w.key IS NOT NULL
        ORDER BY stem, w.ordinality
    LOOP
        answers[one.ordinality] := foliot.make_promise(NULL, one.stem, one.job, one.payload, one.fire_at,
            one.useful_until, one.tenant, one.queue, one.priority, one.options, one.on_conflict, one.unique_for);
    END LOOP;
    PERFORM foliot.wake((SELECT min(a.fire_at) FROM unnest(answers) a WHERE a.outcome NOT IN ('kept', 'refused')));
    RETURN answers;
END $$;

-- Ends a running attempt as succeeded in the caller's own transaction: what that writes and the end of the run are one.
-- `run` and `token` are the number and the token of the handler's context. If the run is no longer the attempt's, this
-- raises FL001, and the transaction cannot commit. Best called last: until the commit, others wait who end runs of the
-- same claim, or decide about the same schedule.
CREATE FUNCTION foliot.complete(run bigint, token bigint, result jsonb DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended foliot.run;
    claim_ foliot.claim;
    checked boolean := coalesce((
        SELECT convert_from(j.traits, 'UTF8')::jsonb->>'checked' = 'true' FROM foliot.job j JOIN foliot.run r ON r.job = j.name
        WHERE r.number = complete.run), false);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'foliot.complete needs a transaction of isolation level READ COMMITTED, not %: what waits for this '
            'run could not be seen', upper(current_setting('transaction_isolation')) USING ERRCODE = '25001';
    END IF;
    IF EXISTS (SELECT 1 FROM foliot.run r JOIN foliot.effect e ON e.lineage = coalesce(r.lineage, r.number)
            WHERE r.number = complete.run AND e.state = 'started') THEN
        RAISE EXCEPTION 'run % cannot be completed: an effect of it has begun and has not ended', complete.run
            USING ERRCODE = '55000';
    END IF;
    IF checked THEN
        PERFORM foliot.complete_unchecked(complete.run, complete.token, complete.result);
        RETURN;
    END IF;
    -- First the schedule, as everybody does who must not wait for another with its run in hand.
    PERFORM 1 FROM foliot.schedule s
    WHERE s.id = (SELECT r.schedule FROM foliot.run r WHERE r.number = complete.run) FOR UPDATE;
    PERFORM 1 FROM foliot.series s
    WHERE s.id = (SELECT r.schedule FROM foliot.run r WHERE r.number = complete.run) FOR UPDATE;
    -- With the run in hand, nobody else can write its claim, nor take it away.
    PERFORM 1 FROM foliot.run r WHERE r.number = complete.run FOR UPDATE;
    SELECT c.* INTO claim_ FROM foliot.claim c
    WHERE c.token = complete.token AND NOT c.written AND complete.run = ANY(c.numbers);
    DELETE FROM foliot.run r WHERE r.number = complete.run
        AND ((r.state = 4 AND r.token = complete.token) OR (r.state < 2 AND claim_.token IS NOT NULL)) AND r.phase IS NULL
    RETURNING r.* INTO ended;
    IF FOUND AND ended.state < 2 THEN
        ended.attempt := ended.attempt + 1; ended.token := claim_.token; ended.worker := claim_.worker;
        ended.fired_at := foliot.fired(claim_.fired_at, claim_.claimed_at, ended.fire_at);
        ended.claimed_at := greatest(claim_.claimed_at, ended.fire_at); ended.lane := claim_.lane;
    END IF;
    IF ended.number IS NULL THEN
        PERFORM foliot.refuse_completion(complete.run, complete.token);
    END IF;
    INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, since,
        schedule, revision, tenant, queue, options, attempt, spent, token, worker, fired_at, claimed_at, started_at,
        finished_at, progress, result, lineage, reason)
    SELECT ended.number, ended.name, 10, ended.origin, ended.lane, ended.priority, ended.job, ended.payload,
        ended.fire_at, ended.nominal, ended.since, ended.schedule, ended.revision, ended.tenant, ended.queue,
        ended.options, ended.attempt, ended.spent + 1, ended.token, ended.worker, ended.fired_at, ended.claimed_at,
        coalesce(ended.started_at, ended.claimed_at), foliot.now(), ended.progress,
        convert_to(complete.result::text, 'UTF8'), ended.lineage, 'committed';
    -- The claim is left as it is: other runs of it must not wait for the caller's transaction. A claim without runs goes
    -- when the store is tidied.
    DELETE FROM foliot.cancellation c WHERE c.number = complete.run;
    IF ended.schedule IS NOT NULL THEN
        PERFORM foliot.run_ended(ended.schedule);
    END IF;
END $$;

CREATE FUNCTION foliot.refuse_completion(run bigint, token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % cannot be completed: the attempt with token % does not own it', run, token
        USING ERRCODE = 'FL001', HINT = 'Its lease was lost, and another attempt has the run; or it has ended already.'
        ' Roll back, and let the handler end.';
END $$;

-- The same for a run of a job that has a check: its success is written down, and it is handed off for that.
CREATE FUNCTION foliot.complete_unchecked(run_ bigint, token_ bigint, result_ jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    owned foliot.run;
BEGIN
    PERFORM 1 FROM foliot.own_runs(ARRAY[run_], ARRAY[token_]) o WHERE o.phase IS NULL;
    IF NOT FOUND THEN
        PERFORM foliot.refuse_completion(run_, token_);
    END IF;
    SELECT r.* INTO owned FROM foliot.run r WHERE r.number = run_;
    INSERT INTO foliot.attempt (run, attempt, token, worker, fire_at, claimed_at, started_at, finished_at, outcome, progress,
        reason)
    VALUES (run_, owned.attempt, token_, owned.worker, owned.fire_at, owned.claimed_at,
        coalesce(owned.started_at, owned.claimed_at), foliot.now(), 'succeeded', owned.progress, 'committed');
    UPDATE foliot.run r SET state = 1, phase = 1, result = convert_to(result_::text, 'UTF8'), spent = 0,
        useful_until = NULL, nominal = coalesce(r.nominal, r.fire_at), token = NULL, worker = NULL, claimed_at = NULL,
        started_at = coalesce(r.started_at, r.claimed_at), reason = NULL, detail = NULL, deaths = NULL, ending = NULL
    WHERE r.number = run_;
    UPDATE foliot.claim c SET open = c.open - 1, numbers = array_remove(c.numbers, run_) WHERE c.token = token_;
    DELETE FROM foliot.claim c WHERE c.token = token_ AND c.open <= 0;
    DELETE FROM foliot.cancellation c WHERE c.number = run_;
    INSERT INTO foliot.handoff (queue, lane, priority, fired_at, numbers, job)
    VALUES (coalesce(owned.queue, 'default'), owned.lane, owned.priority, foliot.now(), ARRAY[run_], owned.job || '?' || foliot.at_labels(owned.options));
    PERFORM pg_notify('foliot_handoff', '');
END $$;

-- What follows when a run of a schedule has ended; the schedule is locked. As foliot.store.verbs.following does it.
CREATE FUNCTION foliot.run_ended(id_ text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    template foliot.schedule;
    number_ bigint;
    shard_ smallint;
    due bigint;
    useful bigint;
BEGIN
    WITH released AS (
        UPDATE foliot.run r SET state = CASE WHEN r.spent > 0 THEN 1 ELSE 0 END, reason = NULL, detail = NULL,
            waits_for = NULL, fire_at = CASE WHEN r.decided OR r.fire_at > foliot.now() THEN foliot.now() ELSE r.fire_at END
        WHERE r.number = (SELECT w.number FROM foliot.run w WHERE w.waits_for = 'turn:' || id_ AND w.state <= 2
                AND w.reason IS DISTINCT FROM 'paused' ORDER BY w.lane, w.nominal, w.number LIMIT 1)
            AND NOT EXISTS (SELECT 1 FROM foliot.run o
                WHERE o.schedule = id_ AND o.state < 2 AND o.decided AND o.fired_at IS NULL AND o.waits_for IS NULL)
        RETURNING r.shard, r.number
    ), downstream AS (
        UPDATE foliot.run r SET fire_at = foliot.now(), waits_for = NULL, reason = NULL, detail = NULL
        WHERE r.waits_for = 'upstream:' || id_ AND r.state < 2 RETURNING r.shard, r.number
    )
    INSERT INTO foliot.stir (shard, numbers)
    SELECT shard, array_agg(number) FROM (TABLE released UNION ALL TABLE downstream) r GROUP BY shard;
    IF FOUND THEN
        PERFORM foliot.wake(foliot.now());
    END IF;
    SELECT s.* INTO template FROM foliot.schedule s WHERE s.id = id_ AND s.delay IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.schedule = s.id AND r.state < 20 AND r.origin = 0);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    BEGIN
        useful := convert_from(template.policy, 'UTF8')::jsonb->>'useful_until';
    EXCEPTION WHEN data_exception THEN
        NULL;  -- a policy that cannot be read is told when its schedule fires; the chain goes on
    END;
    due := foliot.now() + template.delay;
    -- A run that was made and ended within this very moment has the name already.
    WHILE EXISTS (SELECT 1 FROM foliot.named n WHERE n.name = foliot.tick_name(id_, due)) LOOP
        due := due + 1;
    END LOOP;
    number_ := foliot.next_number();
    shard_ := number_ % (SELECT s.shards FROM foliot.setting s);
    INSERT INTO foliot.named (name, number) VALUES (foliot.tick_name(id_, due), number_);
    INSERT INTO foliot.run (number, name, origin, fire_at, nominal, useful_until, shard, priority, job, payload, schedule,
        revision, tenant, queue, options)
    VALUES (number_, foliot.tick_name(id_, due), 0, due, due, due + useful, shard_, template.priority, template.job,
        template.payload, id_, template.revision, template.tenant, template.queue, template.options);
    IF due < foliot.near() THEN
        INSERT INTO foliot.stir (shard, numbers) VALUES (shard_, ARRAY[number_]);
    END IF;
    UPDATE foliot.schedule s SET last_created = foliot.tick_name(id_, due) WHERE s.id = id_;
    PERFORM foliot.wake(due);
END $$;

-- `daily@2026-04-03T02:00:00Z`, with a fraction only where there is one: as foliot.domain.identity writes it.
CREATE FUNCTION foliot.tick_name(schedule text, nominal bigint) RETURNS text LANGUAGE sql STABLE
RETURN schedule || '@' || to_char(to_timestamp(nominal / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || CASE WHEN nominal % 1000000 > 0 THEN '.' || rtrim(lpad((nominal % 1000000)::text, 6, '0'), '0') ELSE '' END || 'Z';
