-- Slots that are kept free of tenants that have had their share (see foliot.domain.fairness): what others may take of them
-- is found without looking through what was put off.
CREATE INDEX handoff_light ON foliot.handoff (lane, priority DESC, rank, n) WHERE NOT (rank > 1 AND rank % 2 = 1);

-- What each worker has, as a JSON array. Runs that need labels are handed off under their job's name and these (`resize@gpu`).
ALTER TABLE foliot.instance ADD COLUMN labels text NOT NULL DEFAULT '[]';
-- By queue, how many of its slots only runs of that queue take, as a JSON object.
ALTER TABLE foliot.instance ADD COLUMN reserved text NOT NULL DEFAULT '{}';
CREATE INDEX handoff_labelled ON foliot.handoff (job) WHERE position('@' in job) > 0;

-- The labels that a run needs, as they stand behind a name that it is handed off under.
CREATE FUNCTION foliot.at_labels(options_ bytea) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF options_ IS NULL OR position('"labels"'::bytea in options_) = 0 THEN
        RETURN '';
    END IF;
    RETURN coalesce((SELECT '@' || string_agg(l.name, ',' ORDER BY l.name COLLATE "C")
        FROM jsonb_array_elements_text(convert_from(options_, 'UTF8')::jsonb->'labels') AS l(name)), '');
EXCEPTION WHEN data_exception THEN
    RETURN '';  -- whoever executes it tells that its settings cannot be read
END $$;

