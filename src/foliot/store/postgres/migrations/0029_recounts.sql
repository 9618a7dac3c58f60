-- Runs of members that an operator changed: when none of them is under way, the row of their tick is counted again.
CREATE TABLE foliot.recount (
    number  bigint PRIMARY KEY,
    tick    text   COLLATE "C" NOT NULL
);
