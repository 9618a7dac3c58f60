-- As before; and what is limited in a lane needs more thought for the runs of that lane, and for no other: live runs stay in
-- one statement, whatever is said of catch-up and backfill.
CREATE OR REPLACE FUNCTION foliot.fire_runs(
    owner_ integer, shards_ smallint[], epochs_ bigint[], life_ text, fire_ats_ bigint[], numbers_ bigint[],
    late_ bigint, chunk_ integer, told pg_snapshot, ranks_ bigint[],
    OUT now_ bigint, OUT handed integer, OUT odd boolean, OUT lost smallint[], OUT unranked boolean
) LANGUAGE plpgsql AS $$
DECLARE
    same_life boolean := life_ = '' OR life_ = (SELECT began::text FROM foliot.life);
    limits text[] := ARRAY(SELECT g.name FROM foliot.gate g
        WHERE (g.most IS NOT NULL OR g.every IS NOT NULL) AND g.name NOT LIKE 'lane:%'
        UNION ALL SELECT 'to:' || b.destination FROM foliot.breaker b WHERE b.opened_at IS NOT NULL);
    lanes boolean := EXISTS (SELECT 1 FROM foliot.gate g WHERE g.name LIKE 'lane:%'
        AND (g.most IS NOT NULL OR (g.every IS NOT NULL AND g.name <> 'lane:catch-up')));
    claimed bigint[];
    one record;
BEGIN
    handed := 0;
    odd := false;
    unranked := false;
    SELECT array_agg(s.shard) INTO lost FROM (
        SELECT s.shard FROM foliot.shard s JOIN unnest(shards_, epochs_) AS w(shard, epoch) ON w.shard = s.shard
        WHERE s.shard = ANY(shards_) AND s.owner = owner_ AND s.epoch = w.epoch ORDER BY s.shard FOR NO KEY UPDATE OF s
    ) s;
    IF same_life AND coalesce(cardinality(lost), 0) = cardinality(shards_) THEN
        lost := NULL;
    ELSE
        lost := CASE WHEN same_life THEN ARRAY(SELECT unnest(shards_) EXCEPT SELECT unnest(lost)) ELSE shards_ END;
        RETURN;
    END IF;
    now_ := foliot.now();
    claimed := ARRAY(SELECT u.number FROM foliot.unwritten u);
    FOR one IN
        SELECT coalesce(r.queue, 'default') AS queue, r.priority,
            CASE WHEN r.lane = 0 AND now_ - r.fire_at > late_ THEN 1::smallint ELSE r.lane END AS lane,
            r.schedule IS NOT NULL OR r.phase IS NOT NULL OR r.deaths IS NOT NULL OR coalesce(r.useful_until < now_, false)
                OR r.slots IS NOT NULL OR r.forced IS NOT NULL
                OR (r.options IS NOT NULL AND position('"concurrency_key"'::bytea in r.options) > 0)
                OR (limits <> '{}' AND foliot.is_limited(limits, r))
                OR (lanes AND (r.lane > 0 OR now_ - r.fire_at > late_)) AS odd,
            r.tenant IS NOT NULL AND ranks_ = '{}' AS unranked, coalesce(d.rank, 1) AS rank,
            array_agg(r.number ORDER BY r.fire_at, r.number) AS numbers
        FROM foliot.run r JOIN unnest(fire_ats_, numbers_, ranks_) AS d(fire_at, number, rank)
            ON d.number = r.number AND d.fire_at = r.fire_at
        WHERE r.number = ANY(numbers_) AND r.fire_at <= now_ AND r.state < 2 AND (r.schedule IS NULL OR r.fired_at IS NULL)
            AND NOT EXISTS (SELECT 1 FROM unnest(claimed) AS c(number) WHERE c.number = r.number)
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 4 DESC, 5 DESC, 3, 2 DESC, 6
    LOOP
        IF one.odd OR one.unranked THEN
            odd := one.odd;
            unranked := one.unranked;
            RETURN;
        END IF;
        handed := handed + cardinality(one.numbers);
        FOR start IN 1 .. cardinality(one.numbers) BY chunk_ LOOP
            INSERT INTO foliot.handoff (queue, lane, priority, rank, fired_at, numbers)
            VALUES (one.queue, one.lane, one.priority, one.rank, now_, one.numbers[start : start + chunk_ - 1]);
        END LOOP;
    END LOOP;
    IF told IS NOT NULL THEN
        DELETE FROM foliot.stir s WHERE s.shard = ANY(shards_) AND s.xid < pg_snapshot_xmax(told)
            AND pg_visible_in_snapshot(s.xid, told);
    END IF;
    IF handed > 0 THEN
        PERFORM pg_notify('foliot', 'handoff');
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;
