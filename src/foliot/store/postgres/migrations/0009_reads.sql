-- What operators look at.
SELECT 1;
