"""Which files a job needs, by its kind and its arguments: so that it runs where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from longshore.core.files_at_hand import nearest
from longshore.core.programs import MAX_FILESETS, fileset_fields
from longshore.core.publishing import MAX_FILESET_CHARS
from longshore.core.templates import filled_text
from longshore.model.program import FREE_KINDS
from longshore.model.worker import FileKey, FilesAtHand, KindInfo, SessionKey
from longshore.payload.values import unpack

OF_THE_GROUP: Final = ""
"""An input that another job of the group makes."""
MOST_PARENTS: Final = 16
"""Of so many jobs, on which a job depends, somebody asks who has their files."""
MAX_ARGS_BYTES: Final = 16 * 1024
"""Nobody looks for files in arguments that are larger."""

_MOST_CHARS: Final = MAX_FILESET_CHARS + 20
"""Of a fileset's name with the version."""


class Needing(NamedTuple):
    """A job that may need files; `attempts` counts those before this one."""

    id: UUID
    kind: str
    args: bytes
    attempts: int = 0


def inputs_of(job: Needing, kinds: Mapping[str, KindInfo]) -> list[str]:
    """The inputs of a job: NAME, NAME@VERSION or `OF_THE_GROUP`. What cannot be read is none."""
    known = kinds.get(job.kind)
    return _named(job, known.inputs, "inputs") if known is not None else []


def files_of(job: Needing, kinds: Mapping[str, KindInfo]) -> list[FileKey]:
    """What a worker to which the job goes will have at hand; nothing for a job without files."""
    known = kinds.get(job.kind)
    if known is None:
        return []
    of_job = _named(job, known.inputs, "inputs") + _named(job, known.outputs, "outputs")
    return [job.id, *filter(None, of_job)] if of_job else []


def wishes(
    at_hand: FilesAtHand,
    jobs: Iterable[Needing],
    slots: Sequence[SessionKey],
    parents_of: Callable[[UUID], Sequence[UUID]],
) -> list[UUID | None]:
    """For each job the worker that has its files, if one of these slots is of such a worker.

    `parents_of` answers on which jobs a job depends.
    """
    free = dict.fromkeys(slot.worker for slot in slots)
    found: list[UUID | None] = []
    for job in jobs:
        inputs = inputs_of(job, at_hand.kinds)
        needed: list[FileKey] = [one for one in inputs if one]
        needed += parents_of(job.id) if OF_THE_GROUP in inputs else ()
        found.append(nearest(job.id, job.attempts, needed, at_hand.workers, free))
    return found


def _named(job: Needing, declared: Sequence[str], field: str) -> list[str]:
    """The filesets in one field of a program: in the arguments, or as the app declares it."""
    if len(job.args) > MAX_ARGS_BYTES:
        return []
    found = _listed(job, declared, field)[:MAX_FILESETS]
    return [name for name in found if len(name) <= _MOST_CHARS]


def _listed(job: Needing, declared: Sequence[str], field: str) -> list[str]:
    if job.kind not in FREE_KINDS:
        return _filled(declared, job.args) if declared else []
    if field.encode() not in job.args:
        return []
    found = fileset_fields(_arguments(job.args).get(field))
    if not isinstance(found, list):
        return []
    return [_name(one) for one in found if isinstance(one, dict)]


def _name(given: Mapping[str, Any]) -> str:
    fileset, version = str(given.get("fileset", "")), given.get("version")
    if given.get("from"):
        return OF_THE_GROUP
    return fileset if version is None else f"{fileset}@{version}"


def _filled(declared: Sequence[str], args: bytes) -> list[str]:
    if not any("{" in one for one in declared):
        return [*declared]
    arguments = _arguments(args)
    found = []
    for text in declared:
        try:
            found.append(filled_text(text, arguments))
        except KeyError:
            continue
    return found


def _arguments(args: bytes) -> Mapping[str, Any]:
    try:
        found = unpack(args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
