"""The groups of the SQLite store: submitted, swept, closed and shown, each within a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import structs

from longshore.core import effects
from longshore.core.dependencies import becomes, group_end, may_wake
from longshore.core.effects import Effect
from longshore.core.lanes import lane_of
from longshore.core.reopening import NodeState, Reopening, retry_plan
from longshore.core.why import Facts
from longshore.model.group import (
    MOST_AT_ONCE,
    MOST_SHOWN,
    Condition,
    Group,
    GroupFilter,
    GroupHead,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    NodeFacts,
    NodeView,
    RetryPlan,
)
from longshore.model.job import Ended, Job, JobState, Refused
from longshore.ports import Settled
from longshore.store.rows import (
    LARGEST_INT,
    NodeItem,
    clean,
    due_at,
    group_conflict,
    history_entry,
    key_taken,
    moment,
    node_items,
    pack_options,
    unique_key_taken,
)
from longshore.store.sqlite import reads
from longshore.store.sqlite.settling import COUNT_DOWN, NODES_FROM, Settling, WaitingNode, Wake
from longshore.store.sqlite.sql import HOLDERS, KNOWN, Bulk, Held, Row
from longshore.store.sqlite.states import LIVE_LIST
from longshore.store.sqlite.transaction import Snapshot, Transaction

_MOST_CLOSED: Final = 100

_waiting = msgspec.json.Decoder(list[WaitingNode])
_words = msgspec.json.Decoder(tuple[str, ...])
_LIVE_GROUPS: Final = "('running', 'paused', 'cancelling')"

_ADD_JOBS: Final = Bulk(
    """INSERT INTO job (number, id, body_hash, args, history, lane, state, priority, created_at,
        run_at, timeout_s, kind, queue, target, unique_key, options, group_id)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    17,
)
_ADD_NODES: Final = Bulk(
    """INSERT INTO node (group_id, place, job, body_hash, unmet, condition, delay_s, expires_s,
        key)
    SELECT * FROM {rows} WHERE column1 IS NOT NULL""",
    9,
)
_ADD_EDGES: Final = Bulk(
    "INSERT INTO edge (group_id, parent, child) SELECT * FROM {rows} WHERE column1 IS NOT NULL", 3
)
_places = msgspec.json.Decoder(list[int])
_NODE_STATES: Final = """
    SELECT node.job, node.key, job.state, (
        SELECT json_group_array(edge.parent) FROM edge INDEXED BY edge_child
        WHERE edge.group_id = node.group_id AND edge.child = node.place)
    FROM node CROSS JOIN job ON job.number = node.job
    WHERE node.group_id = ? ORDER BY node.place"""
_SHOWN: Final = """SELECT number, id, state, jobs, fail_fast, created_at, ended_at, name, labels,
    cancelled_by FROM job_group"""
_NODES: Final = """
    SELECT node.key, job.id, job.number, job.kind, job.state, node.condition, node.unmet, (
        SELECT json_group_array(other.key) FROM (
            SELECT other.key FROM edge INDEXED BY edge_child
            CROSS JOIN node AS other
            ON other.group_id = edge.group_id AND other.place = edge.parent
            WHERE edge.group_id = node.group_id AND edge.child = node.place
            ORDER BY edge.parent) AS other)
    FROM job_group AS g CROSS JOIN node ON node.group_id = g.number
    CROSS JOIN job ON job.number = node.job
    WHERE g.id = ?1 AND g.is_gone = 0 AND node.place > ?2 ORDER BY node.place LIMIT ?3"""


_NODE_FACTS: Final = """
    SELECT key, condition, unmet, (
        SELECT count(*) FROM edge INDEXED BY edge_child
        WHERE edge.group_id = node.group_id AND edge.child = node.place)
    FROM node WHERE job = ?"""
_WAITS_FOR: Final = f"""
    SELECT other.key, job.state FROM node CROSS JOIN edge INDEXED BY edge_child
    ON edge.group_id = node.group_id AND edge.child = node.place
    CROSS JOIN node AS other ON other.group_id = edge.group_id AND other.place = edge.parent
    CROSS JOIN job ON job.number = other.job
    WHERE node.job = ? AND job.state IN {LIVE_LIST} ORDER BY other.place LIMIT ?"""


# submitting


def submit_group(tx: Transaction, part: GroupPart) -> GroupSubmitted | Refused:
    """Stores some nodes of a group. With the last of them it runs, all or nothing."""
    items = node_items(part)
    if isinstance(items, Refused):
        return items
    head = part.head
    found = tx.execute(
        "SELECT number, state, staged, jobs, name, fail_fast, labels FROM job_group WHERE id = ?",
        (head.id.bytes,),
    ).fetchone()
    number, state, staged = found[:3] if found else (0, GroupState.STAGING, 0)
    if found and found[3:] != _fields(head):
        return group_conflict(head.id)
    if state != GroupState.STAGING:
        return GroupSubmitted(head.id, number, GroupState(state), staged)
    new = _unknown(tx, number, part, items)
    if isinstance(new, Refused):
        return new
    if (taken := _taken(tx, head.id, new)) is not None:
        return taken
    number = number or _add_group(tx, head)
    _add_nodes(tx, number, new)
    staged += len(new)
    state = _begin(tx, number, head, staged)
    return GroupSubmitted(head.id, number, state, staged)


def _fields(head: GroupHead) -> tuple[int, str, int, str]:
    labels = msgspec.json.encode(head.labels).decode()
    return head.jobs, head.name, int(head.fail_fast), labels


def _unknown(
    tx: Transaction, group: int, part: GroupPart, items: Sequence[NodeItem]
) -> Sequence[NodeItem] | Refused:
    """The nodes of a part that are not stored yet; a refusal if those that are differ."""
    query = "SELECT place, body_hash FROM node WHERE group_id = ? AND place >= ? AND place < ?"
    last = part.first + len(part.nodes)
    stored = dict(tx.connection.execute(query, (group, part.first, last)).fetchall())
    if any(stored.get(item.place, item.body) != item.body for item in items):
        return group_conflict(part.head.id)
    return [item for item in items if item.place not in stored]


def _taken(tx: Transaction, group: UUID, items: Sequence[NodeItem]) -> Refused | None:
    """The refusal of a group of which a job's id or unique key is taken."""
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
    if not taken:
        return None
    item = items[min(taken)]
    return key_taken(group, item.node.key, item.node.job)


def _add_group(tx: Transaction, head: GroupHead) -> int:
    number = tx.next_number()
    tx.execute(
        """INSERT INTO job_group (number, id, state, created_at, jobs, name, fail_fast, labels)
        VALUES (?, ?, 'staging', ?, ?, ?, ?, ?)""",
        (number, head.id.bytes, tx.now, *_fields(head)),
    )
    return number


def _add_nodes(tx: Transaction, group: int, items: Sequence[NodeItem]) -> None:
    jobs: list[Row] = []
    nodes: list[Row] = []
    entry = f"[{history_entry(JobState.WAITING, tx.now)}]"
    for item in items:
        job, number = item.node.job, tx.next_number()
        lane = lane_of(job.queue, job.kind, job.target)
        run_at = None if job.delay_s is not None else due_at(job, tx.now)
        jobs.append(
            (
                number,
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
            )
        )
        own = (group, item.place, number, item.body, len(item.parents), item.node.on)
        nodes.append((*own, job.delay_s, job.options.expires_s, item.node.key))
        tx.add_lane(lane)
        tx.count(lane.hash, None, JobState.WAITING)
    _ADD_JOBS.run(tx.connection, jobs)
    _ADD_NODES.run(tx.connection, nodes)
    edges: list[Row] = [(group, parent, item.place) for item in items for parent in item.parents]
    _ADD_EDGES.run(tx.connection, edges)


def _begin(tx: Transaction, group: int, head: GroupHead, staged: int) -> GroupState:
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
        nodes = _nodes_from(tx, group, 0, MOST_AT_ONCE)
        _wake(tx, Settling(tx), nodes)
        if len(nodes) == MOST_AT_ONCE:
            _sweep_on(tx, group, nodes[-1].place + 1)
    return state


def _nodes_from(
    tx: Transaction, group: int, place: int, most: int, *, every: bool = False
) -> list[WaitingNode]:
    """Nodes from a place on; unless it is `every` one, those that a wake may concern."""
    row = tx.execute(NODES_FROM, (group, place, most, tx.now, every)).fetchone()
    return sorted(_waiting.decode(row[0]), key=lambda node: node.place)


def _wake(tx: Transaction, settling: Settling, nodes: Sequence[WaitingNode]) -> None:
    """Makes the jobs ready that wait for nothing."""
    settling.wake(
        [
            Wake(node.group, node.job, change)
            for node in nodes
            if node.state is JobState.WAITING and (change := becomes(node.waiting)) is not None
        ]
    )


# upkeep


def has_work(tx: Snapshot, groups: Collection[UUID]) -> bool:
    """Whether `settle` may have anything to do."""
    if groups:
        return True
    query = f"""SELECT EXISTS (SELECT 1 FROM unsettled)
        OR EXISTS (SELECT 1 FROM job_group WHERE sweep_from IS NOT NULL)
        OR EXISTS (SELECT 1 FROM job_group INDEXED BY job_group_live
            WHERE ended_at IS NULL AND state IN {_LIVE_GROUPS}
                AND (ended >= staged OR (fail_fast AND failed > 0)))"""
    return bool(tx.execute(query).fetchone()[0])


def settle(tx: Transaction, groups: Collection[UUID] = (), most: int = 1000) -> Settled:
    """Does some of what groups have to do, of at most so many jobs."""
    settling = Settling(tx)
    query = "SELECT job, after_child FROM unsettled ORDER BY job LIMIT ?"
    noted = tx.connection.execute(query, (most,)).fetchall()
    tx.connection.executemany("DELETE FROM unsettled WHERE job = ?", [(job,) for job, _ in noted])
    if noted:
        settling.deliver(noted)
    _sweep(tx, settling, most)
    tx.note_group_ends()
    closed, again = _close(tx)
    left = tx.execute(
        """SELECT DISTINCT g.id FROM unsettled CROSS JOIN job ON job.number = unsettled.job
        CROSS JOIN job_group AS g ON g.number = job.group_id"""
    )
    again |= {UUID(bytes=id) for (id,) in left}
    ended = (*settling.ended, *closed)
    return Settled(settling.ready, settling.delayed, ended, frozenset(again))


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
            _wake(tx, settling, nodes)
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
    swept = tx.execute("SELECT id FROM job_group WHERE sweep_from IS NOT NULL")
    return closed, {UUID(bytes=id) for (id,) in swept}


def cancel_group(tx: Transaction, ref: UUID | int, by: str = "") -> GroupVerdict:
    """Marks a group as cancelling; `settle` ends its jobs."""
    found = group(tx, ref)
    if found is None:
        return GroupVerdict.NOT_FOUND
    changed = tx.execute(
        """UPDATE job_group SET state = 'cancelling', sweep_from = 0, cancelled_by = ?
        WHERE number = ? AND ended_at IS NULL""",
        (clean(by) or "a client", found.number),
    )
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
    tx.execute(
        "UPDATE job_group SET state = ?, sweep_from = 0 WHERE number = ?", (state, found.number)
    )
    return GroupVerdict(state.value)


# retrying


def retry_group(
    tx: Transaction,
    ref: UUID | int,
    by: str = "",
    request: UUID | None = None,
    *,
    keys: Sequence[str] = (),
    dry_run: bool = False,
) -> RetryPlan | None:
    """Opens a new round of what did not succeed, or of some jobs and all below them."""
    found = group(tx, ref)
    if found is None:
        return None
    if request is not None:
        query = "SELECT reopened FROM group_retry WHERE request = ?"
        for (reopened,) in tx.execute(query, (request.bytes,)).fetchall():
            return RetryPlan(found.id, _words.decode(reopened))
    rows = tx.connection.execute(_NODE_STATES, (found.number,)).fetchall()
    nodes = [
        NodeState(key, JobState(state), _places.decode(after)) for _, key, state, after in rows
    ]
    plan, changes = retry_plan(found.id, found.state, nodes, keys)
    if plan.refused or dry_run:
        return plan
    held = tx.held([job for job, *_ in rows])
    taken = _key_held(tx, [held[at] for at in changes.reopened])
    if taken is not None:
        return RetryPlan(found.id, refused=unique_key_taken(taken))
    _reopen(tx, found, held, changes, by, request)
    if request is not None:
        values = (request.bytes, found.number, msgspec.json.encode(plan.reopened).decode())
        tx.execute("INSERT INTO group_retry VALUES (?, ?, ?)", values)
    return plan


def _key_held(tx: Transaction, rows: Sequence[Held | None]) -> str | None:
    """A unique key of these jobs that a live job has; None if there is none."""
    numbers = msgspec.json.encode([row.number for row in rows if row is not None]).decode()
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


def _reopen(
    tx: Transaction,
    group: Group,
    held: Sequence[Held | None],
    changes: Reopening,
    by: str,
    request: UUID | None,
) -> None:
    ended = Counter[JobState]()
    for at in changes.reopened:
        row = held[at]
        assert row is not None
        ended[row.state] += 1
        tx.apply(row, effects.of_group_retry(row.round, by, request)[row.state], by=by)
    for at in changes.held:
        row = held[at]
        assert row is not None
        tx.apply(row, effects.HOLD[row.state])
    tx.flush()
    counters: list[Row] = [
        (group.number, at, unmet, int(marks)) for at, (unmet, marks) in changes.counters.items()
    ]
    COUNT_DOWN.run(tx.connection, counters)
    tx.execute(
        "DELETE FROM unsettled WHERE job IN (SELECT job FROM node WHERE group_id = ?)",
        (group.number,),
    )
    state = GroupState.PAUSED if group.state is GroupState.PAUSED else GroupState.RUNNING
    failed = ended[JobState.FAILED] + ended[JobState.DEPENDENCY_FAILED]
    tx.execute(
        """UPDATE job_group SET state = ?, ended_at = NULL, cancelled_by = '', sweep_from = 0,
            ended = ended - ?, failed = failed - ?, cancelled = cancelled - ? WHERE number = ?""",
        (state, ended.total(), failed, ended[JobState.CANCELLED], group.number),
    )


# showing


def group(tx: Snapshot, ref: UUID | int) -> Group | None:
    """One group, by its id or number."""
    by_id = isinstance(ref, UUID)
    key: bytes | int = ref.bytes if isinstance(ref, UUID) else ref
    if not by_id and not 0 < ref <= LARGEST_INT:  # type: ignore[operator]
        return None
    row = tx.execute(
        f"{_SHOWN} WHERE is_gone = 0 AND {'id' if by_id else 'number'} = ?", (key,)
    ).fetchone()
    if row is None:
        return None
    counts = tx.connection.execute(
        """SELECT job.state, count(*) FROM node CROSS JOIN job ON job.number = node.job
        WHERE node.group_id = ? GROUP BY job.state""",
        (row[0],),
    ).fetchall()
    return _shown(row, dict(counts))


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


def _shown(row: tuple[Any, ...], counts: dict[str, int]) -> Group:
    number, id, state, jobs, fail_fast, created_at, ended_at, name, labels, by = row
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
    )


def explain(tx: Snapshot, job: Job) -> Facts:
    """What keeps a job where it is; of a job of a group, also what it waits for."""
    facts = reads.explain(tx, job)
    found = group(tx, job.group) if job.group is not None else None
    if found is None:
        return facts
    key, on, unmet, after = tx.execute(_NODE_FACTS, (job.number,)).fetchone()
    others = tx.connection.execute(_WAITS_FOR, (job.number, MOST_SHOWN)).fetchall()
    node = NodeFacts(
        key=key,
        group=structs.replace(found, counts={}),
        on=Condition(on),
        after=after,
        unmet=unmet,
        waits_for=tuple((other, JobState(state)) for other, state in others),
    )
    return structs.replace(facts, node=node)


def nodes(tx: Snapshot, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
    """The nodes of a group in its order, after a place in it."""
    rows = tx.connection.execute(_NODES, (group.bytes, after, most)).fetchall()
    return [
        NodeView(
            key=key,
            job=UUID(bytes=id),
            number=number,
            kind=kind,
            state=JobState(state),
            after=_words.decode(others),
            on=Condition(on),
            unmet=unmet,
        )
        for key, id, number, kind, state, on, unmet, others in rows
    ]
