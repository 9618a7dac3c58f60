-- When an operator forced a cancellation: the worker ends its process if the attempt does not stop.
ALTER TABLE foliot.cancellation ADD COLUMN forced_at bigint;
-- Whether a worker ends its process for that. Workers of earlier releases, and those over HTTP, do not.
ALTER TABLE foliot.instance ADD COLUMN recycles boolean NOT NULL DEFAULT false;
