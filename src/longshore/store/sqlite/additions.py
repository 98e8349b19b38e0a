"""What clients add to groups from outside, on SQLite, in one transaction.

It holds the write lock of the file: nobody ends a job, or closes the group, meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from longshore.core.additions import KnownNode, keys_asked
from longshore.core.dependencies import Marks, Waiting, deliver
from longshore.core.lifecycle import TERMINAL
from longshore.errors import Conflict
from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.group import AddedNode, Group, GroupSubmitted
from longshore.model.job import JobState, Refused
from longshore.store.additions import Addition, Growable, added_items, is_repeat, not_added, taken
from longshore.store.group_limits import limited
from longshore.store.rows import NodeItem, clean
from longshore.store.sqlite.group_reads import group
from longshore.store.sqlite.growth import GREW
from longshore.store.sqlite.nodes import add_nodes, first_taken
from longshore.store.sqlite.settling import COUNT_DOWN, ENDED_NODES, Settling, Wake
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Transaction

_STORED: Final = Bulk(
    """SELECT job.id, node.key, job.body_hash FROM {rows} AS v
    CROSS JOIN job ON job.id = v.column2 CROSS JOIN node ON node.job = job.number
    WHERE node.group_id = v.column1""",
    2,
)
_KNOWN: Final = Bulk(
    """SELECT node.key, node.place, job.kind, job.state, node.open, node.job FROM {rows} AS v
    CROSS JOIN node ON node.group_id = v.column1 AND node.key = v.column2
    CROSS JOIN job ON job.number = node.job""",
    2,
)
_NOTED: Final = Bulk(
    """SELECT unsettled.job FROM {rows} AS v CROSS JOIN unsettled ON unsettled.job = v.column1
    WHERE unsettled.is_early = 0""",
    1,
)
_ROOM: Final = """
    SELECT staged, coalesce(edges, (SELECT count(*) FROM edge WHERE edge.group_id = g.number)),
        coalesce((SELECT max(place) FROM node WHERE node.group_id = g.number), -1) + 1
    FROM job_group AS g WHERE g.number = ?"""
_OPEN: Final = Bulk(
    """UPDATE node SET open = node.open + v.column3
    FROM {rows} AS v WHERE node.group_id = v.column1 AND node.place = v.column2""",
    3,
)


def add_to_group(
    tx: Transaction,
    ref: UUID | int,
    request: UUID,
    nodes: Sequence[AddedNode],
    *,
    max_group_jobs: int = MAX_GROUP_JOBS,
    max_group_edges: int = MAX_GROUP_EDGES,
) -> GroupSubmitted | Refused | None:
    """Adds jobs to a group that runs or is paused, all or none, once for each request."""
    into = group(tx, ref)
    if into is None:
        return None
    addition = Addition(request, nodes, max_group_jobs, max_group_edges)
    try:
        if is_repeat(addition, _stored(tx, into.number, addition)):
            return GroupSubmitted(into.id, into.number, into.state, into.jobs)
    except Conflict as error:
        return not_added(into.id, error)
    staged, edges, first = tx.execute(_ROOM, (into.number,)).fetchone()
    jobs, known = _known(tx, into.number, nodes)
    growable = Growable(into.id, into.state, staged, edges, first, into.number)
    items = added_items(addition, growable, known)
    if isinstance(items, Refused):
        return items
    if (node := first_taken(tx, items)) is not None:
        return taken(into.id, node)
    grown = (len(items), first, addition.edges, edges)
    tx.execute(GREW, (into.number, *grown))
    _store(tx, into, items, jobs)
    return GroupSubmitted(into.id, into.number, into.state, staged + len(items))


def _stored(tx: Transaction, group: int, addition: Addition) -> dict[UUID, tuple[str, int]]:
    """Those of the new jobs that are there."""
    rows: list[Row] = [(group, id.bytes) for id in addition.ids]
    return {
        UUID(bytes=id): (key, body)
        for text, values in _STORED.pieces(rows)
        for id, key, body in tx.execute(text, values)
    }


def _known(
    tx: Transaction, group: int, nodes: Sequence[AddedNode]
) -> tuple[dict[int, int], dict[str, KnownNode]]:
    """The nodes that have these keys, and their jobs by their places."""
    jobs, known = dict[int, int](), dict[str, KnownNode]()
    asked: list[Row] = [(group, clean(key)) for key in sorted(keys_asked(nodes))]
    for text, values in _KNOWN.pieces(asked):
        for key, place, kind, state, open, job in tx.execute(text, values):
            is_closed = JobState(state) in TERMINAL and not open
            known[key] = KnownNode(place, kind, is_closed)
            jobs[place] = job
    return jobs, known


def _store(
    tx: Transaction, group: Group, items: Sequence[NodeItem], jobs: Mapping[int, int]
) -> None:
    """Stores new nodes, which hear of what has ended, and lets those begin that can."""
    numbers = add_nodes(tx, group.number, limited(items, group.id, group.limit))
    inside: dict[int, int] = {}
    for item in items:
        if item.node.scope is not None:
            inside[item.node.scope] = inside.get(item.node.scope, 0) + 1
    _OPEN.run(tx.connection, [(group.number, place, n) for place, n in inside.items()])
    tx.flush()
    _begin(tx, group, items, numbers, jobs)


def _begin(
    tx: Transaction,
    group: Group,
    items: Sequence[NodeItem],
    numbers: Sequence[int],
    jobs: Mapping[int, int],
) -> None:
    named = {place for item in items for place in item.parents if place in jobs}
    rows: list[Row] = [(jobs[place],) for place in named]
    noted = {job for text, values in _NOTED.pieces(rows) for (job,) in tx.execute(text, values)}
    # Who still has to tell others of its end tells the new ones, too.
    asked: list[Row] = [(jobs[place], -1, int(jobs[place] in noted)) for place in named]
    told = {one.place: one.parent for one in ENDED_NODES.find(tx.connection, asked)}
    counters: list[Row] = []
    wakes = []
    for item, number in zip(items, numbers, strict=True):
        node = _waiting(item)
        unmet, marks, change = deliver(node, [told[at] for at in item.parents if at in told])
        counters.append((group.number, item.place, unmet, int(marks)))
        if change is not None:
            wakes.append(Wake(group.number, number, change))
    COUNT_DOWN.run(tx.connection, counters)
    Settling(tx).wake(wakes)


def _waiting(item: NodeItem) -> Waiting:
    job = item.node.job
    delay_s = job.delay_s if job.delay_s is not None and job.delay_s > 0 else None
    return Waiting(item.node.on, len(item.parents), Marks.NOTHING, delay_s, job.options.expires_s)
