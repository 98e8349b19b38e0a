-- Who may ask for what over HTTP. Of a token only the hash is kept; `role` and `scope` say what it is good for.
CREATE TABLE access_token (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    -- The first 8 bytes of the hash, to find it by; the rest is compared in constant time.
    hint BLOB NOT NULL,
    hash BLOB NOT NULL,
    role TEXT NOT NULL,
    scope BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX access_token_hint ON access_token (hint);
CREATE UNIQUE INDEX access_token_name ON access_token (name) WHERE revoked_at IS NULL;
-- Who asked for which change. One row for each request, and for each principal that has used its id.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    request BLOB NOT NULL,
    principal TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX audit_request ON audit (request, principal, fingerprint);
CREATE INDEX audit_at ON audit (at);
