-- Who wrote a row of the audit log: a signature by a key that is not in the store (see foliot.domain.audit). Rows of processes
-- without a key have none.
ALTER TABLE foliot.audit ADD COLUMN signature text;
CREATE INDEX audit_signed ON foliot.audit (n) WHERE signature IS NOT NULL;
