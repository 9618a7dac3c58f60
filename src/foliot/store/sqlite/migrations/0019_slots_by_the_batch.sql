-- A transaction of the store's writer frees slots by the batch: one write per slot, however many runs had it. Transactions of
-- users and of older releases free them run by run, as before.

-- The slots that runs gave up in this transaction, as JSON, and the number of these runs. The writer adds the row '' before it
-- ends runs, and removes all rows before it commits. So the table is empty outside of its transactions.
CREATE TABLE collected (
    slots  TEXT     PRIMARY KEY,
    count  INTEGER  NOT NULL
) STRICT, WITHOUT ROWID;

DROP TRIGGER run_left;
CREATE TRIGGER run_left AFTER DELETE ON run WHEN old.slots IS NOT NULL AND NOT EXISTS (SELECT 1 FROM collected) BEGIN
    INSERT INTO freed SELECT value FROM json_each(old.slots);
END;
CREATE TRIGGER run_left_in_batch AFTER DELETE ON run WHEN old.slots IS NOT NULL AND EXISTS (SELECT 1 FROM collected) BEGIN
    INSERT INTO collected (slots, count) VALUES (old.slots, 1) ON CONFLICT (slots) DO UPDATE SET count = count + 1;
END;

DROP TRIGGER run_let_go;
CREATE TRIGGER run_let_go AFTER UPDATE OF slots ON run
WHEN old.slots IS NOT NULL AND old.slots IS NOT new.slots AND NOT EXISTS (SELECT 1 FROM collected) BEGIN
    INSERT INTO freed SELECT value FROM json_each(old.slots)
    WHERE value NOT IN (SELECT value FROM json_each(coalesce(new.slots, '[]')));
END;
CREATE TRIGGER run_let_go_in_batch AFTER UPDATE OF slots ON run
WHEN old.slots IS NOT NULL AND old.slots IS NOT new.slots AND EXISTS (SELECT 1 FROM collected) BEGIN
    INSERT INTO collected (slots, count) VALUES ((SELECT json_group_array(value) FROM json_each(old.slots)
        WHERE value NOT IN (SELECT value FROM json_each(coalesce(new.slots, '[]')))), 1)
    ON CONFLICT (slots) DO UPDATE SET count = count + 1;
END;
