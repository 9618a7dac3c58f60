-- Attempts that end with a process that is shutting down are interrupted, not lost.
ALTER TABLE instance ADD COLUMN leaving_at INTEGER;
-- A process on the same host has seen that this one has ended.
ALTER TABLE instance ADD COLUMN gone_at INTEGER;
