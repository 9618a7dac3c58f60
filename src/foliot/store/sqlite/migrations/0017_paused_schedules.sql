-- The watch reads all pauses every few seconds; few schedules are paused.
CREATE INDEX schedule_paused ON schedule (id) WHERE paused_at IS NOT NULL;
