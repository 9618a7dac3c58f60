-- The item of a batch that an effect belongs to: while the effect is open, the item is in doubt. Effects that releases before
-- this one write belong to no item.
ALTER TABLE foliot.effect ADD COLUMN batch text;
ALTER TABLE foliot.effect ADD COLUMN item text;
