"""Additions: what a client adds to a group that runs.

Theory. New nodes come behind all others, and each depends on nodes that were there or on new ones
before it. So no cycle can come of it, with one exception: a node that joins a sub-group which was
there. Whoever depends on the sub-group waits for the new node too, and the new node might wait for
one of those. Therefore it may depend only on what is in the same sub-group, which cannot wait for
it, and on what is closed.

What a job added belongs to a round of that job, and goes with it. So nobody else can depend on it
alone: whoever wants to names the job that added it.

A node whose dependency has ended hears of it at once, as `dependencies.deliver` says. What has not
told its dependents yet will tell the new one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from longshore.core.group_limits import (
    MAX_ADDED_JOBS,
    check_condition,
    check_key,
    check_not_run,
    check_start,
)
from longshore.core.keys import check_prefixes, prefixes
from longshore.errors import Conflict, InvalidInput, LongshoreError, TooLarge, WrongState, from_code
from longshore.model.group import SCOPE, AddedNode, GroupState


class KnownNode(NamedTuple):
    """A node that the group has. It is closed if it has told all that there is to tell of it."""

    place: int
    kind: str
    is_closed: bool


class PlacedNode(NamedTuple):
    """Where a new node is: its place, those of what it depends on, and that of its sub-group."""

    place: int
    parents: tuple[int, ...]
    scope: int | None


# what can be checked without the group


def check_addition(nodes: Sequence[AddedNode]) -> None:
    """Raises, naming the key, if jobs that a client adds to a group break a limit."""
    if not nodes:
        raise InvalidInput("no job is given to be added; give at least one")
    if len(nodes) > MAX_ADDED_JOBS:
        raise TooLarge(
            f"{len(nodes):,} jobs are to be added, and one request may add {MAX_ADDED_JOBS:,}; "
            "add them in several, or use a map"
        )
    places: dict[str, int] = {}
    for place, node in enumerate(nodes):
        with naming_job(node.key):
            check_key(node.key, node.job.kind)
            if places.setdefault(node.key, place) != place:
                raise InvalidInput("two of the jobs to be added have this key; rename one of them")
    check_prefixes({node.key for node in nodes if node.job.kind != SCOPE})
    for node in nodes:
        with naming_job(node.key):
            _check_node(node, places)


def _check_node(node: AddedNode, places: Mapping[str, int]) -> None:
    check_not_run(node.job)
    check_condition(node.on, bool(node.after))
    check_start(node.job)
    own = places[node.key]
    for key in node.after:
        if places.get(key, -1) >= own:
            raise InvalidInput(
                f"it depends on '{key:.200}', which does not come before it in the request; send "
                "jobs after those that they depend on"
            )
    if any(places.get(prefix, own) < own for prefix in prefixes(node.key)):
        raise InvalidInput("its sub-group comes before it; send a sub-group after what is in it")


class _NamingJob:
    def __init__(self, key: object) -> None:
        self._key = key

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, LongshoreError):
            raise from_code(error.code, f"job '{self._key!s:.200}': {error}") from None


def naming_job(key: object) -> _NamingJob:
    """What is raised inside names the job that is to be added."""
    return _NamingJob(key)


# what needs the group


def keys_asked(nodes: Iterable[AddedNode]) -> set[str]:
    """The keys of which one must know whether the group has them."""
    own = {key for node in nodes for key in (node.key, *node.after)}
    return own.union(*(prefixes(key) for key in own))


def check_state(state: GroupState) -> None:
    """Raises unless jobs can be added to a group in this state."""
    if state in (GroupState.RUNNING, GroupState.PAUSED):
        return
    if state is GroupState.STAGING:
        raise WrongState("it is staging: parts of it are still to come; add to it once it runs")
    if state is GroupState.CANCELLING:
        raise WrongState("it is being cancelled, so nothing can be added to it")
    raise WrongState(
        f"it has ended ({state}), so nothing can be added to it; make a new group, or retry this "
        "one first"
    )


def check_room(new_jobs: int, jobs: int, max_jobs: int) -> None:
    """Raises if a group cannot have so many more jobs."""
    if jobs + new_jobs > max_jobs:
        raise TooLarge(
            f"it has {jobs:,} jobs, {new_jobs:,} more are to be added, and max_group_jobs is "
            f"{max_jobs:,}: make another group, or raise max_group_jobs"
        )


def check_edges(new_edges: int, edges: int, max_edges: int) -> None:
    """Raises if a group cannot have so many more dependencies."""
    if edges + new_edges > max_edges:
        raise TooLarge(
            f"it has {edges:,} dependencies, {new_edges:,} more are to be added, and "
            f"max_group_edges is {max_edges:,}: let many jobs depend on one that depends on many, "
            "or raise max_group_edges"
        )


def placed(
    nodes: Sequence[AddedNode], known: Mapping[str, KnownNode], first: int
) -> list[PlacedNode]:
    """Where new nodes come, from this place on; raises if one cannot be in the group.

    `known` has those of `keys_asked` that the group has.
    """
    places = {key: one.place for key, one in known.items()}
    new = {node.key: place for place, node in enumerate(nodes, first)}
    scopes = {node.key for node in nodes if node.job.kind == SCOPE}
    found = []
    for place, node in enumerate(nodes, first):
        with naming_job(node.key):
            scope = _scope(node, known, scopes)
            _check_parents(node, known, new)
            _check_inside(node, known)
        parents = {new.get(key, places.get(key, 0)) for key in node.after}
        at = None if scope is None else new.get(scope, places.get(scope))
        found.append(PlacedNode(place, tuple(sorted(parents)), at))
    return found


def _scope(node: AddedNode, known: Mapping[str, KnownNode], new: set[str]) -> str | None:
    """The innermost sub-group, of those that others can depend on, in which a new node is."""
    if node.key in known:
        raise Conflict("the group has a job with this key; give another key")
    for prefix in prefixes(node.key):
        if prefix in known and known[prefix].kind != SCOPE:
            raise InvalidInput(
                f"it lies below the job '{prefix}', where only that job may add others; give "
                "another key"
            )
    around = [prefix for prefix in prefixes(node.key) if prefix in known or prefix in new]
    return around[0] if around else None


def _check_parents(node: AddedNode, known: Mapping[str, KnownNode], new: Mapping[str, int]) -> None:
    for key in node.after:
        if key in new:
            continue
        adder = next((one for one in prefixes(key) if _adds(known.get(one))), None)
        if key not in known:
            near = get_close_matches(key, [*new, *known], n=1)
            hint = f" (nearest: '{near[0]}')" if near else ""
            raise InvalidInput(f"it depends on '{key:.200}', which the group does not have{hint}")
        if adder is not None:
            raise InvalidInput(
                f"it depends on '{key}', which the job '{adder}' added and takes with it when it "
                f"runs again; depend on '{adder}', which stands for all that it added"
            )


def _adds(node: KnownNode | None) -> bool:
    return node is not None and node.kind != SCOPE


def _check_inside(node: AddedNode, known: Mapping[str, KnownNode]) -> None:
    """Raises if a new node cannot join the sub-group that it lies in."""
    inner = next((prefix for prefix in prefixes(node.key) if prefix in known), None)
    if inner is None:
        return
    if known[inner].is_closed:
        raise WrongState(
            f"the sub-group '{inner}' is over, and those that depend on it were told; give a key "
            "outside of it"
        )
    for key in node.after:
        is_closed = key in known and known[key].is_closed
        if not is_closed and not key.startswith(f"{inner}/"):
            raise InvalidInput(
                f"it joins the sub-group '{inner}' and depends on '{key}', which might wait for "
                f"that; let it depend on jobs of '{inner}', or on such that have ended"
            )
