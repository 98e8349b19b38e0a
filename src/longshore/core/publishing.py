"""Which ends publish versions of filesets, and what becomes of one whose files are not stored.

A store publishes what an end brings in the transaction of that end, if the job ends for good with
it. Each manifest must be sealed by the attempt: then all of its blobs are stored, and stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import structs

from longshore.errors import InvalidInput
from longshore.model.ends import Crashed, End, Failed, Skipped, Succeeded
from longshore.model.fileset import HASH_BYTES, FilesetVersion, NewVersion
from longshore.model.job import JobError, Reason

MAX_VERSIONS: Final = 100
"""How many filesets one attempt may publish."""
MAX_FILESET_CHARS: Final = 200
MAX_COUNT: Final = 2**53
"""How many files and bytes a version may say that it has."""

PARTLY: Final = (Failed, Crashed, Skipped)
"""The ends that publish what is partial, if the job ends for good with them."""
MAY_PUBLISH: Final = (Succeeded, *PARTLY)


def published(end: End) -> tuple[NewVersion, ...]:
    """The versions that an end brings."""
    return end.versions if isinstance(end, MAY_PUBLISH) else ()


def published_bytes(ends: Sequence[End]) -> dict[UUID, int]:
    """How many bytes each job publishes that does."""
    return {
        end.job: sum(made.total_bytes for made in versions)
        for end in ends
        if (versions := published(end))
    }


def without_outputs(end: End, missing: Sequence[str]) -> End:
    """The end of an attempt that has not stored these filesets whole: it publishes nothing."""
    names = ", ".join(f"'{name}'" for name in missing)
    why = f"it publishes {names}, of which it has not stored all files"
    if isinstance(end, PARTLY):
        info = f"{end.info}; {why}" if end.info else why
        return structs.replace(end, versions=(), info=info)
    error = JobError(Reason.OUTPUT_MISSING, why)
    return Failed(
        end.job,
        end.token,
        error,
        by=end.by,
        info=why,
        worker=end.worker,
        ran_s=end.ran_s,
    )


def made_by_node(key: str, fileset: str, made: Sequence[FilesetVersion]) -> FilesetVersion | None:
    """Which of the versions that a job of the group made is meant; None if it made none.

    Raises `InvalidInput` if it made others than the one that is asked for, or several.
    """
    meant = [one for one in made if fileset in ("", one.fileset)]
    if len(meant) == 1 or not made:
        return meant[0] if meant else None
    names = ", ".join(f"'{one.fileset}'" for one in made)
    if not meant:
        raise InvalidInput(f"the job '{key}' made no version of '{fileset}', but of {names}")
    raise InvalidInput(
        f"the job '{key}' made versions of {names}; say which: {{from: {key}, fileset: …}}"
    )


def check_versions(versions: Sequence[NewVersion]) -> None:
    """Raises `InvalidInput` if a report brings versions that cannot be."""
    if len(versions) > MAX_VERSIONS:
        raise InvalidInput(f"it publishes {len(versions):,} filesets; {MAX_VERSIONS} are allowed")
    for made in versions:
        check_version(made)
    if len({made.fileset for made in versions}) < len(versions):
        raise InvalidInput("it publishes two versions of one fileset; make one of them")


def check_version(made: NewVersion) -> None:
    """Raises `InvalidInput` if a version cannot be."""
    check_fileset(made.fileset)
    if len(made.manifest) != HASH_BYTES:
        raise InvalidInput(f"fileset '{made.fileset}': a manifest is named by {HASH_BYTES} bytes")
    if not (0 <= made.files <= MAX_COUNT and 0 <= made.total_bytes <= MAX_COUNT):
        raise InvalidInput(f"fileset '{made.fileset}' says that it has more than can be")


def check_fileset(name: str) -> None:
    """Raises `InvalidInput` unless this can be the name of a fileset.

    It has parts between slashes, none of which is empty, `.` or `..`.
    """
    if not name or len(name) > MAX_FILESET_CHARS:
        raise InvalidInput(f"fileset {name!r:.50}: a name has 1 to {MAX_FILESET_CHARS} characters")
    if not name.isprintable() or "\\" in name or name != name.strip():
        raise InvalidInput(f"fileset {name!r}: use printable characters, no backslash")
    if "@" in name:
        raise InvalidInput(f"fileset '{name}': behind an @ is a version, so no name has one")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidInput(f"fileset '{name}': write parts between single slashes, as in a/b")
