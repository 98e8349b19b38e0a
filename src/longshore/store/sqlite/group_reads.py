"""How groups are shown on SQLite: as a whole, by their nodes, and what a job of one waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import structs

from longshore.core.why import Facts
from longshore.model.group import (
    MOST_SHOWN,
    Condition,
    Group,
    GroupFilter,
    GroupState,
    Near,
    NodeFacts,
    NodeView,
)
from longshore.model.job import Job, JobState
from longshore.store.group_limits import unpack_limit
from longshore.store.rows import LARGEST_INT, NOT_RUN_LIST, clean, moment, unpack_watchers
from longshore.store.sqlite import reads
from longshore.store.sqlite.sql import Lookup
from longshore.store.sqlite.states import LIVE_LIST
from longshore.store.sqlite.transaction import Snapshot

_words = msgspec.json.Decoder(tuple[str, ...])
_SHOWN: Final = """SELECT number, id, state, max(jobs, staged), fail_fast, created_at, ended_at,
    name, labels, cancelled_by, run_of, round, watchers, own_limit FROM job_group"""
_NODE_VIEW: Final = """
    SELECT node.key, job.id, job.number, job.kind, job.state, node.condition, node.unmet, (
        SELECT json_group_array(other.key) FROM (
            SELECT other.key FROM edge INDEXED BY edge_child
            CROSS JOIN node AS other
            ON other.group_id = edge.group_id AND other.place = edge.parent
            WHERE edge.group_id = node.group_id AND edge.child = node.place
            ORDER BY edge.parent) AS other), (
        SELECT around.key FROM node AS around
        WHERE around.group_id = node.group_id AND around.place = node.scope), node.open,
    node.taken_from"""
_NODES: Final = f"""{_NODE_VIEW}
    FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? AND node.place > ? ORDER BY node.place LIMIT ?"""
_NODES_NEAR: Final = f"""{_NODE_VIEW}
    FROM (SELECT DISTINCT place FROM ({{near}}) ORDER BY place LIMIT ?3) AS near
    CROSS JOIN node ON node.group_id = ?1 AND node.place = near.place
    CROSS JOIN job ON job.number = node.job
    ORDER BY node.place"""
_PLACES: Final = Lookup(
    """SELECT json_group_array(node.place)
    FROM {rows} AS v CROSS JOIN job ON job.id = v.column1
    CROSS JOIN node ON node.job = job.number AND node.group_id = v.column2""",
    2,
    int,
)
_NEAR: Final = {
    Near.THESE: "SELECT value AS place FROM json_each(?2)",
    Near.AFTER: """SELECT edge.parent AS place FROM json_each(?2) AS own
        CROSS JOIN edge INDEXED BY edge_child
        ON edge.group_id = ?1 AND edge.child = own.value""",
    Near.DEPENDENTS: """SELECT edge.child AS place FROM json_each(?2) AS own
        CROSS JOIN edge ON edge.group_id = ?1 AND edge.parent = own.value""",
}
_NODE_FACTS: Final = """
    SELECT key, condition, unmet, (
        SELECT count(*) FROM edge INDEXED BY edge_child
        WHERE edge.group_id = node.group_id AND edge.child = node.place), taken_from
    FROM node WHERE job = ?"""
_WAITS_FOR: Final = f"""
    SELECT other.key, job.state FROM node CROSS JOIN edge INDEXED BY edge_child
    ON edge.group_id = node.group_id AND edge.child = node.place
    CROSS JOIN node AS other ON other.group_id = edge.group_id AND other.place = edge.parent
    CROSS JOIN job ON job.number = other.job
    WHERE node.job = ? AND (other.open > 0 OR job.state IN {LIVE_LIST})
    ORDER BY other.place LIMIT ?"""


def group(tx: Snapshot, ref: UUID | int) -> Group | None:
    """One group, by its id or number."""
    row = _found(tx, _SHOWN, ref)
    if row is None:
        return None
    counts = tx.connection.execute(
        f"""SELECT job.state, count(*), count(node.taken_from),
            sum(node.open > 0 AND job.state = 'succeeded' AND job.kind IN ({NOT_RUN_LIST}))
        FROM node CROSS JOIN job ON job.number = node.job
        WHERE node.group_id = ? GROUP BY job.state""",
        (row[0],),
    ).fetchall()
    of_states = {state: count for state, count, *_ in counts}
    shown = _shown(row, of_states, sum(open for *_, open in counts))
    return structs.replace(shown, taken_over=sum(taken for _, _, taken, _ in counts))


def is_sweeping(tx: Snapshot, ref: UUID | int) -> bool:
    """Whether jobs of a group may not be yet where its state wants them."""
    row = _found(tx, "SELECT sweep_from IS NOT NULL FROM job_group", ref)
    return row is not None and bool(row[0])


def _found(tx: Snapshot, select: str, ref: UUID | int) -> tuple[Any, ...] | None:
    """The row of a group that is not removed, by its id or number; None if there is none."""
    if isinstance(ref, int) and not 0 < ref <= LARGEST_INT:
        return None
    column, key = ("id", ref.bytes) if isinstance(ref, UUID) else ("number", ref)
    row: tuple[Any, ...] | None = tx.execute(
        f"{select} WHERE is_gone = 0 AND {column} = ?", (key,)
    ).fetchone()
    return row


def groups(tx: Snapshot, wanted: GroupFilter) -> list[Group]:
    """Groups, newest first, without counts."""
    also, values = "", list[Any]()
    if wanted.states:
        also += f" AND state IN ({', '.join('?' * len(wanted.states))})"
        values += wanted.states
    if wanted.name is not None:
        also += " AND name = ?"
        values.append(clean(wanted.name))
    before = LARGEST_INT if wanted.before is None else max(0, min(wanted.before, LARGEST_INT))
    query = f"{_SHOWN} WHERE is_gone = 0 AND number < ?{also} ORDER BY number DESC LIMIT ?"
    rows = tx.connection.execute(query, (before, *values, wanted.limit)).fetchall()
    return [_shown(row, {}) for row in rows]


def _shown(row: tuple[Any, ...], counts: dict[str, int], open: int = 0) -> Group:
    number, id, state, jobs, fail_fast, created_at, ended_at, name, labels, by, *more = row
    run_of, round, watchers, limit = more
    return Group(
        id=UUID(bytes=id),
        number=number,
        name=name,
        state=GroupState(state),
        jobs=jobs,
        fail_fast=bool(fail_fast),
        labels=_words.decode(labels),
        created_at=moment(created_at),
        ended_at=None if ended_at is None else moment(ended_at),
        cancelled_by=by,
        counts=counts,
        open=open,
        run_of=run_of,
        round=round,
        watchers=unpack_watchers(watchers),
        limit=unpack_limit(limit),
    )


def explain(tx: Snapshot, job: Job) -> Facts:
    """What keeps a job where it is; of a job of a group, also what it waits for."""
    facts = reads.explain(tx, job)
    found = group(tx, job.group) if job.group is not None else None
    if found is None:
        return facts
    key, on, unmet, after, taken_from = tx.execute(_NODE_FACTS, (job.number,)).fetchone()
    others = tx.connection.execute(_WAITS_FOR, (job.number, MOST_SHOWN)).fetchall()
    node = NodeFacts(
        key=key,
        group=structs.replace(found, counts={}),
        on=Condition(on),
        after=after,
        unmet=unmet,
        waits_for=tuple((other, JobState(state)) for other, state in others),
        taken_from=taken_from,
    )
    return structs.replace(facts, node=node)


def nodes(tx: Snapshot, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
    """The nodes of a group in its order, after the one with this index."""
    query = "SELECT number, staged FROM job_group WHERE id = ? AND is_gone = 0"
    found = tx.execute(query, (group.bytes,)).fetchone()
    if found is None:
        return []
    number, staged = found
    place = _place_of(tx, number, staged, after)
    rows = tx.connection.execute(_NODES, (number, place, most)).fetchall()
    return [_node_view(row) for row in rows]


def nodes_near(
    tx: Snapshot, group: UUID, jobs: Sequence[UUID], near: Near, most: int = 1000
) -> list[NodeView]:
    """The first nodes of a group that are near these jobs of it."""
    found = _found(tx, "SELECT number FROM job_group", group)
    if found is None:
        return []
    places = _PLACES.find(tx.connection, [(job.bytes, found[0]) for job in jobs])
    query = _NODES_NEAR.format(near=_NEAR[near])
    own = msgspec.json.encode(places).decode()
    rows = tx.connection.execute(query, (found[0], own, most)).fetchall()
    return [_node_view(row) for row in rows]


def _place_of(tx: Snapshot, group: int, staged: int, index: int) -> int:
    """The place of a group's node with this index. It is higher, if nodes before it are gone."""
    [last] = tx.execute("SELECT max(place) FROM node WHERE group_id = ?", (group,)).fetchone()
    if last is None or last + 1 == staged or index < 0:
        return index
    query = "SELECT place FROM node WHERE group_id = ? ORDER BY place LIMIT 1 OFFSET ?"
    found = tx.execute(query, (group, index)).fetchone()
    return last if found is None else int(found[0])


def _node_view(row: tuple[Any, ...]) -> NodeView:
    key, id, number, kind, state, on, unmet, others, scope, left, taken_from = row
    return NodeView(
        key=key,
        job=UUID(bytes=id),
        number=number,
        kind=kind,
        state=JobState(state),
        after=_words.decode(others),
        on=Condition(on),
        unmet=unmet,
        scope=scope,
        open=left,
        taken_from=taken_from,
    )
