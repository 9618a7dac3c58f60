-- Which runs a token of scope `work` takes: those of these jobs, these queues and its tenant (both lists are JSON, empty: any).
-- Older releases made such tokens without lists: they take nothing any more.
ALTER TABLE token ADD COLUMN jobs TEXT NOT NULL DEFAULT '[]';
ALTER TABLE token ADD COLUMN queues TEXT NOT NULL DEFAULT '[]';
ALTER TABLE token ADD COLUMN all_tenants INTEGER NOT NULL DEFAULT 0;

-- When a browser was logged in: of a token's sessions the oldest ends when there are too many.
ALTER TABLE session ADD COLUMN began_at INTEGER NOT NULL DEFAULT 0;
