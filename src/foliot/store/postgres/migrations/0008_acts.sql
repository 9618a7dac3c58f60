-- What operators do: seals of the audit log, pauses, wishes about workers.
SELECT 1;
