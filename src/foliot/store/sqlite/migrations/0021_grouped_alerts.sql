-- How many runs the last message about an open alert named, and when that message was a repetition.
ALTER TABLE alert ADD COLUMN told_count INTEGER;
ALTER TABLE alert ADD COLUMN repeated_at INTEGER;
-- Parked runs by what they have in common: groups are counted from the index alone.
CREATE INDEX run_parked_groups ON run (state, schedule, job, tenant, reason, number) WHERE state >= 20;
-- Parked runs whose own settings name kinds of alerts that must not open ('no_alerts', as bytes).
CREATE INDEX run_parked_quiet ON run (number) WHERE state >= 20 AND instr(options, x'6E6F5F616C65727473') > 0;
