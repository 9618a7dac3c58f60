-- name: line_heads
-- Where a line stands: the first rank that waits in it for whoever comes, and over all queues of its lane and priority.
SELECT own, beside FROM foliot.line_heads(:queue, :lane, :priority, :now)

-- name: due_tenants
-- By line: where it stands, the runs of a batch in its order, and their tenants.
WITH clock AS MATERIALIZED (
    SELECT foliot.now() AS now
), due AS MATERIALIZED (
    SELECT r.number, r.tenant, coalesce(r.queue, 'default') AS queue, r.priority, e.place,
        CASE WHEN r.lane = 0 AND c.now - r.fire_at > :late THEN 1::smallint ELSE r.lane END AS lane
    FROM unnest(:numbers::bigint[]) WITH ORDINALITY AS e(number, place) JOIN foliot.run r ON r.number = e.number
    CROSS JOIN clock c WHERE r.number = ANY(:numbers::bigint[]) AND r.state < 2
), line AS MATERIALIZED (
    SELECT d.queue, d.lane, d.priority, array_agg(d.number ORDER BY d.place) AS numbers,
        array_agg(d.tenant ORDER BY d.place) AS tenants
    FROM due d GROUP BY d.queue, d.lane, d.priority
)
SELECT l.queue, l.lane, l.priority, h.own, h.beside, l.numbers, l.tenants
FROM line l CROSS JOIN clock c CROSS JOIN LATERAL foliot.line_heads(l.queue, l.lane, l.priority, c.now) h

-- name: run_times
-- How long ended runs took, by tenant: of those that were made last, because there is no index by when runs ended.
SELECT tenant, count(*), sum(took) FROM (
    SELECT tenant, greatest(finished_at - started_at, 0) AS took FROM foliot.history WHERE started_at IS NOT NULL
    ORDER BY number DESC LIMIT :limit
) h GROUP BY tenant

-- name: tenant_weights
SELECT name, weight FROM foliot.gate WHERE starts_with(name, 'tenant:') AND weight IS NOT NULL

-- name: waiting_by_tenant
SELECT tenant, count(*), min(fire_at) FROM foliot.run
WHERE number = ANY(:numbers::bigint[]) AND state < 2 AND fire_at <= :now
    AND number NOT IN (SELECT u.number FROM foliot.unwritten u)
GROUP BY tenant

-- name: running_by_tenant
-- Runs of claims look pending until those are written.
SELECT tenant, count(*) FROM foliot.run WHERE number = ANY(:numbers::bigint[]) AND (state = 4
    OR (state < 2 AND number IN (SELECT u.number FROM foliot.unwritten u)))
GROUP BY tenant
