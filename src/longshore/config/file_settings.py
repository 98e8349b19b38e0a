"""The settings of files: where gateways keep them, and how workers and clients move them."""

from __future__ import annotations

from msgspec import Struct

GIB = 1024**3


class FileSettings(Struct, frozen=True, kw_only=True):
    """Every interval and bound of filesets."""

    files: str = ""
    """Where gateways keep the bytes of filesets: a folder, or a URL like s3://bucket/folder.

    By default `longshore up`, and a gateway beside a dispatcher, use `files` beside the SQLite
    file, and `.longshore/files` with PostgreSQL. A gateway of its own keeps none unless it is set.
    """

    files_staging: str = ""
    """If `files` is no folder: where uploads grow; by default in the user's cache folder."""

    files_url: tuple[str, ...] = ()
    """The gateways that workers and `longshore filesets` ask for files, like http://10.0.0.5:7700.

    Workers of `longshore up` ask its own gateway.
    """

    files_cache: str = ""
    """The folder where a worker keeps blobs; by default `longshore` in the user's cache folder."""

    files_cache_bytes: int = 10 * GIB
    """How many bytes the cache of a worker holds. Workers with one folder share it."""

    max_fileset_bytes: int = 1024 * GIB
    """How many bytes the files of a version may have, holes counted. Dispatchers ask it too."""

    max_fileset_files: int = 200_000
    """How many files a version may have."""

    transfer_timeout_s: float = 3600.0
    """How long bringing an input or taking an output may take, with all its retries."""

    transfer_slots: int = 8
    """How many files are moved at once."""

    transfer_bytes_per_s: int = 0
    """How many bytes a second a process moves at most; 0 is any number."""

    upload_idle_s: float = 86_400.0
    """A gateway drops an upload with which nobody goes on for this long."""

    files_look_s: float = 60.0
    """How often a gateway looks for files to remove and logs to archive."""
