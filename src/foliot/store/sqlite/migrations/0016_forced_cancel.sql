-- When an operator forced a cancellation: the worker ends its process if the attempt does not stop.
ALTER TABLE cancellation ADD COLUMN forced_at INTEGER;
-- Whether a worker ends its process for that. Workers of earlier releases, and those over HTTP, do not.
ALTER TABLE instance ADD COLUMN recycles INTEGER NOT NULL DEFAULT 0;
