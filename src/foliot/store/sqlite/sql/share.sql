-- name: line_heads
-- Where a line stands: the first rank that waits in it for whoever comes, and over all queues of its lane and priority.
SELECT (SELECT rank FROM handoff WHERE lane = :lane AND priority = :priority AND queue = :queue AND job IS NULL
        AND ready_at <= :now ORDER BY rank, n LIMIT 1),
    (SELECT rank FROM handoff WHERE lane = :lane AND priority = :priority AND job IS NULL AND ready_at <= :now
        ORDER BY rank, n LIMIT 1)

-- name: run_times
-- How long the newest ended runs took, by tenant.
SELECT tenant, count(*), sum(took) FROM (
    SELECT tenant, max(finished_at - started_at, 0) AS took FROM history WHERE started_at IS NOT NULL
    ORDER BY n DESC LIMIT :limit
) GROUP BY tenant

-- name: tenant_weights
SELECT name, weight FROM gate WHERE name >= 'tenant:' AND name < 'tenant;' AND weight IS NOT NULL

-- name: waiting_by_tenant
SELECT tenant, count(*), min(fire_at) FROM run
WHERE number IN carray(:numbers) AND state <= 1 AND fire_at <= :now GROUP BY tenant

-- name: running_by_tenant
SELECT tenant, count(*) FROM run WHERE number IN carray(:numbers) AND state = 4 GROUP BY tenant
