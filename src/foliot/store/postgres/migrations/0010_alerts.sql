-- What must not be silent: alerts.
SELECT 1;
