-- Who may act over HTTP, and what was asked for already.

-- Of tokens and sessions only hashes are kept: whoever reads this table cannot act with what stands in it.
CREATE TABLE token (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL UNIQUE,
    hash        BLOB    NOT NULL UNIQUE,
    scope       TEXT    NOT NULL,
    tenant      TEXT,
    made_at     INTEGER NOT NULL,
    made_by     TEXT    NOT NULL,
    expires_at  INTEGER,
    used_at     INTEGER,
    revoked_at  INTEGER
) STRICT;
CREATE TABLE session (
    hash   BLOB    PRIMARY KEY,
    token  INTEGER NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Requests by their Idempotency-Key; without a status, somebody is at it.
CREATE TABLE request (
    credential  INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    digest      BLOB    NOT NULL,
    made_at     INTEGER NOT NULL,
    status      INTEGER,
    headers     TEXT,
    body        BLOB,
    PRIMARY KEY (credential, key)
) STRICT;
CREATE INDEX request_made ON request (made_at);

-- Workers that come over HTTP: who vouches for them, and what marks their attempts.
CREATE TABLE guest (
    worker      INTEGER PRIMARY KEY,
    credential  INTEGER NOT NULL,
    secret      BLOB    NOT NULL
) STRICT;
