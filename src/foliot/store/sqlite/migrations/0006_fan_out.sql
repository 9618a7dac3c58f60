-- breaks: 6
-- Ticks that make a run for each member of a set. A release that does not know this would run the tick itself.

-- Whom schedules go over. Keys are in the order of their bytes, which is the order in which runs are made.
CREATE TABLE member (
    member_set  TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    added_at    INTEGER NOT NULL,
    source      TEXT    NOT NULL,
    PRIMARY KEY (member_set, key)
) STRICT, WITHOUT ROWID;

-- The runs of one member, among those of one schedule: `health[acme]`, which is what those runs have in their column
-- `schedule`. With the last of them that was of use.
CREATE TABLE series (
    id           TEXT    PRIMARY KEY,
    schedule     TEXT    NOT NULL,
    member       TEXT    NOT NULL,
    useful_tick  INTEGER,
    useful_at    INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX series_member ON series (schedule, member);

-- Of a schedule, and of its ticks: whom they go over. A tick stays pending until it has made all of its members' runs
-- (`checkpoint`: how far it has come), and is then stored as verifying, until all of them have come to an end.
ALTER TABLE schedule ADD COLUMN member_set TEXT;
ALTER TABLE run ADD COLUMN member_set TEXT;
ALTER TABLE history ADD COLUMN member_set TEXT;
ALTER TABLE backfill ADD COLUMN member_set TEXT;
CREATE INDEX run_gathering ON run (number) WHERE member_set IS NOT NULL;

CREATE TRIGGER member_served AFTER INSERT ON history WHEN new.schedule LIKE '%]' AND new.state IN (10, 11) BEGIN
    UPDATE series SET useful_tick = max(coalesce(useful_tick, new.nominal), new.nominal),
        useful_at = max(coalesce(useful_at, new.finished_at), new.finished_at)
    WHERE id = new.schedule;
END;
