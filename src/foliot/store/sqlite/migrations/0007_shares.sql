-- Slots that are kept free of tenants that have had their share (see foliot.domain.fairness): what others may take of them
-- is found without looking through what was put off.
CREATE INDEX handoff_light ON handoff (lane, priority DESC, rank, n) WHERE NOT (rank > 1 AND rank % 2 = 1);

-- What each worker has, as a JSON array. Runs that need labels are handed off under their job's name and these (`resize@gpu`).
ALTER TABLE instance ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
-- By queue, how many of its slots only runs of that queue take, as a JSON object.
ALTER TABLE instance ADD COLUMN reserved TEXT NOT NULL DEFAULT '{}';
CREATE INDEX handoff_labelled ON handoff (job) WHERE instr(job, '@') > 0;
