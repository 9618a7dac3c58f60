-- Who may act over HTTP, and what was asked for already.
SELECT 1;
