-- What operators look at. Lists go by run number, the newest first; a list that is narrowed by nothing that is indexed walks
-- a bounded way. Every index here costs only what is unusual, or what has a schedule or a tenant: a plain promise pays for none.

-- The ended runs of a schedule, or of a member, the newest first; and the last few of each schedule on a page.
CREATE INDEX history_of_schedule ON history (schedule, number) WHERE schedule IS NOT NULL;
-- The same of a tenant: who may see one tenant alone asks for nothing else.
CREATE INDEX history_of_tenant ON history (tenant, number) WHERE tenant IS NOT NULL;
-- What did not simply succeed: reconciled, cancelled, skipped.
CREATE INDEX history_odd ON history (number) WHERE state >= 12;
-- What is held, whatever for.
CREATE INDEX run_held ON run (number) WHERE waits_for IS NOT NULL;

-- How ended runs kept their promises, by the minute in which they ended. Counted now and then by whoever tidies, from
-- where it stood: nobody who ends a run writes here.
CREATE TABLE tally (
    minute     INTEGER PRIMARY KEY,
    on_time    INTEGER NOT NULL,
    late       INTEGER NOT NULL,
    missed     INTEGER NOT NULL,
    skipped    INTEGER NOT NULL,
    cancelled  INTEGER NOT NULL,
    settled    INTEGER NOT NULL
) STRICT;
CREATE TABLE tallied (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    position  INTEGER NOT NULL
) STRICT;

-- One row. Ended runs are kept for so many days; NULL keeps them for ever.
CREATE TABLE setting (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    keep_days  INTEGER CHECK (keep_days >= 1)
) STRICT;
INSERT INTO setting VALUES (1, NULL);
-- What repeats another run, for whoever asks whether a ledger is still needed; hardly any run does.
CREATE INDEX history_lineage ON history (lineage) WHERE lineage IS NOT NULL;
