-- breaks: 6
-- Ticks that make a run for each member of a set. A release that does not know this would run the tick itself.

-- Whom schedules go over. Keys are in the order of their bytes, which is the order in which runs are made.
CREATE TABLE foliot.member (
    added_at    bigint NOT NULL,
    member_set  text   COLLATE "C" NOT NULL,
    key         text   COLLATE "C" NOT NULL,
    source      text   NOT NULL,
    PRIMARY KEY (member_set, key)
);

-- The runs of one member, among those of one schedule: `health[acme]`, which is what those runs have in their column
-- `schedule`. With the last of them that was of use. Locked by whoever decides about these runs, or ends one, as
-- schedules are; after them.
CREATE TABLE foliot.series (
    useful_tick  bigint,
    useful_at    bigint,
    id           text COLLATE "C" PRIMARY KEY,
    schedule     text COLLATE "C" NOT NULL,
    member       text COLLATE "C" NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX series_member ON foliot.series (schedule, member);

ALTER TABLE foliot.schedule ADD COLUMN member_set text;
ALTER TABLE foliot.run ADD COLUMN member_set text;
ALTER TABLE foliot.history ADD COLUMN member_set text;
ALTER TABLE foliot.backfill ADD COLUMN member_set text;
COMMENT ON COLUMN foliot.schedule.member_set IS 'Whom each of its ticks makes a run for; null: the tick itself runs.';
COMMENT ON COLUMN foliot.run.member_set IS 'Whom this tick makes runs for. It stays pending until all are made (checkpoint: '
    'how far it has come), and is then stored as verifying, until all of them have come to an end.';
CREATE INDEX run_gathering ON foliot.run (number) WHERE member_set IS NOT NULL;

CREATE FUNCTION foliot.member_served() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE foliot.series s SET useful_tick = greatest(s.useful_tick, NEW.nominal),
        useful_at = greatest(s.useful_at, NEW.finished_at)
    WHERE s.id = NEW.schedule;
    RETURN NULL;
END $$;
CREATE TRIGGER member_served AFTER INSERT ON foliot.history FOR EACH ROW
WHEN (NEW.schedule LIKE '%]' AND NEW.state IN (10, 11)) EXECUTE FUNCTION foliot.member_served();
