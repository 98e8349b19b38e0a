"""What clients add to groups from outside, as every store sees it before it writes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import structs

from longshore.core.additions import (
    KnownNode,
    PlacedNode,
    check_edges,
    check_room,
    check_state,
    placed,
)
from longshore.core.lanes import node_hash
from longshore.core.same_body import is_body
from longshore.errors import Conflict, InvalidInput, LongshoreError
from longshore.model.group import AddedNode, GroupState, Node
from longshore.model.ids import derive_id
from longshore.model.job import Refused
from longshore.store.rows import NodeItem, body_or_why, clean, grown_taken, micros, utc_now


class Addition(NamedTuple):
    """What a client asked for, and how many jobs and dependencies the group may have."""

    request: UUID
    nodes: Sequence[AddedNode]
    max_jobs: int
    max_edges: int

    @property
    def ids(self) -> list[UUID]:
        """The ids of the new jobs: those of a repeated request are the same."""
        return [derive_id(self.request, index) for index in range(len(self.nodes))]

    @property
    def edges(self) -> int:
        """How many dependencies it brings."""
        return sum(len(set(node.after)) for node in self.nodes)


class Growable(NamedTuple):
    """A group to which a client adds, while nobody else changes it."""

    id: UUID
    state: GroupState
    jobs: int
    edges: int
    first: int
    """The place of the next node."""
    number: int
    """The group's number, which is before those of its jobs: what is added inherits it."""


def added_items(
    addition: Addition, group: Growable, known: Mapping[str, KnownNode]
) -> list[NodeItem] | Refused:
    """The new nodes as they are stored; or why they cannot be."""
    try:
        check_state(group.state)
        check_room(len(addition.nodes), group.jobs, addition.max_jobs)
        check_edges(addition.edges, group.edges, addition.max_edges)
        places = placed(addition.nodes, known, group.first)
        return _items(addition, places, group.number)
    except LongshoreError as error:
        return not_added(group.id, error)


def _items(addition: Addition, places: Sequence[PlacedNode], rank: int) -> list[NodeItem]:
    now = micros(utc_now())
    items = []
    for added, id, where in zip(addition.nodes, addition.ids, places, strict=True):
        job = structs.replace(added.job, id=id)
        body = body_or_why(job, now)
        if clean(added.key) != added.key:
            body = "its key is not valid"
        if isinstance(body, str):
            raise InvalidInput(f"job '{clean(added.key)}': {body}")
        node = Node(added.key, job, where.parents, added.on, where.scope)
        hashes = node_hash(node, body), body
        items.append(NodeItem(node, where.place, where.parents, *hashes, rank))
    return items


def not_added(group: UUID, error: LongshoreError) -> Refused:
    """The refusal of an addition, for this reason."""
    return Refused(group, error.code, f"nothing was added to group {group}: {error}")


def taken(group: UUID, node: Node) -> Refused:
    """The refusal of an addition because another job has the id or unique key of one of it."""
    return not_added(group, Conflict(grown_taken(node)))


def is_repeat(addition: Addition, stored: Mapping[UUID, tuple[str, int]]) -> bool:
    """Whether the jobs of an addition are there; raises `Conflict` if others have their ids.

    `stored` has, for those of its ids that jobs of the group have, their keys and body hashes.
    """
    if not stored:
        return False
    now = micros(utc_now())
    for node, id in zip(addition.nodes, addition.ids, strict=True):
        job = structs.replace(node.job, id=id)
        key, known = stored.get(id, (None, 0))
        body = body_or_why(job, now)
        if key != node.key or isinstance(body, str) or not is_body(job, body, known):
            raise Conflict(
                f"request {addition.request} added other jobs before; give a new one a new id"
            )
    return True
