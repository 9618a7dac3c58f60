-- The hash of a declaration's canonical data, and the number of its format (see foliot.domain.fingerprint). It is that of the
-- declaration whose fingerprint in format 0 is `declared_for`: a release that knows format 0 alone writes `fingerprint`, and
-- makes the other columns out of date by that.
ALTER TABLE foliot.schedule ADD COLUMN declared text;
ALTER TABLE foliot.schedule ADD COLUMN declared_format integer NOT NULL DEFAULT 0;
ALTER TABLE foliot.schedule ADD COLUMN declared_for text;

-- The same of a release. `age`: the place in the order of the row that named this release first, under another name.
ALTER TABLE foliot.declared ADD COLUMN hash text;
ALTER TABLE foliot.declared ADD COLUMN format integer NOT NULL DEFAULT 0;
ALTER TABLE foliot.declared ADD COLUMN age bigint;
