"""How nodes come into groups on SQLite: what is in their way, and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from longshore.core.fairness import NEW
from longshore.core.lanes import lane_of
from longshore.core.limited_starts import held_keys_text
from longshore.model.group import Node
from longshore.model.job import JobState, Submission
from longshore.store.rows import NodeItem, due_at, history_entry, pack_options
from longshore.store.sqlite.sql import HOLDERS, KNOWN, Bulk, Row
from longshore.store.sqlite.transaction import Transaction

_ADD_JOBS: Final = Bulk(
    """INSERT INTO job (number, rank, id, body_hash, args, history, lane, state, priority,
        created_at, run_at, timeout_s, kind, queue, target, unique_key, options, group_id,
        concurrency_key, fair, blocked_on)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    21,
)
_ADD_NODES: Final = Bulk(
    """INSERT INTO node (group_id, place, job, body_hash, unmet, condition, delay_s, expires_s,
        key, scope)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    10,
)
_ADD_EDGES: Final = Bulk(
    "INSERT INTO edge (group_id, parent, child) SELECT * FROM {rows} WHERE column1 IS NOT NULL", 3
)


def first_taken(tx: Transaction, items: Sequence[NodeItem]) -> Node | None:
    """The first of these new nodes whose job's id or unique key is taken; None if none is."""
    ids: list[Row] = [(place, item.node.job.id.bytes) for place, item in enumerate(items)]
    taken = {place for place, *_ in KNOWN.find(tx.connection, ids)}
    keys = {
        place: (item.node.job.kind, item.node.job.unique_key)
        for place, item in enumerate(items)
        if item.node.job.unique_key is not None
    }
    wanted: list[Row] = [(place, *key) for place, key in keys.items()]
    taken |= {place for place, *_ in HOLDERS.find(tx.connection, wanted)}
    first: dict[tuple[str, str | None], int] = {}
    taken |= {place for place, key in keys.items() if first.setdefault(key, place) != place}
    return items[min(taken)].node if taken else None


def staging_holder(tx: Transaction, job: Submission) -> UUID | None:
    """The group whose job holds this one's unique key, if that group is not whole yet."""
    if job.unique_key is None:
        return None
    found = HOLDERS.find(tx.connection, [(0, job.kind, job.unique_key)])
    return next((UUID(hex=staging) for *_, staging in found if staging is not None), None)


def add_nodes(tx: Transaction, group: int, items: Sequence[NodeItem]) -> list[int]:
    """Stores nodes, whose jobs wait; answers the numbers of these jobs."""
    jobs: list[Row] = []
    nodes: list[Row] = []
    numbers: list[int] = []
    entry = f"[{history_entry(JobState.WAITING, tx.now)}]"
    for item in items:
        job, number = item.node.job, tx.next_number()
        numbers.append(number)
        lane = lane_of(job.queue, job.kind, job.target)
        run_at = None if job.delay_s is not None else due_at(job, tx.now)
        jobs.append(
            (
                number,
                number if item.rank is None else item.rank,
                job.id.bytes,
                item.job_body,
                job.args,
                entry,
                lane.hash,
                JobState.WAITING,
                job.priority,
                tx.now,
                run_at,
                job.options.timeout_s,
                job.kind,
                job.queue,
                job.target,
                job.unique_key,
                pack_options(job.options),
                group,
                held_keys_text(job.options),
                job.options.fair or None,
                NEW if job.options.fair else None,
            )
        )
        own = (group, item.place, number, item.body, len(item.parents), item.node.on)
        start = (job.delay_s, job.options.expires_s)
        nodes.append((*own, *start, item.node.key, item.node.scope))
        if job.options.fair:
            tx.remembered.has_fair = True
        tx.add_lane(lane)
        tx.count(lane.hash, None, JobState.WAITING)
    _ADD_JOBS.run(tx.connection, jobs)
    _ADD_NODES.run(tx.connection, nodes)
    edges: list[Row] = [(group, parent, item.place) for item in items for parent in item.parents]
    _ADD_EDGES.run(tx.connection, edges)
    return numbers
