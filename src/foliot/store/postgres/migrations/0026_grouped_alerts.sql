-- How many runs the last message about an open alert named, and when that message was a repetition.
ALTER TABLE foliot.alert ADD COLUMN told_count integer;
ALTER TABLE foliot.alert ADD COLUMN repeated_at bigint;
-- Parked runs by what they have in common: groups are counted from the index alone.
CREATE INDEX run_parked_groups ON foliot.run (state, schedule, job, tenant, reason, number) WHERE state >= 20;
-- Parked runs whose own settings name kinds of alerts that must not open ('no_alerts', as bytes).
CREATE INDEX run_parked_quiet ON foliot.run (number)
WHERE state >= 20 AND position('\x6e6f5f616c65727473'::bytea IN options) > 0;
