-- Filesets: which blobs are stored, who pins which manifest, and which versions there are.
CREATE SEQUENCE longshore.blob_generation;

-- `loose`: a manifest that listed it is gone, so perhaps none does any more.
CREATE TABLE longshore.blob (
    sha256 bytea PRIMARY KEY,
    size bigint NOT NULL,
    generation bigint NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT now(),
    state smallint NOT NULL,
    loose boolean NOT NULL DEFAULT false
);

CREATE INDEX blob_loose ON longshore.blob (touched_at) WHERE loose AND state <> 2;

CREATE INDEX blob_doomed ON longshore.blob (touched_at) WHERE state = 2;

-- `loose`: a version or a pin of it is gone, so perhaps nothing needs it any more.
CREATE TABLE longshore.manifest (
    sha256 bytea PRIMARY KEY,
    total_bytes bigint NOT NULL DEFAULT 0,
    at timestamptz NOT NULL DEFAULT now(),
    loose boolean NOT NULL DEFAULT false
);

CREATE INDEX manifest_loose ON longshore.manifest (at) WHERE loose;

-- What a manifest lists. It lists itself, too.
CREATE TABLE longshore.manifest_blob (
    manifest bytea NOT NULL,
    blob bytea NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (manifest, blob)
);

CREATE INDEX manifest_blob_blob ON longshore.manifest_blob (blob);

-- An attempt pins by its job and token, an upload by its id and token 0.
CREATE TABLE longshore.manifest_pin (
    manifest bytea NOT NULL,
    holder uuid NOT NULL,
    token bigint NOT NULL,
    sealed boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (manifest, holder, token)
);

CREATE INDEX manifest_pin_holder ON longshore.manifest_pin (holder, token);

CREATE INDEX manifest_pin_at ON longshore.manifest_pin (at);

CREATE TABLE longshore.fileset (
    name text COLLATE "C" PRIMARY KEY,
    latest bigint NOT NULL
);

-- `maker` is a job, or an upload in round 0.
CREATE TABLE longshore.fileset_version (
    fileset text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    manifest bytea NOT NULL,
    maker uuid NOT NULL,
    round integer NOT NULL,
    files bigint NOT NULL,
    total_bytes bigint NOT NULL,
    partial boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    made_by text NOT NULL DEFAULT '',
    PRIMARY KEY (fileset, version)
);

CREATE UNIQUE INDEX fileset_version_maker ON longshore.fileset_version (maker, round, fileset);

CREATE INDEX fileset_version_manifest ON longshore.fileset_version (manifest);

-- Which version a job reads in a round; `asked` is 0 if it asked for the newest.
CREATE TABLE longshore.job_input (
    job uuid NOT NULL,
    round integer NOT NULL,
    fileset text COLLATE "C" NOT NULL,
    asked bigint NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (job, round, fileset, asked)
);

CREATE INDEX job_input_version ON longshore.job_input (fileset, version);

-- Where the bytes lie.
CREATE TABLE longshore.file_place (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    folder text NOT NULL
);
