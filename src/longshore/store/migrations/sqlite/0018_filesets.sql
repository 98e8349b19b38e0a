-- Filesets: which blobs are stored, who pins which manifest, and which versions there are.
-- `loose`: a manifest that listed it is gone, so perhaps none does any more.
CREATE TABLE blob (
    sha256 BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    state INTEGER NOT NULL,
    loose INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_loose ON blob (touched_at) WHERE loose = 1 AND state <> 2;

CREATE INDEX blob_doomed ON blob (touched_at) WHERE state = 2;

-- `loose`: a version or a pin of it is gone, so perhaps nothing needs it any more.
CREATE TABLE manifest (
    sha256 BLOB PRIMARY KEY,
    total_bytes INTEGER NOT NULL DEFAULT 0,
    at INTEGER NOT NULL,
    loose INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX manifest_loose ON manifest (at) WHERE loose = 1;

-- What a manifest lists. It lists itself, too.
CREATE TABLE manifest_blob (
    manifest BLOB NOT NULL,
    blob BLOB NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (manifest, blob)
) STRICT, WITHOUT ROWID;

CREATE INDEX manifest_blob_blob ON manifest_blob (blob);

-- An attempt pins by its job and token, an upload by its id and token 0.
CREATE TABLE manifest_pin (
    manifest BLOB NOT NULL,
    holder BLOB NOT NULL,
    token INTEGER NOT NULL,
    sealed INTEGER NOT NULL DEFAULT 0,
    at INTEGER NOT NULL,
    PRIMARY KEY (manifest, holder, token)
) STRICT, WITHOUT ROWID;

CREATE INDEX manifest_pin_holder ON manifest_pin (holder, token);

CREATE INDEX manifest_pin_at ON manifest_pin (at);

CREATE TABLE fileset (
    name TEXT PRIMARY KEY,
    latest INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- `maker` is a job, or an upload in round 0.
CREATE TABLE fileset_version (
    fileset TEXT NOT NULL,
    version INTEGER NOT NULL,
    manifest BLOB NOT NULL,
    maker BLOB NOT NULL,
    round INTEGER NOT NULL,
    files INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    partial INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    made_by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (fileset, version)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX fileset_version_maker ON fileset_version (maker, round, fileset);

CREATE INDEX fileset_version_manifest ON fileset_version (manifest);

-- Which version a job reads in a round; `asked` is 0 if it asked for the newest.
CREATE TABLE job_input (
    job BLOB NOT NULL,
    round INTEGER NOT NULL,
    fileset TEXT NOT NULL,
    asked INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (job, round, fileset, asked)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_input_version ON job_input (fileset, version);

-- Where the bytes lie (`folder`), and the last generation of a blob.
CREATE TABLE file_place (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    generation INTEGER NOT NULL,
    folder TEXT
) STRICT;

INSERT INTO file_place (number, generation) VALUES (1, 0);
