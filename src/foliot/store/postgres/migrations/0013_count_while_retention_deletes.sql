-- Retention can drop a day's partition between the list of partitions and their counts. Its runs then count as deleted.
CREATE OR REPLACE FUNCTION foliot.count_history(since bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
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
            BEGIN
                EXECUTE format('SELECT count(*) FROM foliot.%I', partition_.relname) INTO found;
                total := total + found;
            EXCEPTION WHEN undefined_table THEN
                NULL;
            END;
        END IF;
    END LOOP;
    RETURN total;
END $$;
