"""Fills the results of other jobs into the arguments of attempts that refer to them.

A store does this with every attempt that it answers, so that nobody else sees a reference. Most
attempts have none, and cost nothing here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import structs

from longshore.errors import InvalidInput
from longshore.model.attempt import Attempt
from longshore.payload.references import (
    MAX_REFERENCED_BYTES,
    NodeResult,
    Results,
    filled,
    references,
)

Wanted = list[tuple[UUID, str]]
"""Jobs, and the keys of those whose results they refer to (see `Reference.wanted`).

A key that begins with `./` is one beside the job's own: it has the same prefix. One that ends in
`/*` means all nodes in the scope of the node with that key, by place.
"""

Found = Mapping[UUID, Results]
"""For each job, what the jobs that it refers to have come to."""


def wanted_results(attempts: Iterable[Attempt]) -> Wanted:
    """What must be read to fill these attempts. Malformed references are told by `fill`."""
    wanted: dict[tuple[UUID, str], None] = {}
    for one in attempts:
        if one.options.references:
            try:
                found = references(one.args)
            except InvalidInput:
                continue
            wanted.update(((one.id, reference.wanted), None) for reference in found)
    return list(wanted)


def by_job(rows: Iterable[tuple[UUID, str, NodeResult]]) -> Found:
    """The rows that were read, for `fill`. The elements of a map come in their order."""
    found: defaultdict[UUID, dict[str, list[NodeResult]]] = defaultdict(dict)
    for job, key, result in rows:
        found[job].setdefault(key, []).append(result)
    return found


def fill(attempts: Sequence[Attempt], results: Found) -> list[Attempt]:
    """The attempts with results in their arguments; with a `problem` where that cannot be."""
    return [
        _filled(one, results.get(one.id, {})) if one.options.references else one for one in attempts
    ]


def too_large(results: Results) -> str:
    """Why so many bytes of results cannot be filled in; empty if they can."""
    size = sum(one.size for found in results.values() for one in found)
    if size <= MAX_REFERENCED_BYTES:
        return ""
    return (
        f"the results that this job refers to take {size:,} bytes, more than "
        f"{MAX_REFERENCED_BYTES:,}; keep large data in a file or an object store"
    )


def _filled(attempt: Attempt, results: Results) -> Attempt:
    if problem := too_large(results):
        return structs.replace(attempt, problem=problem)
    try:
        return structs.replace(attempt, args=filled(attempt.args, results))
    except InvalidInput as error:
        return structs.replace(attempt, problem=str(error))
