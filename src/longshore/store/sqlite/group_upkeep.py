"""What time brings to groups on SQLite: old ones are removed, abandoned ones cancelled.

A group is removed whole, in steps. The first marks its row as gone: from then on nobody sees the
group. Each further step removes some of its jobs; the last one removes the row. If a process dies
in between, the next step of any process goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from msgspec import structs

from longshore.core.dependencies import Marks, Waiting
from longshore.core.examining import (
    EXAMINED,
    EndCounts,
    Examined,
    GroupRecord,
    NodeRecord,
    examined,
)
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState
from longshore.core.retention import group_bounds
from longshore.model.finding import Finding
from longshore.model.group import ENDED_GROUPS, Condition, GroupProgress, GroupState
from longshore.model.retention import GroupsPruned, Retention
from longshore.store.rows import ABANDONED, LARGEST_INT
from longshore.store.sqlite.prune import DROP_INPUTS, DROP_JOBS, drop_logs
from longshore.store.sqlite.reopening import COUNT_SCOPES, node_rows
from longshore.store.sqlite.settling import COUNT_DOWN, UNSETTLED
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

MOST_MARKED: Final = 100
"""How many groups one step marks as gone."""
MOST_EDGES: Final = 10_000
"""How many edges one step removes: a job may have very many dependents."""

_GONE: Final = """SELECT number FROM job_group INDEXED BY job_group_gone
    WHERE is_gone = 1 AND number > ? ORDER BY number LIMIT 1"""
_PAST: Final = """FROM job_group INDEXED BY job_group_ended
    WHERE state = ? AND ended_at IS NOT NULL AND is_gone = 0 AND ended_at <= ?"""
_JOBS: Final = """
    SELECT node.place, job.number, job.lane, job.state
    FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? ORDER BY node.place LIMIT ?"""
_DROP_EDGES: Final = """
    DELETE FROM edge WHERE group_id = ?1 AND (parent, child) IN (
        SELECT parent, child FROM edge WHERE group_id = ?1 AND parent <= ?2 LIMIT ?3)"""
_DROP_UNSETTLED: Final = Bulk("DELETE FROM unsettled WHERE job IN (SELECT column1 FROM {rows})", 1)
_DROP_NODES: Final = Bulk("DELETE FROM node WHERE job IN (SELECT column1 FROM {rows})", 1)
_RECORD: Final = """SELECT number, state, sweep_from IS NOT NULL, ended, failed, cancelled
    FROM job_group WHERE id = ? AND is_gone = 0"""
_RECORDS: Final = """
    SELECT job.id, node.condition, node.unmet, node.marks, node.open, node.scope_marks,
        EXISTS (SELECT 1 FROM unsettled WHERE unsettled.job = node.job)
    FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? ORDER BY node.place"""
_LIVE: Final = """SELECT * FROM (
    SELECT number, id, state, ended FROM job_group INDEXED BY job_group_live
    WHERE ended_at IS NULL AND state = '{state}' AND number > ?1 ORDER BY number LIMIT ?2)"""
_PROGRESS: Final = " UNION ALL ".join(
    _LIVE.format(state=state) for state in GroupState if state not in ENDED_GROUPS
)
"""Each state has its own part of the index: so no statement sorts all that live."""
_ABANDONED: Final = """SELECT number, id FROM job_group INDEXED BY job_group_staging
    WHERE state = 'staging' AND staged_at <= ? ORDER BY staged_at LIMIT ?"""


def has_work(tx: Snapshot, kept: Retention) -> bool:
    """Whether there is anything to remove."""
    queries = [(_GONE, (0,)), *((f"SELECT number {_PAST}", one) for one in _bounds(tx, kept))]
    return any(tx.execute(query, values).fetchone() for query, values in queries)


def count(tx: Snapshot, kept: Retention) -> GroupsPruned:
    """How many groups and jobs there are to remove."""
    groups = jobs = 0
    for bound in _bounds(tx, kept):
        query = f"SELECT count(*), coalesce(sum(staged), 0) {_PAST}"
        number, staged = tx.execute(query, bound).fetchone()
        groups, jobs = groups + number, jobs + staged
    return GroupsPruned(groups, jobs, done=True)


def prune_groups(tx: Transaction, kept: Retention, most: int) -> GroupsPruned:
    """Does one step of the removal of ended groups past their bounds."""
    jobs, did_any = _remove_some(tx, most)
    if did_any:
        return GroupsPruned(0, jobs, done=False)
    marked = 0
    for bound in _bounds(tx, kept):
        which = f"SELECT number {_PAST} ORDER BY ended_at LIMIT ?"
        query = f"UPDATE job_group SET is_gone = 1 WHERE number IN ({which})"
        marked += tx.execute(query, (*bound, MOST_MARKED)).rowcount
    return GroupsPruned(marked, 0, done=not marked)


def _bounds(tx: Snapshot, kept: Retention) -> list[tuple[str, int]]:
    """The states that have a bound, and before when a group must have ended."""
    return [(state, _before(tx, seconds)) for state, seconds in group_bounds(kept).items()]


def _before(tx: Snapshot, seconds: float) -> int:
    return max(-LARGEST_INT, tx.now - round(min(seconds, 1e12) * 1e6))


def _remove_some(tx: Transaction, most: int) -> tuple[int, bool]:
    """Removes jobs of groups that are gone; answers how many, and whether it did anything."""
    jobs = edges = after = 0
    did_any = False
    while jobs < most and edges < MOST_EDGES:
        found = tx.execute(_GONE, (after,)).fetchone()
        if found is None:
            break
        [after] = found
        removed, cut, did = _remove(tx, after, most - jobs, MOST_EDGES - edges)
        jobs, edges, did_any = jobs + removed, edges + cut, did_any or did
    return jobs, did_any


def _remove(tx: Transaction, group: int, most: int, most_edges: int) -> tuple[int, int, bool]:
    """Removes some of a group; answers how many jobs and edges, and whether it did anything."""
    rows = tx.connection.execute(_JOBS, (group, most)).fetchall()
    last = rows[-1][0] if rows else -1
    edges = tx.execute(_DROP_EDGES, (group, last, most_edges)).rowcount
    if edges == most_edges:
        return 0, edges, True
    ended = [row for row in rows if row[3] in TERMINAL]
    _drop(tx, ended)
    over = len(ended) == len(rows) < most
    if over:
        tx.execute("DELETE FROM group_retry WHERE group_id = ?", (group,))
        tx.execute("DELETE FROM group_run WHERE group_id = ?", (group,))
        tx.execute("DELETE FROM job_group WHERE number = ?", (group,))
    return len(ended), edges, bool(edges or ended or over)


def _drop(tx: Transaction, rows: Sequence[tuple[int, int, int, str]]) -> None:
    """Removes jobs with all that belongs to them."""
    for _, _, lane, state in rows:
        tx.count(lane, state, None)
    numbers: list[Row] = [(number,) for _, number, _, _ in rows]
    drop_logs(tx, numbers)
    for bulk in (_DROP_UNSETTLED, _DROP_NODES, DROP_INPUTS, DROP_JOBS):
        bulk.run(tx.connection, numbers)


def abandoned(tx: Snapshot, older_than_s: float, most: int) -> list[tuple[int, bytes]]:
    """The numbers and ids of groups of which no part came for so long."""
    return tx.execute(_ABANDONED, (_before(tx, older_than_s), most)).fetchall()


def cancel_abandoned(tx: Transaction, older_than_s: float, most: int) -> list[UUID]:
    """Cancels groups of which no part came for so long; answers which."""
    found = abandoned(tx, older_than_s, most)
    query = "UPDATE job_group SET state = 'cancelling', sweep_from = 0, cancelled_by = ? "
    tx.connection.executemany(
        f"{query} WHERE number = ?", [(ABANDONED, number) for number, _ in found]
    )
    return [UUID(bytes=id) for _, id in found]


# examining


def group_progress(tx: Snapshot, after: int = 0, most: int = 1000) -> list[GroupProgress]:
    """How far groups are that have not ended: the next ones after a number."""
    rows = tx.connection.execute(_PROGRESS, (after, most)).fetchall()
    return [
        GroupProgress(UUID(bytes=id), number, GroupState(state), ended)
        for number, id, state, ended in sorted(rows)[:most]
    ]


def examine(tx: Snapshot, group: UUID) -> Examined:
    """What is wrong with a group."""
    found = tx.execute(_RECORD, (group.bytes,)).fetchone()
    if found is None or found[1] not in EXAMINED:
        return Examined([], {}, EndCounts(0, 0, 0), {}, [])
    number, state, is_swept, *counts = found
    rows = tx.connection.execute(_RECORDS, (number,)).fetchall()
    states = node_rows(tx, number).states
    nodes = [_record(row, node) for row, node in zip(rows, states, strict=True)]
    return examined(
        GroupRecord(group, GroupState(state), bool(is_swept), EndCounts(*counts), nodes)
    )


def _record(row: Sequence[Any], node: NodeState) -> NodeRecord:
    id, condition, unmet, marks, left, scope_marks, is_unsettled = row
    waiting = Waiting(Condition(condition), unmet, Marks(marks))
    of_scope = (left, Marks(scope_marks))
    return NodeRecord(UUID(bytes=id), node, waiting, bool(is_unsettled), *of_scope)


def repair(tx: Transaction, group: UUID) -> list[Finding]:
    """Counts a group anew, and has it swept."""
    found = examine(tx, group)
    if not found.findings:
        return []
    [number] = tx.execute("SELECT number FROM job_group WHERE id = ?", (group.bytes,)).fetchone()
    places, jobs, _ = node_rows(tx, number)
    for bulk, counters in ((COUNT_DOWN, found.counters), (COUNT_SCOPES, found.scopes)):
        rows: list[Row] = [
            (number, places[at], left, int(marks)) for at, (left, marks) in counters.items()
        ]
        bulk.run(tx.connection, rows)
    UNSETTLED.run(tx.connection, [(jobs[at], -1, 0) for at in found.closed])
    tx.execute(
        """UPDATE job_group SET sweep_from = 0, ended = ?, failed = ?, cancelled = ?
        WHERE number = ?""",
        (*found.counts, number),
    )
    return [structs.replace(one, repaired=True) for one in found.findings]
