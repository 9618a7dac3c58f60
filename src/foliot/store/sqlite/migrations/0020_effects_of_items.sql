-- The item of a batch that an effect belongs to: while the effect is open, the item is in doubt. Effects that releases before
-- this one write belong to no item.
ALTER TABLE effect ADD COLUMN batch TEXT;
ALTER TABLE effect ADD COLUMN item TEXT;
