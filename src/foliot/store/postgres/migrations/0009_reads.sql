-- What operators look at. Lists go by run number, the newest first; a list that is narrowed by nothing that is indexed walks
-- a bounded way. Every index here costs only what is unusual, or what has a schedule or a tenant: a plain promise pays for none.

-- The ended runs of a schedule, or of a member, the newest first; and the last few of each schedule on a page.
CREATE INDEX history_of_schedule ON foliot.history (schedule, number) WHERE schedule IS NOT NULL;
-- The same of a tenant: who may see one tenant alone asks for nothing else.
CREATE INDEX history_of_tenant ON foliot.history (tenant, number) WHERE tenant IS NOT NULL;
-- What did not simply succeed: reconciled, cancelled, skipped.
CREATE INDEX history_odd ON foliot.history (number) WHERE state >= 12;
-- What is held, whatever for.
CREATE INDEX run_held ON foliot.run (number) WHERE waits_for IS NOT NULL;

-- How ended runs kept their promises, by the minute in which they ended. Counted now and then by whoever tidies, from
-- where it stood: nobody who ends a run writes here. `position`: all transactions below this one were counted.
CREATE TABLE foliot.tally (
    minute     bigint PRIMARY KEY,
    on_time    bigint NOT NULL,
    late       bigint NOT NULL,
    missed     bigint NOT NULL,
    skipped    bigint NOT NULL,
    cancelled  bigint NOT NULL,
    settled    bigint NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE foliot.tallied (
    id        smallint PRIMARY KEY CHECK (id = 1),
    position  bigint   NOT NULL
) WITH (fillfactor = 50);

-- How many ended runs there are. Days that ended before `since` do not change any more: what the server found when it last
-- looked at them is as good as counting them again. The others are counted.
CREATE FUNCTION foliot.count_history(since bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    partition_ record;
    found bigint;
    total bigint := 0;
BEGIN
    FOR partition_ IN
        SELECT c.relname, c.reltuples::bigint AS tuples FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'foliot.history'::regclass
    LOOP
        IF partition_.tuples > 0 AND partition_.relname ~ '^history_[0-9]{8}$'
            AND extract(epoch FROM to_date(right(partition_.relname, 8), 'YYYYMMDD') + 1) * 1000000 <= since THEN
            total := total + partition_.tuples;
        ELSE
            EXECUTE format('SELECT count(*) FROM foliot.%I', partition_.relname) INTO found;
            total := total + found;
        END IF;
    END LOOP;
    RETURN total;
END $$;
