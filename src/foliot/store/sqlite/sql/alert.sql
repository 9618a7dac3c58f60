-- part: columns
number, kind, subject, severity, cause, action, opened_at, seen_at, count, resolved_at, snoozed_until, job, schedule, run,
    tenant, owner, runbook, told_at, told_resolved_at, told_count, repeated_at

-- name: open_alerts
SELECT {columns} FROM alert WHERE resolved_at IS NULL ORDER BY number

-- name: listed_alerts
SELECT {columns} FROM alert
WHERE number < :before AND (:everything OR resolved_at IS NULL) AND (:kind IS NULL OR kind = :kind)
    AND (:subject IS NULL OR subject = :subject) AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY number DESC LIMIT :limit

-- name: alert_by_number
SELECT {columns} FROM alert WHERE number = :number

-- name: untold_alerts
-- By the index of those without a message; that is short. The most urgent first. Then open alerts whose message is
-- repeated: their snooze has ended, their count has doubled, or a day has passed. See `Alert.stage`.
SELECT {columns} FROM (
    SELECT {columns} FROM alert
    WHERE ((resolved_at IS NULL AND told_at IS NULL)
            OR (resolved_at IS NOT NULL AND told_at IS NOT NULL AND told_resolved_at IS NULL))
        AND (snoozed_until IS NULL OR snoozed_until <= :now)
    UNION ALL
    SELECT {columns} FROM alert
    WHERE resolved_at IS NULL AND told_at IS NOT NULL AND (snoozed_until IS NULL OR snoozed_until <= :now)
        AND (snoozed_until > coalesce(repeated_at, told_at)
            OR (kind IN (SELECT value FROM json_each(:kinds)) AND count >= 2 * told_count AND coalesce(repeated_at, told_at) <= :now - :doubling)
            OR (severity <> 'notice' AND coalesce(repeated_at, told_at) <= :now - :remind))) a
ORDER BY CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, number LIMIT :limit

-- name: open_alert
-- One that is open already stays as it is: somebody was first.
INSERT INTO alert (kind, subject, severity, cause, action, opened_at, seen_at, count, job, schedule, run, tenant, owner,
    runbook, run_number)
VALUES (:kind, :subject, :severity, :cause, :action, :now, :now, :count, :job, :schedule, :run, :tenant, :owner, :runbook,
    :number)
ON CONFLICT (kind, subject) WHERE resolved_at IS NULL DO NOTHING
RETURNING number

-- name: change_alert
-- A count that fell and rises again is compared with the lowest one since the last message.
UPDATE alert SET cause = :cause, action = :action, count = :count, run = :run, run_number = :run_number, tenant = :tenant,
    seen_at = :now, told_count = min(told_count, :count)
WHERE number = :number AND resolved_at IS NULL

-- name: resolve_alert
-- Zero rows: somebody else has, and told so. Alerts of single runs are those of releases before; those of their schedules and
-- jobs replace them, without a message that they are resolved.
UPDATE alert SET resolved_at = :now, snoozed_until = NULL,
    told_resolved_at = CASE WHEN subject LIKE 'run:%' THEN :now ELSE told_resolved_at END
WHERE number = :number AND resolved_at IS NULL
RETURNING kind, subject, opened_at, cause

-- name: snooze_alert
UPDATE alert SET snoozed_until = :until WHERE number = :number AND resolved_at IS NULL

-- name: told_opened
UPDATE alert SET told_at = :now, told_count = count WHERE number IN carray(:numbers) AND told_at IS NULL

-- name: told_again
UPDATE alert SET repeated_at = :now, told_count = count WHERE number IN carray(:numbers) AND told_at IS NOT NULL AND resolved_at IS NULL

-- name: told_resolved
UPDATE alert SET told_resolved_at = :now WHERE number IN carray(:numbers) AND told_resolved_at IS NULL

-- name: forget_alerts
DELETE FROM alert WHERE number IN (SELECT number FROM alert WHERE resolved_at < :before LIMIT 1000)

-- name: recall_watch
SELECT version, looked_at, memory FROM watched WHERE id = 1

-- name: remember_watch
-- Zero rows: another watch has looked since.
INSERT INTO watched (id, version, looked_at, memory) VALUES (1, 1, :now, :memory)
ON CONFLICT (id) DO UPDATE SET version = version + 1, looked_at = :now, memory = :memory WHERE version = :version
RETURNING version

-- name: schedule_page
SELECT id, job, rule, payload, policy, options, delay, queue, priority, tenant, owner, runbook, changes, revision,
    CASE WHEN declared_for = fingerprint THEN declared ELSE fingerprint END, made_at, paused_at, paused_until, paused_note,
    evaluated_through, last_created, fault, tables, last_wall, next_wall, source, skip_through, member_set, paused_by,
    CASE WHEN declared_for = fingerprint THEN declared_format ELSE 0 END, fingerprint
FROM schedule WHERE id > :after ORDER BY id LIMIT :limit

-- name: useful_ticks
-- The last useful result of each.
SELECT h.schedule, h.nominal, h.finished_at FROM json_each(:ids) s JOIN history h ON h.n = (
    SELECT k.n FROM history k INDEXED BY history_kept WHERE k.schedule = s.value AND k.schedule IS NOT NULL
        AND k.state IN (10, 11) ORDER BY k.nominal DESC LIMIT 1)

-- name: first_due
-- The oldest that could fire, and have not ended.
SELECT * FROM live_runs WHERE number IN (
    SELECT number FROM run INDEXED BY run_due WHERE state <= 1 AND fire_at < :before ORDER BY fire_at LIMIT :limit)
ORDER BY fire_at, number

-- name: first_held
-- The lowest numbers are the oldest runs.
SELECT * FROM live_runs WHERE number IN (SELECT number FROM run WHERE waits_for IS NOT NULL ORDER BY number LIMIT :limit)
    AND fire_at < :before
ORDER BY fire_at, number

-- name: claimed_before
-- Through claims, which are few: what has run for a while. Most of what was claimed just now is over in a moment.
SELECT numbers FROM claim WHERE claimed_at < :before

-- name: live_among
SELECT * FROM live_runs WHERE number IN carray(:numbers) ORDER BY number

-- name: awaiting_checks
-- Runs that wait for their check, and ticks that wait for their members.
SELECT number FROM run WHERE phase IS NOT NULL
UNION SELECT number FROM run WHERE member_set IS NOT NULL AND state = 5
ORDER BY number LIMIT :limit

-- name: parked_after
-- The index has them by state. It is used only where `state >= 20` is said, too.
SELECT number FROM (SELECT number FROM run WHERE state >= 20 AND state = 20 AND number > :after ORDER BY number LIMIT :limit)
UNION ALL
SELECT number FROM (SELECT number FROM run WHERE state >= 20 AND state = 21 AND number > :after ORDER BY number LIMIT :limit)
UNION ALL
SELECT number FROM (SELECT number FROM run WHERE state >= 20 AND state = 22 AND number > :after ORDER BY number LIMIT :limit)
ORDER BY number LIMIT :limit

-- name: parked_subjects
-- Parked runs by state and schedule, with those of its members, or by state and job. The tenant: of all of them.
SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    CASE WHEN instr(schedule, '[') > 0 THEN substr(schedule, 1, instr(schedule, '[') - 1) ELSE schedule END,
    CASE WHEN schedule IS NULL THEN job END,
    CASE WHEN count(tenant) = count(*) AND min(tenant) = max(tenant) THEN min(tenant) END,
    sum(size), count(DISTINCT CASE WHEN instr(schedule, '[') > 0 THEN schedule END), max(newest)
FROM (
    SELECT state, schedule, job, tenant, reason, count(*) AS size, max(number) AS newest
    FROM run INDEXED BY run_parked_groups WHERE state >= 20 GROUP BY state, schedule, job, tenant, reason) g
GROUP BY 1, 2, 3 ORDER BY 7 DESC LIMIT :limit

-- name: parked_quiet
-- Those of them that have settings of their own about alerts, by these settings.
SELECT CASE WHEN state = 22 AND reason = 'settled' THEN 23 ELSE state END,
    CASE WHEN instr(schedule, '[') > 0 THEN substr(schedule, 1, instr(schedule, '[') - 1) ELSE schedule END,
    CASE WHEN schedule IS NULL THEN job END, options, count(*)
FROM run INDEXED BY run_parked_quiet WHERE state >= 20 AND instr(options, x'6E6F5F616C65727473') > 0 GROUP BY 1, 2, 3, 4

-- name: tried_again
SELECT number, name, job, schedule, spent, detail FROM run WHERE state = 1 AND phase IS NULL ORDER BY number LIMIT :limit

-- name: ended_briefly
SELECT n, number, name, job, schedule, state, coalesce(nominal, fire_at), since, started_at, finished_at FROM history
WHERE n > :position ORDER BY n LIMIT :limit

-- name: queues_briefly
SELECT queue, sum(length(numbers) / 8), min(fired_at) FROM handoff GROUP BY queue ORDER BY queue

-- name: jobs_waited_for
SELECT DISTINCT job FROM handoff WHERE job IS NOT NULL

-- name: jobs_taken
-- By live workers.
SELECT DISTINCT j.value FROM instance i, json_each(i.jobs) j
WHERE i.ended_at IS NULL AND i.role = 'worker' AND i.beat_at > :since

-- name: work_in_hand
SELECT worker, sum(open) FROM claim GROUP BY worker

-- name: count_dead
SELECT count(*) FROM (SELECT 1 FROM run WHERE state >= 20 AND state = 21 LIMIT :most)

-- name: early_since
SELECT (SELECT count(*) FROM history WHERE started_at < fire_at AND started_at > :since)
    + (SELECT count(*) FROM attempt WHERE started_at < fire_at AND started_at > :since AND outcome <> 'cancelled')

-- name: spans_over
-- Rows that stand for several ticks.
SELECT s.value ->> 0, h.nominal, h.span_until FROM json_each(:asked) s
JOIN history h ON h.schedule = s.value ->> 0 AND h.span_until >= s.value ->> 1 AND h.nominal <= s.value ->> 2

-- name: durations_of
SELECT finished_at - started_at FROM history INDEXED BY history_kept
WHERE schedule = :series AND schedule IS NOT NULL AND state IN (10, 11) AND started_at IS NOT NULL
ORDER BY nominal DESC LIMIT :limit
