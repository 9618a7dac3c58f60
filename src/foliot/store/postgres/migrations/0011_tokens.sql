-- Who may act over HTTP, and what was asked for already.

-- Of tokens and sessions only hashes are kept: whoever reads this table cannot act with what stands in it.
CREATE TABLE foliot.token (
    made_at     bigint  NOT NULL,
    expires_at  bigint,
    used_at     bigint,
    revoked_at  bigint,
    number      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text    COLLATE "C" NOT NULL UNIQUE,
    hash        bytea   NOT NULL UNIQUE,
    scope       text    NOT NULL,
    tenant      text    COLLATE "C",
    made_by     text    NOT NULL
);
CREATE TABLE foliot.session (
    until  bigint  NOT NULL,
    token  integer NOT NULL,
    hash   bytea   PRIMARY KEY
);

-- Requests by their Idempotency-Key; without a status, somebody is at it.
CREATE TABLE foliot.request (
    made_at     bigint  NOT NULL,
    credential  integer NOT NULL,
    status      integer,
    key         text    COLLATE "C" NOT NULL,
    digest      bytea   NOT NULL,
    headers     text,
    body        bytea,
    PRIMARY KEY (credential, key)
);
CREATE INDEX request_made ON foliot.request (made_at);

-- Workers that come over HTTP: who vouches for them, and what marks their attempts.
CREATE TABLE foliot.guest (
    worker      integer PRIMARY KEY,
    credential  integer NOT NULL,
    secret      bytea   NOT NULL
);
