-- What was done to these tables from here on, and how many steps a release must know to live with it: older releases go
-- on using newer tables, unless a step says that they cannot.
CREATE TABLE migration (
    step        INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL,
    needs       INTEGER NOT NULL,
    applied_at  TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;

-- Releases of apps, in the order in which each was first applied, and what each declares: by schedule, the declaration's
-- fingerprint; an empty one for what it removed. An older release takes nothing back while a newer one runs.
CREATE TABLE declared (
    n         INTEGER PRIMARY KEY AUTOINCREMENT,
    release   TEXT    NOT NULL UNIQUE,
    first_at  INTEGER NOT NULL,
    declares  TEXT    NOT NULL
) STRICT;
ALTER TABLE instance ADD COLUMN release TEXT NOT NULL DEFAULT '';

-- How far the store's clock is from that of an instance's host, as it was measured, and whether that is too far. With
-- this engine both are one clock, and nobody measures.
ALTER TABLE instance ADD COLUMN offset_low INTEGER;
ALTER TABLE instance ADD COLUMN offset_high INTEGER;
ALTER TABLE instance ADD COLUMN fenced INTEGER NOT NULL DEFAULT 0;
