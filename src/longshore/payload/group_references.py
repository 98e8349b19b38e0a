"""Which jobs of a group refer to results of which, and whether each depends on those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from longshore.core.additions import naming_job
from longshore.core.group_limits import naming
from longshore.errors import InvalidInput
from longshore.model.group import MAP, SCOPE, AddedNode, GroupPart, Node
from longshore.model.job import Submission
from longshore.model.reports import OutboxNode
from longshore.payload.file_references import Maker, check_makers, makers
from longshore.payload.maps import read_map
from longshore.payload.references import BESIDE, Reference, references

_RAW: Final = "it is a raw job, whose bytes cannot refer to results"


class _Place(NamedTuple):
    place: int
    kind: str


def referred(job: Submission) -> list[Reference]:
    """The results that a job refers to; of a map, also those that its elements refer to."""
    found = references(job.args) if job.options.references else []
    return [*found, *_of_elements(job)] if job.kind == MAP else found


def _of_elements(job: Submission) -> list[Reference]:
    pattern = read_map(job.args)[1].job
    return references(pattern.args) if pattern.options.references else []


def files_from(job: Submission) -> list[Maker]:
    """The jobs whose files are inputs of a job, or of the elements of a map."""
    return makers(read_map(job.args)[1].job if job.kind == MAP else job)


def check_dependencies(part: GroupPart) -> None:
    """Raises, naming the group and the key, if a job refers to one that it does not depend on.

    Of jobs in other parts only their number is known here. A wrong key among them is told when the
    job is to run.
    """
    places = {
        node.key: _Place(place, node.job.kind) for place, node in enumerate(part.nodes, part.first)
    }
    jobs = {node.key: node.job for node in part.nodes}
    for node in part.nodes:
        if node.job.options.references or node.job.kind == MAP:
            with naming(part.head, node.key):
                _check_node(node, places, part.first)
        if wanted := files_from(node.job):
            with naming(part.head, node.key):
                _check_files(node, wanted, places, part.first)
                check_makers(wanted, jobs)


def _check_node(node: Node, places: Mapping[str, _Place], first: int) -> None:
    if node.job.options.raw:
        raise InvalidInput(_RAW)
    after, seen = set(node.after), set[str]()
    elsewhere = sum(place < first for place in after)
    for one in dict.fromkeys(referred(node.job)):
        found = places.get(one.job)
        if found is not None and found.place in after:
            _check_kind(one, found.kind)
        elif found is not None or len(seen := seen | {one.job}) > elsewhere:
            raise InvalidInput(_not_after(one.job))


def _check_files(
    node: Node, wanted: Sequence[Maker], places: Mapping[str, _Place], first: int
) -> None:
    """Raises if a job has files from one that it does not depend on."""
    after = set(node.after)
    elsewhere = sum(place < first for place in after)
    unknown = {one.key for one in wanted if one.key not in places}
    apart = [one.key for one in wanted if one.key in places and places[one.key].place not in after]
    for key in [*apart, *(sorted(unknown) if len(unknown) > elsewhere else ())]:
        raise InvalidInput(_no_files_after(key))


def _no_files_after(key: str) -> str:
    return (
        f"an input is from '{key:.200}', on which it does not depend; add '{key:.200}' to its "
        "`after`"
    )


def _not_after(key: str) -> str:
    return (
        f"its arguments refer to the result of '{key:.200}', on which it does not depend; add "
        f"'{key:.200}' to its `after`"
    )


def _check_kind(wanted: Reference, kind: str) -> None:
    """Raises if what a reference names has no such result."""
    if kind == SCOPE:
        raise InvalidInput(
            f"'{wanted.job}' is a sub-group, which has no result; refer to one of its jobs"
        )
    if kind == MAP and not wanted.is_map:
        raise InvalidInput(
            f"'{wanted.job}' is a map, which has no result of its own; take its `results`, which "
            'are {"$results": {"map": KEY}}'
        )
    if wanted.is_map and kind != MAP:
        raise InvalidInput(f"'{wanted.job}' is not a map; take its `result`")


def check_additions(nodes: Sequence[AddedNode]) -> None:
    """Raises, naming the key, if a job that a client adds refers to one not in its `after`.

    What those are that the group has already is told when the job is to run.
    """
    kinds = {node.key: node.job.kind for node in nodes}
    jobs = {node.key: node.job for node in nodes}
    for node in nodes:
        if wanted := files_from(node.job):
            with naming_job(node.key):
                for maker in wanted:
                    if maker.key not in node.after:
                        raise InvalidInput(_no_files_after(maker.key))
                check_makers(wanted, jobs)
        if not node.job.options.references and node.job.kind != MAP:
            continue
        with naming_job(node.key):
            if node.job.options.raw:
                raise InvalidInput(_RAW)
            for one in referred(node.job):
                if one.job not in node.after:
                    raise InvalidInput(_not_after(one.job))
                if one.job in kinds:
                    _check_kind(one, kinds[one.job])


def check_added(nodes: Sequence[OutboxNode]) -> None:
    """Raises if a job that an attempt adds refers to one added with it and not depended on."""
    places = {f"{BESIDE}{one.key}": _Place(at, one.job.kind) for at, one in enumerate(nodes)}
    for node in nodes:
        check_added_map(node)
        for one in referred(node.job):
            if not one.job.startswith(BESIDE):
                continue
            found = places.get(one.job)
            if found is None or found.place not in node.after:
                raise InvalidInput(
                    f"the arguments of the job '{node.key}' that it adds refer to the result of "
                    f"'{one.job}', on which that job does not depend"
                )
            _check_kind(one, found.kind)


def check_added_map(node: OutboxNode) -> None:
    """Raises if a map that an attempt adds gives its elements results of others added with it."""
    # The elements have other keys beside them than their map has.
    if node.job.kind == MAP and any(one.job.startswith(BESIDE) for one in _of_elements(node.job)):
        raise InvalidInput(
            f"the map '{node.key}' that it adds has a result among the arguments of all elements; "
            "only what a map goes over can be one there"
        )
