-- part: columns
number, kind, subject, severity, cause, action, opened_at, seen_at, count, resolved_at, snoozed_until, job, schedule, run,
    tenant, owner, runbook, told_at, told_resolved_at, told_count, repeated_at

-- name: open_alerts
SELECT {columns} FROM foliot.alert WHERE resolved_at IS NULL ORDER BY number

-- name: listed_alerts
SELECT {columns} FROM foliot.alert
WHERE number < :before::bigint AND (:everything::boolean OR resolved_at IS NULL) AND (:kind::text IS NULL OR kind = :kind)
    AND (:subject::text IS NULL OR subject = :subject) AND (:tenant::text IS NULL OR tenant = :tenant)
ORDER BY number DESC LIMIT :limit

-- name: alert_by_number
SELECT {columns} FROM foliot.alert WHERE number = :number

-- name: untold_alerts
-- By the index of those without a message; that is short. The most urgent first. Then open alerts whose message is
-- repeated: their snooze has ended, their count has doubled, or a day has passed. See `Alert.stage`.
SELECT {columns} FROM (
    SELECT {columns} FROM foliot.alert
    WHERE ((resolved_at IS NULL AND told_at IS NULL)
            OR (resolved_at IS NOT NULL AND told_at IS NOT NULL AND told_resolved_at IS NULL))
        AND (snoozed_until IS NULL OR snoozed_until <= :now::bigint)
    UNION ALL
    SELECT {columns} FROM foliot.alert
    WHERE resolved_at IS NULL AND told_at IS NOT NULL AND (snoozed_until IS NULL OR snoozed_until <= :now::bigint)
        AND (snoozed_until > coalesce(repeated_at, told_at)
            OR (kind = ANY(:kinds::text[]) AND count >= 2 * told_count AND coalesce(repeated_at, told_at) <= :now::bigint - :doubling)
            OR (severity <> 'notice' AND coalesce(repeated_at, told_at) <= :now::bigint - :remind))) a
ORDER BY CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, number LIMIT :limit

-- name: open_alert
-- One that is open already stays as it is: somebody was first.
INSERT INTO foliot.alert (kind, subject, severity, cause, action, opened_at, seen_at, count, job, schedule, run, tenant, owner,
    runbook, run_number)
VALUES (:kind, :subject, :severity, :cause, :action, :now, :now, :count, :job, :schedule, :run, :tenant, :owner, :runbook,
    :number)
ON CONFLICT (kind, subject) WHERE resolved_at IS NULL DO NOTHING
RETURNING number

-- name: change_alert
-- A count that fell and rises again is compared with the lowest one since the last message.
UPDATE foliot.alert SET cause = :cause, action = :action, count = :count, run = :run, run_number = :run_number, tenant = :tenant,
    seen_at = :now, told_count = least(told_count, :count)
WHERE number = :number AND resolved_at IS NULL

-- name: resolve_alert
-- Zero rows: somebody else has, and told so. Alerts of single runs are those of releases before; those of their schedules and
-- jobs replace them, without a message that they are resolved.
UPDATE foliot.alert SET resolved_at = :now, snoozed_until = NULL,
    told_resolved_at = CASE WHEN subject LIKE 'run:%' THEN :now ELSE told_resolved_at END
WHERE number = :number AND resolved_at IS NULL
RETURNING kind, subject, opened_at, cause

-- name: snooze_alert
UPDATE foliot.alert SET snoozed_until = :until WHERE number = :number AND resolved_at IS NULL

-- name: told_opened
UPDATE foliot.alert SET told_at = :now, told_count = count WHERE number = ANY(:numbers::bigint[]) AND told_at IS NULL

-- name: told_again
UPDATE foliot.alert SET repeated_at = :now, told_count = count WHERE number = ANY(:numbers::bigint[]) AND told_at IS NOT NULL AND resolved_at IS NULL

-- name: told_resolved
UPDATE foliot.alert SET told_resolved_at = :now WHERE number = ANY(:numbers::bigint[]) AND told_resolved_at IS NULL

-- name: forget_alerts
DELETE FROM foliot.alert WHERE number IN (SELECT number FROM foliot.alert WHERE resolved_at < :before LIMIT 1000)

-- name: recall_watch
SELECT version, looked_at, memory FROM foliot.watched WHERE id = 1

-- name: remember_watch
-- Zero rows: another watch has looked since.
INSERT INTO foliot.watched AS w (id, version, looked_at, memory) VALUES (1, 1, :now, :memory)
ON CONFLICT (id) DO UPDATE SET version = w.version + 1, looked_at = :now, memory = :memory WHERE w.version = :version
RETURNING w.version

-- name: schedule_page
SELECT id, job, rule, payload, policy, options, delay, queue, priority, tenant, owner, runbook, changes, revision,
    CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END, made_at, paused_at, paused_until, paused_note,
    evaluated_through, last_created, fault, tables, last_wall, next_wall, source, skip_through, member_set, paused_by,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint
FROM foliot.schedule WHERE id > :after ORDER BY id LIMIT :limit

-- name: useful_ticks
-- The last useful result of each.
SELECT s.id, h.nominal, h.finished_at FROM unnest(:ids::text[]) AS s(id) CROSS JOIN LATERAL (
    SELECT k.nominal, k.finished_at FROM foliot.history k WHERE k.schedule = s.id AND k.schedule IS NOT NULL
        AND k.state IN (10, 11) ORDER BY k.nominal DESC LIMIT 1) h

-- name: first_due
-- The oldest that could fire, and have not ended.
SELECT * FROM foliot.live_runs WHERE number = ANY(ARRAY(
    SELECT r.number FROM generate_series(0, (SELECT shards - 1 FROM foliot.setting)) AS s(shard)
    CROSS JOIN LATERAL (
        SELECT fire_at, number FROM foliot.run WHERE shard = s.shard AND state <= 1 AND fire_at < :before
        ORDER BY fire_at, number LIMIT :limit) r
    ORDER BY r.fire_at, r.number LIMIT :limit))
ORDER BY fire_at, number

-- name: first_held
-- The lowest numbers are the oldest runs.
SELECT * FROM foliot.live_runs WHERE number = ANY(ARRAY(SELECT number FROM foliot.run WHERE waits_for IS NOT NULL ORDER BY number LIMIT :limit))
    AND fire_at < :before
ORDER BY fire_at, number

-- name: claimed_before
-- Through claims, which are few: what has run for a while. Most of what was claimed just now is over in a moment.
SELECT numbers FROM foliot.claim WHERE claimed_at < :before

-- name: live_among
SELECT * FROM foliot.live_runs WHERE number = ANY(:numbers::bigint[]) ORDER BY number

-- name: awaiting_checks
-- Runs that wait for their check, and ticks that wait for their members.
SELECT number FROM foliot.run WHERE phase IS NOT NULL
UNION SELECT number FROM foliot.run WHERE member_set IS NOT NULL AND state = 5
ORDER BY number LIMIT :limit

-- name: parked_after
SELECT number FROM foliot.run WHERE state >= 20 AND number > :after::bigint ORDER BY number LIMIT :limit

-- name: parked_subjects
-- Parked runs by state and schedule, with those of its members, or by state and job. The tenant: of all of them.
SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    split_part(schedule, '[', 1),
    CASE WHEN schedule IS NULL THEN job END,
    CASE WHEN count(tenant) = count(*) AND min(tenant) = max(tenant) THEN min(tenant) END,
    sum(size)::bigint, count(DISTINCT CASE WHEN schedule LIKE '%[%' THEN schedule END), max(newest)
FROM (
    SELECT state, schedule, job, tenant, reason, count(*) AS size, max(number) AS newest
    FROM foliot.run WHERE state >= 20 GROUP BY state, schedule, job, tenant, reason) g
GROUP BY 1, 2, 3 ORDER BY 7 DESC LIMIT :limit

-- name: parked_quiet
-- Those of them that have settings of their own about alerts, by these settings.
SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    split_part(schedule, '[', 1),
    CASE WHEN schedule IS NULL THEN job END, options, count(*)
FROM foliot.run WHERE state >= 20 AND position('\x6e6f5f616c65727473'::bytea IN options) > 0 GROUP BY 1, 2, 3, 4

-- name: tried_again
SELECT number, name, job, schedule, spent, detail FROM foliot.run WHERE state = 1 AND phase IS NULL ORDER BY number LIMIT :limit

-- name: ended_briefly
-- In the order of transactions; see ended_in_order.
SELECT xid::numeric * 18446744073709551616 + n, number, name, job, schedule, state, coalesce(nominal, fire_at), since,
    started_at, finished_at
FROM foliot.history
WHERE xid >= div(:position::numeric, 18446744073709551616)::bigint
    AND (xid, n) > (div(:position::numeric, 18446744073709551616)::bigint,
        mod(:position::numeric, 18446744073709551616)::bigint)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY xid, n LIMIT :limit

-- name: queues_briefly
SELECT queue, sum(cardinality(numbers))::bigint, min(fired_at) FROM foliot.handoff WHERE fired_at <= foliot.now()
GROUP BY queue ORDER BY queue

-- name: jobs_waited_for
SELECT DISTINCT job FROM foliot.handoff WHERE job IS NOT NULL

-- name: jobs_taken
-- By live workers.
SELECT DISTINCT j.name FROM foliot.instance i, jsonb_array_elements_text(i.jobs::jsonb) j(name)
WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > :since

-- name: work_in_hand
SELECT worker, sum(open)::bigint FROM foliot.claim GROUP BY worker

-- name: count_dead
SELECT count(*) FROM (SELECT 1 FROM foliot.run WHERE state = 21 LIMIT :most) d

-- name: early_since
SELECT (SELECT count(*) FROM foliot.history WHERE started_at < fire_at AND started_at > :since)
    + (SELECT count(*) FROM foliot.attempt WHERE started_at < fire_at AND started_at > :since AND outcome <> 'cancelled')

-- name: spans_over
-- Rows that stand for several ticks.
SELECT h.schedule, h.nominal, h.span_until FROM jsonb_array_elements(:asked::jsonb) AS s(value)
JOIN foliot.history h ON h.schedule = s.value ->> 0 AND h.span_until >= (s.value ->> 1)::bigint
    AND h.nominal <= (s.value ->> 2)::bigint
WHERE h.span_until IS NOT NULL AND h.schedule IS NOT NULL

-- name: durations_of
SELECT finished_at - started_at FROM foliot.history
WHERE schedule = :series AND schedule IS NOT NULL AND state IN (10, 11) AND started_at IS NOT NULL
ORDER BY nominal DESC LIMIT :limit
