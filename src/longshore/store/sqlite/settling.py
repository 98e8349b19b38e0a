"""What the ends of jobs do to those that depend on them, on SQLite.

The pump calls `deliver` for the jobs that it ends: their direct dependents are decided in the same
transaction. Whatever else ends a job of a group notes it in `unsettled` (see `Transaction`), and
`groups.settle` takes these notes up. So a transaction is bounded, however far an end reaches.

A node that is in a scope also tells the node whose scope it is. If that one closes by it, this is
noted like an end, and so is what must be told early.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from longshore.core import effects
from longshore.core.dependencies import (
    Marks,
    Parent,
    Scope,
    Waiting,
    deliver,
    may_become,
    may_wake,
    tell_scope,
)
from longshore.core.effects import Change
from longshore.core.lanes import GATE_LANE, NOT_RUN_LANES
from longshore.core.lifecycle import TERMINAL
from longshore.core.placement import maker_of_files
from longshore.model.attempt import Attempt
from longshore.model.group import Condition, GroupState
from longshore.model.job import Ended, JobError, JobState
from longshore.store.rows import pack_error, unpack_error
from longshore.store.sqlite.dependents import Starts, start
from longshore.store.sqlite.sql import Bulk, Lookup, Row
from longshore.store.sqlite.transaction import Transaction

MOST_REACHED: Final = 1000
"""To how many dependents of a job its end is delivered in one transaction."""

Node = tuple[int, int]
"""The number of a group, and a place in it."""


_MARKS: Final = [Marks(number) for number in range(8)]


class EndedNode(Struct, array_like=True):
    """A node of which others are to hear, and the place after which its delivery goes on."""

    job: int
    id: str
    group: int
    group_id: str
    place: int
    key: str
    state: JobState
    error: str
    after_child: int
    scope: int | None
    marks: int
    cause: str
    is_early: int

    @property
    def parent(self) -> Parent:
        """As its dependents and its scope hear of it."""
        id, group = UUID(hex=self.id), UUID(hex=self.group_id)
        own = (id, group, self.key, self.job, self.state, _error(self.error))
        if not self.marks:
            return Parent(*own, is_early=bool(self.is_early))
        return Parent(*own, Marks(self.marks), _error(self.cause), bool(self.is_early))


def _error(hexed: str) -> JobError | None:
    return unpack_error(bytes.fromhex(hexed) or None)


class ScopeNode(Struct, array_like=True):
    """A node whose scope an ended node is in."""

    group: int
    place: int
    job: int
    group_id: str
    open: int
    marks: int
    cause: str
    has_ended: int

    @property
    def scope(self) -> Scope:
        """What an end in its scope must know of it."""
        return Scope(self.open, Marks(self.marks), _error(self.cause), bool(self.has_ended))


class WaitingNode(Struct, array_like=True):
    """A node that an end reaches. `late_s` is how long its job must wait, if it has a time."""

    group: int
    place: int
    job: int
    condition: Condition
    unmet: int
    marks: int
    delay_s: float | None
    expires_s: float | None
    state: JobState

    @property
    def waiting(self) -> Waiting:
        """What an end must know of it."""
        delay_s = self.delay_s if self.delay_s is not None and self.delay_s > 0 else None
        marks = _MARKS[self.marks]
        return Waiting(self.condition, self.unmet, marks, delay_s, self.expires_s)


# A node that is not closed can only tell what is told early.
ENDED_NODES: Final = Lookup(
    """SELECT json_group_array(json_array(job.number, hex(job.id), job.group_id, hex(g.id),
        node.place, node.key, job.state, coalesce(hex(job.error), ''), v.column2,
        node.scope, node.scope_marks, coalesce(hex(node.cause), ''),
        v.column3 OR node.open > 0 OR job.ended_at IS NULL))
    FROM {rows} AS v CROSS JOIN job ON job.number = v.column1
    CROSS JOIN node ON node.job = job.number CROSS JOIN job_group AS g ON g.number = job.group_id
    """,
    3,
    EndedNode,
)
SCOPES: Final = Lookup(
    """SELECT json_group_array(json_array(node.group_id, node.place, node.job, hex(g.id),
        node.open, node.scope_marks, coalesce(hex(node.cause), ''), job.ended_at IS NOT NULL))
    FROM {rows} AS v CROSS JOIN node ON node.group_id = v.column1 AND node.place = v.column2
    CROSS JOIN job ON job.number = node.job CROSS JOIN job_group AS g ON g.number = node.group_id
    """,
    2,
    ScopeNode,
)
TELL_SCOPES: Final = Bulk(
    """UPDATE node SET open = v.column3, scope_marks = v.column4, cause = v.column5
    FROM {rows} AS v WHERE node.group_id = v.column1 AND node.place = v.column2""",
    5,
)
# Dependents of nodes, after a place in their group, at most `MOST_REACHED` of each node.
DEPENDENTS: Final = Lookup(
    f"""SELECT json_group_array(json_array(v.column1, v.column2, edge.child))
    FROM {{rows}} AS v CROSS JOIN edge ON edge.group_id = v.column1 AND edge.parent = v.column2
        AND edge.child > v.column3 AND edge.child <= (
            SELECT max(child) FROM (
                SELECT child FROM edge AS near
                WHERE near.group_id = v.column1 AND near.parent = v.column2
                    AND near.child > v.column3
                ORDER BY near.child LIMIT {MOST_REACHED}))""",
    3,
    tuple[int, int, int],
)
_WAITING_NODE: Final = """json_array(node.group_id, node.place, node.job, node.condition,
    node.unmet, node.marks, coalesce((job.run_at - {now}) / 1e6, node.delay_s),
    node.expires_s, job.state)"""
NODES: Final = Lookup(
    f"""SELECT json_group_array({_WAITING_NODE.format(now="v.column3")})
    FROM {{rows}} AS v CROSS JOIN node ON node.group_id = v.column1 AND node.place = v.column2
    CROSS JOIN job ON job.number = node.job""",
    3,
    WaitingNode,
)
# Without ?5 only nodes that a wake may concern.
NODES_FROM: Final = f"""
    SELECT json_group_array({_WAITING_NODE.format(now="?4")}) FROM (
        SELECT * FROM node WHERE group_id = ?1 AND place >= ?2
            AND (?5 OR unmet = 0 OR marks <> 0) ORDER BY place LIMIT ?3) AS node
    CROSS JOIN job ON job.number = node.job"""
COUNT_DOWN: Final = Bulk(
    """UPDATE node SET unmet = v.column3, marks = v.column4
    FROM {rows} AS v WHERE node.group_id = v.column1 AND node.place = v.column2""",
    4,
)
# What a node tells for the last time is more than what it tells early.
UNSETTLED: Final = Bulk(
    """INSERT INTO unsettled (job, after_child, is_early) SELECT * FROM {rows}
    WHERE column1 IS NOT NULL ON CONFLICT DO UPDATE
    SET after_child = excluded.after_child, is_early = excluded.is_early WHERE is_early = 1""",
    3,
)


class Settling:
    """What the ends of one transaction did to jobs of groups."""

    def __init__(self, tx: Transaction, starts: Starts | None = None) -> None:
        self.started: list[Attempt] = []
        self.ready: Counter[int] = Counter()
        self.delayed = False
        self.ended: list[Ended] = []
        self.groups: set[UUID] = set()
        """The groups that may be over, or have more to settle."""
        self._tx = tx
        self._starts = starts

    def deliver(self, jobs: Sequence[Row]) -> None:
        """These jobs' nodes tell those that depend on them, after a place, and their scopes."""
        tx = self._tx
        tx.flush()
        found = {(one.group, one.place): one for one in ENDED_NODES.find(tx.connection, jobs)}
        heard = {node: one.parent for node, one in found.items()}
        nodes = {node: one for node, one in found.items() if not one.is_early or heard[node].told}
        wanted = [(one.group, one.place, one.after_child) for one in nodes.values()]
        edges = DEPENDENTS.find(tx.connection, wanted)
        self._go_on_later(nodes, edges)
        reached: defaultdict[Node, list[Parent]] = defaultdict(list)
        for group, parent, child in edges:
            reached[group, child].append(heard[group, parent])
        live = self._tell(reached)
        with_live = {(group, parent) for group, parent, child in edges if (group, child) in live}
        with_live |= self._tell_scopes(nodes, heard)
        for node, one in nodes.items():
            if not one.is_early and (node not in with_live or heard[node].told & Marks.FAILED):
                self.groups.add(UUID(hex=one.group_id))

    def _go_on_later(
        self, nodes: Mapping[Node, EndedNode], edges: Iterable[tuple[int, int, int]]
    ) -> None:
        """Notes the nodes that have more dependents than were reached."""
        children: defaultdict[Node, list[int]] = defaultdict(list)
        for group, parent, child in edges:
            children[group, parent].append(child)
        more = [(nodes[at], some) for at, some in children.items() if len(some) >= MOST_REACHED]
        rows: list[Row] = [(one.job, max(some), one.is_early) for one, some in more]
        UNSETTLED.run(self._tx.connection, rows)
        self.groups.update(UUID(hex=one.group_id) for one, _ in more)

    def _tell_scopes(
        self, nodes: Mapping[Node, EndedNode], heard: Mapping[Node, Parent]
    ) -> set[Node]:
        """Counts the scopes down that these nodes are in; answers the nodes in those still open.

        A scope hears of a node once, however often the delivery to its dependents goes on.
        """
        inside: defaultdict[Node, list[Node]] = defaultdict(list)
        for node, one in nodes.items():
            if one.scope is not None and one.after_child < 0:
                inside[one.group, one.scope].append(node)
        scopes: list[Row] = list(inside)
        rows: list[Row] = []
        notes: list[Row] = []
        still_open: set[Node] = set()
        for scope in SCOPES.find(self._tx.connection, scopes):
            members = inside[scope.group, scope.place]
            told = tell_scope(scope.scope, [heard[node] for node in members])
            cause = pack_error(told.cause)
            rows.append((scope.group, scope.place, told.open, int(told.marks), cause))
            if not told.is_closed:
                still_open.update(members)
            if told.is_closed or told.is_news:
                notes.append((scope.job, -1, int(told.is_news)))
                self.groups.add(UUID(hex=scope.group_id))
        TELL_SCOPES.run(self._tx.connection, rows)
        UNSETTLED.run(self._tx.connection, notes)
        return still_open

    def _tell(self, reached: Mapping[Node, Sequence[Parent]]) -> set[Node]:
        """Counts the nodes down and wakes their jobs; answers those whose jobs had not ended."""
        keys: list[Row] = [(group, place, self._tx.now) for group, place in reached]
        nodes = NODES.find(self._tx.connection, keys)
        rows: list[Row] = []
        changes: list[Wake] = []
        for node in sorted(nodes, key=lambda node: node.job):
            unmet, marks, change = deliver(node.waiting, reached[node.group, node.place])
            rows.append((node.group, node.place, unmet, int(marks)))
            if change is not None and node.state is JobState.WAITING:
                changes.append(Wake(node.group, node.job, change))
        COUNT_DOWN.run(self._tx.connection, rows)
        self.wake(self._start(changes, self._makers(nodes, reached)))
        return {(node.group, node.place) for node in nodes if node.state not in TERMINAL}

    def _makers(
        self, nodes: Sequence[WaitingNode], reached: Mapping[Node, Sequence[Parent]]
    ) -> dict[int, UUID]:
        """Which job that ends now made most files for each of those that wait for it."""
        made = {} if self._starts is None else self._starts.made
        if not made:
            return {}
        found = {
            node.job: maker_of_files((one.job for one in reached[node.group, node.place]), made)
            for node in nodes
        }
        return {job: maker for job, maker in found.items() if maker is not None}

    def _start(self, changes: Sequence[Wake], makers: Mapping[int, UUID]) -> Sequence[Wake]:
        """Starts the jobs that have slots; answers the changes that are left to be made."""
        if not changes or self._starts is None or not self._starts.offers.left:
            return changes
        groups = {group: self._group(group)[1] for group in {one.group for one in changes}}
        met = {
            one.job: one.change.deadline_s
            for one in changes
            if one.change.state is JobState.READY and may_wake(groups[one.group])
        }
        self.started = start(self._tx, self._starts, met, makers) if met else []
        begun = {one.number for one in self.started}
        return [one for one in changes if one.job not in begun]

    def wake(self, changes: Sequence[Wake]) -> None:
        """Makes these changes to jobs that wait, as far as their groups allow."""
        if not changes:
            return
        groups = {group: self._group(group) for group in {one.group for one in changes}}
        held = self._tx.held([one.job for one in changes])
        for one, row in zip(changes, held, strict=True):
            id, state = groups[one.group]
            if row is None or not may_become(state, one.change):
                continue
            self._tx.apply(row, one.change)
            if one.change.ends:
                self.ended.append(effects.outcome(row.uuid, one.change))
                self.groups.add(id)
            elif one.change.state is not JobState.READY:
                self.delayed = True
            elif row.lane not in NOT_RUN_LANES:
                self.ready[row.lane] += 1
            elif row.lane != GATE_LANE:
                self.groups.add(id)
        self._tx.flush()

    def _group(self, number: int) -> tuple[UUID, GroupState]:
        query = "SELECT id, state FROM job_group WHERE number = ?"
        id, state = self._tx.execute(query, (number,)).fetchone()
        return UUID(bytes=id), GroupState(state)


class Wake(NamedTuple):
    """A change to a job that waits, by the numbers of its group and of the job."""

    group: int
    job: int
    change: Change
