-- Handing off, claiming, ending: each is one call, because a round trip costs more than the work on a few runs. And what
-- keeps a run from being claimed twice while only its claim says that it is running.

-- Makes the rows of runs say what their claims say: those that the caller has to do with, for which he waits, or all that
-- nobody has his hands on. A claim of which any run is left stays unwritten.
CREATE FUNCTION foliot.write_claims(tokens_ bigint[], wanted bigint[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free bigint[];
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) AND NOT c.written ORDER BY c.token FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM 1 FROM foliot.run r WHERE r.number = ANY(wanted) ORDER BY r.number FOR UPDATE;
    SELECT array_agg(x.number) INTO free FROM (
        SELECT r.number FROM foliot.run r
        WHERE r.number = ANY(ARRAY(SELECT unnest(c.numbers) FROM foliot.claim c WHERE c.token = ANY(tokens_) AND NOT c.written))
            AND r.state < 2 AND (wanted = '{}' OR r.number = ANY(wanted))
        FOR NO KEY UPDATE SKIP LOCKED
    ) x;
    UPDATE foliot.run r SET state = 4, token = c.token, worker = c.worker, attempt = r.attempt + 1, lane = c.lane,
        fired_at = foliot.fired(c.fired_at, c.claimed_at, r.fire_at), claimed_at = greatest(c.claimed_at, r.fire_at)
    FROM (
        SELECT c.token, c.worker, c.lane, c.fired_at, c.claimed_at, unnest(c.numbers) AS number
        FROM foliot.claim c WHERE c.token = ANY(tokens_) AND NOT c.written
    ) c
    WHERE r.number = ANY(free) AND r.number = c.number;
    UPDATE foliot.claim c SET written = true
    WHERE c.token = ANY(tokens_) AND NOT c.written
        AND NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = ANY(c.numbers) AND r.state < 2);
END $$;

-- Locks runs that somebody wants to change, after their claims, and has those written. As they are then, nobody claims them.
CREATE FUNCTION foliot.hold_runs(numbers_ bigint[]) RETURNS SETOF foliot.run LANGUAGE plpgsql AS $$
BEGIN
    -- Claims first, as everybody does; a claim that comes in between is written as well.
    PERFORM foliot.write_claims(ARRAY(SELECT c.token FROM foliot.claim c WHERE NOT c.written AND c.numbers && numbers_), numbers_);
    PERFORM 1 FROM foliot.run r WHERE r.number = ANY(numbers_) ORDER BY r.number FOR UPDATE;
    PERFORM foliot.write_claims(ARRAY(SELECT c.token FROM foliot.claim c WHERE NOT c.written AND c.numbers && numbers_), numbers_);
    RETURN QUERY SELECT r.* FROM foliot.run r WHERE r.number = ANY(numbers_);
END $$;

-- Of these runs, those that wait: not claimed, and in nobody else's hands. They stay so until the transaction ends.
CREATE FUNCTION foliot.lock_pending(numbers_ bigint[]) RETURNS SETOF foliot.run LANGUAGE plpgsql AS $$
DECLARE
    free bigint[];
BEGIN
    SELECT array_agg(x.number) INTO free FROM (
        SELECT r.number FROM foliot.run r WHERE r.number = ANY(numbers_) AND r.state < 2 FOR UPDATE SKIP LOCKED
    ) x;
    RETURN QUERY SELECT r.* FROM foliot.run r
    WHERE r.number = ANY(free) AND r.state < 2 AND r.number NOT IN (SELECT u.number FROM foliot.unwritten u)
    ORDER BY r.number;
END $$;

-- Of the runs that attempts claim to own, those that they do own, locked: claims first, as everybody does.
CREATE FUNCTION foliot.own_runs(numbers_ bigint[], tokens_ bigint[])
RETURNS TABLE (
    number bigint, token bigint, schedule text, name text, worker integer, phase smallint, attempt integer, lineage bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM foliot.claim c WHERE c.token = ANY(tokens_) ORDER BY c.token FOR UPDATE;
    PERFORM foliot.write_claims(tokens_, numbers_);
    RETURN QUERY SELECT r.number, r.token, r.schedule, r.name, r.worker, r.phase, r.attempt, r.lineage FROM foliot.run r
    WHERE r.number = ANY(numbers_) AND r.state = 4 AND r.token = ANY(tokens_) ORDER BY r.number FOR UPDATE;
END $$;
