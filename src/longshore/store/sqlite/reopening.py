"""Retries of groups on SQLite: what opens again, what leaves its group, what is counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from longshore.core import effects
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState, Reopening, retry_plan
from longshore.model.group import SCOPE, Group, GroupState, RetryPlan
from longshore.model.job import JobState
from longshore.store.rows import unique_key_taken
from longshore.store.sqlite.group_reads import group
from longshore.store.sqlite.settling import COUNT_DOWN
from longshore.store.sqlite.sql import HOLDERS, Bulk, Held, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

_NODE_STATES: Final = """
    SELECT node.place, node.job, node.key, job.state, (
        SELECT json_group_array(edge.parent) FROM edge INDEXED BY edge_child
        WHERE edge.group_id = node.group_id AND edge.child = node.place),
    node.scope, job.kind <> ?2, node.place >= g.jobs
    FROM job_group AS g CROSS JOIN node ON node.group_id = g.number
    CROSS JOIN job ON job.number = node.job
    WHERE g.number = ?1 ORDER BY node.place"""
COUNT_SCOPES: Final = Bulk(
    """UPDATE node SET open = v.column3, scope_marks = v.column4,
        cause = CASE WHEN v.column4 THEN cause END
    FROM {rows} AS v WHERE node.group_id = v.column1 AND node.place = v.column2""",
    4,
)
_START_ANEW: Final = Bulk(
    """UPDATE node SET expanded = 0, taken_from = NULL FROM {rows} AS v
    WHERE node.job = v.column1 AND (node.expanded > 0 OR node.taken_from IS NOT NULL)""",
    1,
)
_LEAVE: Final = Bulk(
    "UPDATE job SET group_id = NULL FROM {rows} AS v WHERE job.number = v.column1", 1
)
_DROP_NODES: Final = Bulk("DELETE FROM node WHERE job IN (SELECT column1 FROM {rows})", 1)
_DROP_PARENTS: Final = Bulk(
    "DELETE FROM edge WHERE (group_id, parent) IN (SELECT column1, column2 FROM {rows})", 2
)
_DROP_CHILDREN: Final = Bulk(
    """DELETE FROM edge INDEXED BY edge_child
    WHERE (group_id, child) IN (SELECT column1, column2 FROM {rows})""",
    2,
)
_places = msgspec.json.Decoder(list[int])
_words = msgspec.json.Decoder(tuple[str, ...])


class NodeRows(NamedTuple):
    """The nodes of a group by their order, as the core counts them.

    What left the group left gaps among the places, and the core knows none. So it gets indices.
    """

    places: list[int]
    jobs: list[int]
    states: list[NodeState]


def node_rows(tx: Snapshot, group: int) -> NodeRows:
    """Every node of a group, and where its job is."""
    rows = tx.connection.execute(_NODE_STATES, (group, SCOPE)).fetchall()
    places = [row[0] for row in rows]
    index = {place: at for at, place in enumerate(places)}
    states = []
    for _, _, key, state, after, scope, adds, is_added in rows:
        # Of a group that is not whole, places may be named that are not there yet.
        parents = [index[place] for place in _places.decode(after) if place in index]
        own = (key, JobState(state), parents, index.get(scope))
        states.append(NodeState(*own, bool(adds), bool(is_added)))
    return NodeRows(places, [row[1] for row in rows], states)


def retry_group(
    tx: Transaction,
    ref: UUID | int,
    by: str = "",
    request: UUID | None = None,
    *,
    keys: Sequence[str] = (),
    args: bytes | None = None,
    dry_run: bool = False,
) -> RetryPlan | None:
    """Opens a new round of what did not succeed, or of some jobs and all below them."""
    found = group(tx, ref)
    if found is None:
        return None
    if (answered := _answered(tx, found, request)) is not None:
        return answered
    nodes = node_rows(tx, found.number)
    plan, changes = retry_plan(found.id, found.state, nodes.states, keys)
    if plan.refused or dry_run:
        return plan
    held = [row for row in tx.held(nodes.jobs) if row is not None]
    taken = _key_held(tx, [held[at] for at in changes.reopened])
    if taken is not None:
        return RetryPlan(found.id, refused=unique_key_taken(taken))
    if args is not None:
        _give(tx, nodes, keys, args)
    _reopen(tx, found, _Opening(nodes, held, changes), by, request)
    if request is not None:
        words = (msgspec.json.encode(some).decode() for some in (plan.reopened, plan.retired))
        tx.execute(
            "INSERT INTO group_retry (request, group_id, reopened, retired) VALUES (?, ?, ?, ?)",
            (request.bytes, found.number, *words),
        )
    return plan


def _answered(tx: Transaction, group: Group, request: UUID | None) -> RetryPlan | None:
    """The answer that a request got before."""
    if request is None:
        return None
    query = "SELECT reopened, retired FROM group_retry WHERE request = ?"
    row = tx.execute(query, (request.bytes,)).fetchone()
    if row is None:
        return None
    return RetryPlan(group.id, _words.decode(row[0]), retired=_words.decode(row[1]))


def _key_held(tx: Transaction, rows: Sequence[Held]) -> str | None:
    """A unique key of these jobs that a live job has; None if there is none."""
    numbers = msgspec.json.encode([row.number for row in rows]).decode()
    keys = tx.execute(
        """SELECT number, kind, unique_key FROM job
        WHERE number IN (SELECT value FROM json_each(?)) AND unique_key IS NOT NULL""",
        (numbers,),
    ).fetchall()
    for place, *_ in HOLDERS.find(tx.connection, _numbered(keys)):
        key: str = keys[place][2]
        return key
    return None


def _numbered(keys: Sequence[tuple[int, str, str]]) -> list[Row]:
    """The parameters of `HOLDERS` for these kinds and unique keys."""
    return [(place, kind, key) for place, (_, kind, key) in enumerate(keys)]


def _give(tx: Transaction, nodes: NodeRows, keys: Sequence[str], args: bytes) -> None:
    """Gives the one job that is named other arguments."""
    for job, node in zip(nodes.jobs, nodes.states, strict=True):
        if [node.key] == list(keys):
            tx.execute("UPDATE job SET args = ? WHERE number = ?", (args, job))


class _Opening(NamedTuple):
    """The nodes of a group, their jobs, and what a retry changes of them."""

    nodes: NodeRows
    held: Sequence[Held]
    changes: Reopening

    def rows(self, indices: Iterable[int]) -> list[Held]:
        return [self.held[at] for at in indices]

    def places(self, group: int, indices: Iterable[int]) -> list[Row]:
        return [(group, self.nodes.places[at]) for at in indices]


def _reopen(
    tx: Transaction, group: Group, opening: _Opening, by: str, request: UUID | None
) -> None:
    changes = opening.changes
    gone = opening.rows(changes.retired)
    reopened = opening.rows(changes.reopened)
    ended = Counter(row.state for row in (*gone, *reopened) if row.state in TERMINAL)
    tx.execute(
        "DELETE FROM unsettled WHERE job IN (SELECT job FROM node WHERE group_id = ?)",
        (group.number,),
    )
    for row in reopened:
        tx.apply(row, effects.of_group_retry(row.round, by, request)[row.state], by=by)
    for row in opening.rows(changes.held):
        tx.apply(row, effects.HOLD[row.state])
    _retire(tx, gone, by, opening.places(group.number, changes.retired))
    tx.flush()
    _START_ANEW.run(tx.connection, [(row.number,) for row in reopened])
    for bulk, counters in ((COUNT_DOWN, changes.counters), (COUNT_SCOPES, changes.scopes)):
        places = opening.places(group.number, counters)
        values = ((left, int(marks)) for left, marks in counters.values())
        bulk.run(tx.connection, [(*at, *two) for at, two in zip(places, values, strict=True)])
    state = GroupState.PAUSED if group.state is GroupState.PAUSED else GroupState.RUNNING
    failed = ended[JobState.FAILED] + ended[JobState.DEPENDENCY_FAILED]
    tx.execute(
        """UPDATE job_group SET state = ?, round = round + (ended_at IS NOT NULL),
            ended_at = NULL, cancelled_by = '', sweep_from = 0,
            staged = staged - ?, edges = NULL, ended = ended - ?, failed = failed - ?,
            cancelled = cancelled - ? WHERE number = ?""",
        (state, len(gone), ended.total(), failed, ended[JobState.CANCELLED], group.number),
    )


def _retire(tx: Transaction, rows: Sequence[Held], by: str, places: Sequence[Row]) -> None:
    """Takes jobs out of their group; those that have not ended are cancelled."""
    for row in rows:
        # Their ends concern the group no more.
        row.group = None
        if row.state not in TERMINAL:
            tx.apply(row, effects.CANCEL[row.state], by=by)
    numbers: list[Row] = [(row.number,) for row in rows]
    for bulk in (_LEAVE, _DROP_NODES):
        bulk.run(tx.connection, numbers)
    for bulk in (_DROP_PARENTS, _DROP_CHILDREN):
        bulk.run(tx.connection, places)
