-- `let_in` compared the names of slots, whose collation is "C", with `run.waits_for`, whose collation is the default one. No
-- index fits such a comparison, so each call read all waiting runs. Names are equal in both collations.
DO $$
DECLARE
    text_ text := pg_get_functiondef('foliot.let_in(text[])'::regprocedure);
BEGIN
    IF position('r.waits_for = s.name AND' in text_) = 0 THEN
        RAISE EXCEPTION 'foliot.let_in is not the function of step 23';
    END IF;
    EXECUTE replace(text_, 'r.waits_for = s.name AND', 'r.waits_for = s.name COLLATE "default" AND');
END $$;
