"""The groups of the SQLite store: submitted, settled, swept and closed, each in a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

import msgspec

from longshore.core import effects
from longshore.core.dependencies import group_end, may_wake
from longshore.core.effects import Effect
from longshore.core.same_body import is_node
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.group import (
    MOST_AT_ONCE,
    SCOPE,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
)
from longshore.model.job import Ended, JobState, Refused
from longshore.ports import Settled
from longshore.store.group_limits import limited, pack_limit
from longshore.store.rows import (
    NodeItem,
    clean,
    group_conflict,
    key_taken,
    node_items,
    pack_watchers,
    wrong_scopes,
)
from longshore.store.sqlite.group_reads import group
from longshore.store.sqlite.growth import IS_TO_EXPAND, expand, to_expand, wake_waiting
from longshore.store.sqlite.nodes import add_nodes, first_taken, staging_holder
from longshore.store.sqlite.pauses import note_pause
from longshore.store.sqlite.settling import NODES_FROM, Settling, WaitingNode
from longshore.store.sqlite.sql import Bulk
from longshore.store.sqlite.transaction import Snapshot, Transaction

_MOST_CLOSED: Final = 100

_SET_STATE: Final = """UPDATE job_group SET state = ?1,
    sweep_from = CASE WHEN state = ?1 THEN coalesce(sweep_from, 0) ELSE 0 END"""
"""Changes the state of a group. A repeat leaves a sweep that is under way where it is."""

_waiting = msgspec.json.Decoder(list[WaitingNode])
_LIVE_GROUPS: Final = "('running', 'paused', 'cancelling')"
_MEMBERS: Final = """SELECT scope, min(key) FROM node INDEXED BY node_scope
    WHERE group_id = ? AND scope IS NOT NULL GROUP BY scope"""
_SUBGROUPS: Final = """
    SELECT node.place, node.scope FROM json_each(?2) AS named
    CROSS JOIN node ON node.group_id = ?1 AND node.place = named.value
    CROSS JOIN job ON job.number = node.job WHERE job.kind = ?3"""
_INSIDE: Final = """SELECT ?1, scope, count(*) FROM node INDEXED BY node_scope
    WHERE group_id = ?1 AND scope IS NOT NULL GROUP BY scope"""
_NOTE_WATCHED: Final = Bulk(
    """INSERT INTO notice (subject, is_group, round, state, options)
    SELECT g.id, 1, g.round, g.state, g.watchers
    FROM {rows} AS v CROSS JOIN job_group AS g ON g.number = v.column1
    WHERE g.watchers IS NOT NULL""",
    1,
)
_OPEN: Final = Bulk(
    """UPDATE node SET open = v.column3
    FROM {rows} AS v WHERE node.group_id = v.column1 AND node.place = v.column2""",
    3,
)


# submitting


def submit_group(
    tx: Transaction, part: GroupPart, settling: Settling | None = None
) -> GroupSubmitted | Refused:
    """Stores some nodes of a group. With the last of them it runs, all or nothing.

    What becomes ready by it, `settling` is told.
    """
    items = node_items(part)
    if isinstance(items, Refused):
        return items
    head = part.head
    found = tx.execute(
        """SELECT number, state, staged, jobs, name, fail_fast, labels, watchers, own_limit, run_of
        FROM job_group WHERE id = ?""",
        (head.id.bytes,),
    ).fetchone()
    number, state, staged = found[:3] if found else (0, GroupState.STAGING, 0)
    if found and found[3:] != (*_fields(head), None):
        return group_conflict(head.id)
    if state != GroupState.STAGING:
        return GroupSubmitted(head.id, number, GroupState(state), staged)
    new = _unknown(tx, number, part, items)
    if isinstance(new, Refused):
        return new
    if (taken := first_taken(tx, new)) is not None:
        return key_taken(head.id, taken.key, taken.job, staging_holder(tx, taken.job))
    staged += len(new)
    if staged == head.jobs and (wrong := _wrong_scopes(tx, number, head.id, new)) is not None:
        return wrong
    number = number or _add_group(tx, head)
    add_nodes(tx, number, limited(new, head.id, head.limit))
    state = _begin(tx, number, head, staged, settling or Settling(tx))
    return GroupSubmitted(head.id, number, state, staged)


def _fields(head: GroupHead) -> tuple[int, str, int, str, bytes | None, bytes | None]:
    labels = msgspec.json.encode(head.labels).decode()
    packed = pack_watchers(head.watchers), pack_limit(head.limit)
    return head.jobs, head.name, int(head.fail_fast), labels, *packed


def _unknown(
    tx: Transaction, group: int, part: GroupPart, items: Sequence[NodeItem]
) -> Sequence[NodeItem] | Refused:
    """The nodes of a part that are not stored yet; a refusal if those that are differ."""
    query = "SELECT place, body_hash FROM node WHERE group_id = ? AND place >= ? AND place < ?"
    last = part.first + len(part.nodes)
    stored = dict(tx.connection.execute(query, (group, part.first, last)).fetchall())
    there = (item for item in items if item.place in stored)
    if not all(is_node(item.node, item.body, stored[item.place]) for item in there):
        return group_conflict(part.head.id)
    return [item for item in items if item.place not in stored]


def _wrong_scopes(
    tx: Transaction, number: int, group: UUID, items: Sequence[NodeItem]
) -> Refused | None:
    """The refusal of a group that would be whole with these nodes, because of a scope."""
    members: dict[int, str] = dict(tx.connection.execute(_MEMBERS, (number,)).fetchall())
    for item in items:
        if item.node.scope is not None:
            members.setdefault(item.node.scope, item.node.key)
    if not members:
        return None
    named = msgspec.json.encode(list(members)).decode()
    subgroups = dict(tx.connection.execute(_SUBGROUPS, (number, named, SCOPE)).fetchall())
    subgroups |= {item.place: item.node.scope for item in items if item.node.job.kind == SCOPE}
    return wrong_scopes(group, members, subgroups)


def _add_group(tx: Transaction, head: GroupHead) -> int:
    number = tx.next_number()
    tx.execute(
        """INSERT INTO job_group (number, id, state, created_at, jobs, name, fail_fast, labels,
            watchers, own_limit) VALUES (?, ?, 'staging', ?, ?, ?, ?, ?, ?, ?)""",
        (number, head.id.bytes, tx.now, *_fields(head)),
    )
    return number


def _begin(
    tx: Transaction, group: int, head: GroupHead, staged: int, settling: Settling
) -> GroupState:
    """Lets the group run once it is whole, and makes the jobs ready that depend on nothing."""
    state, ended_at = GroupState.STAGING, None
    if staged == head.jobs:
        state = GroupState.RUNNING if head.jobs else GroupState.SUCCEEDED
        ended_at = None if head.jobs else tx.now
    tx.execute(
        "UPDATE job_group SET staged = ?, staged_at = ?, state = ?, ended_at = ? WHERE number = ?",
        (staged, tx.now, state, ended_at, group),
    )
    if state is GroupState.RUNNING:
        _OPEN.run(tx.connection, tx.connection.execute(_INSIDE, (group,)).fetchall())
        nodes = _nodes_from(tx, group, 0, MOST_AT_ONCE)
        wake_waiting(tx, settling, nodes)
        if len(nodes) == MOST_AT_ONCE:
            _sweep_on(tx, group, nodes[-1].place + 1)
    elif state is GroupState.SUCCEEDED:
        _note_watched(tx, [group])
    return state


def _note_watched(tx: Transaction, groups: Sequence[int]) -> None:
    """The watchers of these groups, which have ended, are to hear of it."""
    noted = _NOTE_WATCHED.run(tx.connection, [(number,) for number in groups])
    tx.has_noted_groups |= noted > 0


def _nodes_from(
    tx: Transaction, group: int, place: int, most: int, *, every: bool = False
) -> list[WaitingNode]:
    """Nodes from a place on; unless it is `every` one, those that a wake may concern."""
    row = tx.execute(NODES_FROM, (group, place, most, tx.now, every)).fetchone()
    return sorted(_waiting.decode(row[0]), key=lambda node: node.place)


# upkeep


def has_work(tx: Snapshot, groups: Collection[UUID]) -> bool:
    """Whether `settle` may have anything to do."""
    if groups:
        return True
    query = f"""SELECT EXISTS (SELECT 1 FROM unsettled)
        OR EXISTS (SELECT 1 FROM job_group WHERE sweep_from IS NOT NULL)
        OR EXISTS (SELECT 1 FROM job_group INDEXED BY job_group_live
            WHERE ended_at IS NULL AND state IN {_LIVE_GROUPS}
                AND (ended >= staged OR (fail_fast AND failed > 0)))
        OR {IS_TO_EXPAND}"""
    return bool(tx.execute(query).fetchone()[0])


def settle(
    tx: Transaction,
    groups: Collection[UUID] = (),
    most: int = 1000,
    max_group_jobs: int = MAX_GROUP_JOBS,
) -> Settled:
    """Does some of what groups have to do, of at most so many jobs."""
    settling = Settling(tx)
    left = most
    while left > 0:
        # A scope that ended by the last delivery may close by this one: it must be noted once.
        tx.note_group_ends()
        done = _deliver(tx, settling, left) or expand(tx, settling, left, max_group_jobs)
        if not done:
            break
        left -= done
    _sweep(tx, settling, most)
    if left > 0:
        expand(tx, settling, left, max_group_jobs)
    tx.note_group_ends()
    closed, again = _close(tx)
    noted = tx.execute(
        """SELECT DISTINCT g.id FROM unsettled CROSS JOIN job ON job.number = unsettled.job
        CROSS JOIN job_group AS g ON g.number = job.group_id"""
    )
    again |= {UUID(bytes=id) for (id,) in noted} | to_expand(tx)
    ended = (*settling.ended, *closed)
    moved = settling.ready, settling.delayed, ended
    return Settled(*moved, frozenset(again), tx.has_watched_ends, len(closed))


def _deliver(tx: Transaction, settling: Settling, most: int) -> int:
    """Delivers some of the ends that were noted; answers how many."""
    query = "SELECT job, after_child, is_early FROM unsettled ORDER BY job LIMIT ?"
    noted = tx.connection.execute(query, (most,)).fetchall()
    tx.connection.executemany("DELETE FROM unsettled WHERE job = ?", [row[:1] for row in noted])
    if noted:
        settling.deliver(noted)
    return len(noted)


def _sweep(tx: Transaction, settling: Settling, most: int) -> None:
    """Brings some jobs of one group to where the group's state wants them."""
    found = tx.execute(
        """SELECT number, state, sweep_from, cancelled_by FROM job_group
        WHERE sweep_from IS NOT NULL ORDER BY number LIMIT 1"""
    ).fetchone()
    if found is None:
        return
    group, state, place, by = found
    nodes = _nodes_from(tx, group, place, most, every=not may_wake(GroupState(state)))
    match state:
        case GroupState.CANCELLING:
            _change(tx, settling, nodes, effects.CANCEL, by)
        case GroupState.PAUSED:
            _change(tx, settling, nodes, effects.HOLD)
        case _:
            wake_waiting(tx, settling, nodes)
    _sweep_on(tx, group, nodes[-1].place + 1 if len(nodes) == most else None)


def _sweep_on(tx: Transaction, group: int, place: int | None) -> None:
    """A sweep goes on from this place, or is over."""
    tx.execute("UPDATE job_group SET sweep_from = ? WHERE number = ?", (place, group))


def _change(
    tx: Transaction,
    settling: Settling,
    nodes: Sequence[WaitingNode],
    effect: Effect,
    by: str = "",
) -> None:
    wanted = [node.job for node in nodes if node.state in effect]
    for row in tx.held(wanted):
        if row is None:
            continue
        change = effect[row.state]
        tx.apply(row, change, by=by)
        if change.ends:
            settling.ended.append(effects.outcome(row.uuid, change))
    tx.flush()


def _close(tx: Transaction) -> tuple[list[Ended], set[UUID]]:
    """Ends groups without a live job; answers also the groups that have more to do."""
    rows = tx.connection.execute(
        f"""SELECT number, id, failed, cancelled, cancelled_by, ended >= staged
        FROM job_group INDEXED BY job_group_live
        WHERE ended_at IS NULL AND state IN {_LIVE_GROUPS}
            AND (ended >= staged OR (fail_fast AND failed > 0 AND state = 'running'))
        LIMIT ?""",
        (_MOST_CLOSED,),
    ).fetchall()
    closed = []
    for number, id, failed, cancelled, by, over in rows:
        if over:
            state = group_end(failed, cancelled, by_user=bool(by))
            closed.append(Ended(UUID(bytes=id), JobState(state.value)))
            tx.execute(
                "UPDATE job_group SET state = ?, ended_at = ?, sweep_from = NULL WHERE number = ?",
                (state, tx.now, number),
            )
        else:
            tx.execute(
                "UPDATE job_group SET state = 'cancelling', sweep_from = 0 WHERE number = ?",
                (number,),
            )
    _note_watched(tx, [number for number, *_, over in rows if over])
    swept = tx.execute("SELECT id FROM job_group WHERE sweep_from IS NOT NULL")
    return closed, {UUID(bytes=id) for (id,) in swept}


def cancel_group(tx: Transaction, ref: UUID | int, by: str = "") -> GroupVerdict:
    """Marks a group as cancelling; `settle` ends its jobs."""
    found = group(tx, ref)
    if found is None:
        return GroupVerdict.NOT_FOUND
    changed = tx.execute(
        f"{_SET_STATE}, cancelled_by = ?3 WHERE number = ?2 AND ended_at IS NULL",
        (GroupState.CANCELLING, found.number, clean(by) or "a client"),
    )
    note_pause(tx, str(found.number), paused=False, is_group=True)
    verdicts = GroupVerdict
    return verdicts.CANCELLING if changed.rowcount else verdicts.ALREADY_ENDED


def pause_group(tx: Transaction, ref: UUID | int, paused: bool) -> GroupVerdict:
    """Holds a group's jobs that have not begun, or lets them go on."""
    found = group(tx, ref)
    if found is None:
        return GroupVerdict.NOT_FOUND
    if found.ended_at is not None:
        return GroupVerdict.ALREADY_ENDED
    if found.state not in (GroupState.RUNNING, GroupState.PAUSED):
        return GroupVerdict.NOT_RUNNING
    state = GroupState.PAUSED if paused else GroupState.RUNNING
    tx.execute(f"{_SET_STATE} WHERE number = ?2", (state, found.number))
    note_pause(tx, str(found.number), paused, is_group=True)
    return GroupVerdict(state.value)
