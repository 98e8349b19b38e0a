-- Who may ask for what over HTTP. Of a token only the hash is kept; `role` and `scope` say what it is good for.
CREATE TABLE longshore.access_token (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    prefix text NOT NULL,
    -- The first 8 bytes of the hash, to find it by; the rest is compared in constant time.
    hint bytea NOT NULL,
    hash bytea NOT NULL,
    role text NOT NULL,
    scope bytea NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);
CREATE INDEX access_token_hint ON longshore.access_token (hint);
CREATE UNIQUE INDEX access_token_name ON longshore.access_token (name) WHERE revoked_at IS NULL;
-- Who asked for which change. One row for each request, and for each principal that has used its id.
CREATE TABLE longshore.audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    request uuid NOT NULL,
    principal text NOT NULL,
    fingerprint bytea NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail text NOT NULL
);
CREATE UNIQUE INDEX audit_request ON longshore.audit (request, principal, fingerprint);
CREATE INDEX audit_at ON longshore.audit (at);
