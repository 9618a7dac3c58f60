-- Runs of members that an operator changed: when none of them is under way, the row of their tick is counted again.
CREATE TABLE recount (
    number  INTEGER PRIMARY KEY,
    tick    TEXT    NOT NULL
) STRICT;
