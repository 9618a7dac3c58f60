-- Attempts that end with a process that is shutting down are interrupted, not lost.
ALTER TABLE foliot.instance ADD COLUMN leaving_at bigint;
-- A process on the same host has seen that this one has ended.
ALTER TABLE foliot.instance ADD COLUMN gone_at bigint;
