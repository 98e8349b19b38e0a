"""New nodes of a group on PostgreSQL: whether they can be stored, and how they are.

Who stores nodes of a group holds the group's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from longshore.core.dependencies import Marks, Waiting, becomes
from longshore.core.effects import Change
from longshore.core.limited_starts import held_keys_text
from longshore.model.job import Submission
from longshore.model.worker import Lane
from longshore.store.postgres import groups_sql
from longshore.store.postgres import growth_sql as sql
from longshore.store.postgres.columns import columns, lane_of_item, unless_empty
from longshore.store.postgres.connections import Again, Transaction
from longshore.store.postgres.known_sql import ADD_LANES, HOLDERS
from longshore.store.postgres.states import CONDITIONS, WAITING
from longshore.store.rows import NodeItem, clean, due_at, micros, utc_now

UniqueKey = tuple[str, str]
"""A kind, and a unique key, which at most one live job of that kind has."""


class Wanted(NamedTuple):
    """A job that is to be added: to which group, under which key, with which id."""

    group: UUID
    key: str
    id: UUID


class Taken:
    """What other jobs have, of that which added jobs would have."""

    def __init__(self, ids: set[UUID], holders: dict[UniqueKey, UUID]) -> None:
        self._ids = ids
        """The added jobs whose id or key another one has."""
        self._holders = holders

    def first(self, items: Sequence[NodeItem]) -> NodeItem | None:
        """The first of these nodes that cannot be stored."""
        seen: set[UniqueKey] = set()
        for item in items:
            key = unique_key(item.node.job)
            if item.node.job.id in self._ids or (key and (key in self._holders or key in seen)):
                return item
            if key:
                seen.add(key)
        return None

    def take(self, items: Sequence[NodeItem]) -> None:
        """These nodes are going to be stored."""
        for item in items:
            if key := unique_key(item.node.job):
                self._holders[key] = item.node.job.id

    def free(self, job: UUID) -> None:
        """This job ends before the next ones are stored."""
        self._holders = {key: id for key, id in self._holders.items() if id != job}


def unique_key(job: Submission) -> UniqueKey | None:
    """The unique key of a job, if it has one."""
    return None if job.unique_key is None else (job.kind, job.unique_key)


async def find_taken(
    tx: Transaction, wanted: Sequence[Wanted], jobs: Sequence[Submission]
) -> Taken:
    """What other jobs have, of that which these would have.

    It asks for no text that the database does not take: whether it takes all comes out later.
    """
    asked = [(one.group, clean(one.key), one.id) for one in wanted]
    rows = await tx.fetch(sql.TAKEN, *zip(*asked, strict=True)) if asked else []
    ids = {row["id"] for row in rows}
    keys = {(clean(key[0]), clean(key[1])) for job in jobs if (key := unique_key(job))}
    rows = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
    return Taken(ids, {(row["kind"], row["unique_key"]): row["id"] for row in rows})


async def store_nodes(
    tx: Transaction, group: UUID, items: Sequence[NodeItem], ids: Mapping[int, UUID]
) -> bool:
    """Stores nodes that wait; answers whether no other job had an id or a unique key of theirs.

    `ids` has the jobs at the places that they depend on, and whose scopes they are in.
    """
    jobs = [(item.node.job, item.job_body) for item in items]
    *values, _ = columns(jobs)  # jobs of groups are not watched
    delays = [item.node.job.delay_s for item in items]
    values[6] = delays if any(delay is not None for delay in delays) else []
    scopes = [None if (at := item.node.scope) is None else ids[at] for item in items]
    ranks = [item.rank for item in items if item.rank is not None]
    rows = await tx.fetch(
        groups_sql.ADD_RANKED_NODES if ranks else groups_sql.ADD_NODES,
        *values,
        group,
        [item.body for item in items],
        [item.place for item in items],
        [len(item.parents) for item in items],
        [CONDITIONS[item.node.on] for item in items],
        [item.node.key for item in items],
        scopes if any(scopes) else [],
        unless_empty([held_keys_text(job.options) for job, _ in jobs]),
        unless_empty([job.options.fair or None for job, _ in jobs]),
        *([ranks] if ranks else []),
    )
    if sum(row["n"] for row in rows) < len(items):
        return False
    edges = [(ids[at], item.node.job.id) for item in items for at in item.parents]
    if edges:
        await tx.fetch(groups_sql.ADD_EDGES, *zip(*edges, strict=True))
    for row in rows:
        tx.count(row["lane"], None, WAITING, row["n"])
    return True


async def store_added(
    tx: Transaction, group: UUID, items: Sequence[NodeItem], ids: Mapping[int, UUID]
) -> None:
    """Stores nodes of which `find_taken` said that they can be."""
    if not await store_nodes(tx, group, items, ids):
        raise Again("a unique key was taken just now")


def lanes_of(items: Sequence[NodeItem]) -> dict[int, Lane]:
    """The lanes of these nodes' jobs."""
    lanes = (lane_of_item((item.node.job, item.job_body)) for item in items)
    return {lane.hash: lane for lane in lanes}


async def store_lanes(tx: Transaction, lanes: Mapping[int, Lane]) -> None:
    """Makes lanes known."""
    if lanes:
        fields = [(lane.hash, lane.queue, lane.kind, lane.target) for lane in lanes.values()]
        await tx.fetch(ADD_LANES, *zip(*fields, strict=True))


def woken(items: Sequence[NodeItem]) -> dict[UUID, Change]:
    """What becomes of new jobs that depend on nothing, once their group runs."""
    found = {item.node.job.id: becomes(new_waiting(item)) for item in items}
    return {id: change for id, change in found.items() if change is not None}


def new_waiting(item: NodeItem) -> Waiting:
    """A new node, which has heard of nothing yet."""
    job, now = item.node.job, micros(utc_now())
    due = due_at(job, now)
    delay_s = (due - now) / 1e6 if due is not None and due > now else None
    return Waiting(item.node.on, len(item.parents), Marks.NOTHING, delay_s, job.options.expires_s)
