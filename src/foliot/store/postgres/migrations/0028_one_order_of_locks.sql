-- A slot that is in the row of its run is counted up when it passes on, and other slots are freed after that, in the same
-- transaction. Each step locked its slots by their names, and together they did not: two workers could wait for each other.

-- If a slot that passes on must be written: locks the slots that pass on, and those that ended runs free, in the order of their names.
CREATE FUNCTION foliot.lock_to_pass(ended bigint[], holders bigint[], heirs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    names text[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM foliot.run r WHERE r.number = ANY(holders || heirs) AND r.slots IS NOT NULL) THEN
        RETURN;
    END IF;
    SELECT array_agg(DISTINCT e.name) INTO names
    FROM (
        SELECT r.slots FROM foliot.run r WHERE r.number = ANY(ended || holders) AND r.slots IS NOT NULL
        UNION ALL SELECT h.slots FROM foliot.holding h WHERE h.number = ANY(ended || holders)
    ) u CROSS JOIN LATERAL jsonb_array_elements_text(u.slots::jsonb) AS e(name);
    PERFORM 1 FROM foliot.slot s WHERE s.name = ANY(names) ORDER BY s.name FOR UPDATE;
END $$;

DO $$
DECLARE
    text_ text;
    old_ text := '        PERFORM foliot.pass_slots(';
BEGIN
    SELECT pg_get_functiondef(p.oid) INTO STRICT text_ FROM pg_proc p
    WHERE p.proname = 'finish_and_claim' AND p.pronamespace = 'foliot'::regnamespace;
    IF length(text_) - length(replace(text_, old_, '')) <> length(old_) THEN
        RAISE EXCEPTION 'foliot.finish_and_claim is not the function of step 27';
    END IF;
    EXECUTE replace(text_, old_, '        PERFORM foliot.lock_to_pass(numbers_, holders, heirs);' || E'\n' || old_);
END $$;
