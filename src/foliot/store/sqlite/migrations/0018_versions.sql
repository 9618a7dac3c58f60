-- A chunk names runs as they were when they were handed off, and a claim takes them only as that: `version` counts the changes of
-- a run (it was moved, it was replaced, or an attempt ended and the run goes on; NULL: none). A chunk has the version of its
-- runs. NULL in a chunk: it was made by a release that does not write versions, and is not compared.
ALTER TABLE run ADD COLUMN version INTEGER;
ALTER TABLE handoff ADD COLUMN version INTEGER;
