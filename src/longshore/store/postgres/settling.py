"""What the ends of jobs do to those that depend on them, on PostgreSQL.

The pump calls `deliver` for the jobs that it ends: their direct dependents are decided in the same
transaction. Whatever else ends a job of a group notes it in `unsettled`, and so does `deliver` for
the dependents that end by it. `groups.settle` takes these notes up. So a transaction is bounded,
however far an end reaches.

A node with a scope (see `core.dependencies`) tells others only when it is closed. Two things close
it: the end of its own job, and the close of the last node in its scope. They may come at the same
moment. So a node that is told of its own end while its scope is open keeps that (`has_ended`), and
then the last one in its scope notes that it is closed. Otherwise its own end is delivered when
nothing in its scope is open any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.dependencies import (
    Delivered,
    Marks,
    Parent,
    Scope,
    ScopeTold,
    Waiting,
    deliver,
    may_become,
    tell_scope,
)
from longshore.core.effects import Change
from longshore.core.lifecycle import TERMINAL
from longshore.core.placement import Woken, maker_of_files, slots_for
from longshore.model.attempt import Attempt
from longshore.model.group import MAP, NOT_RUN, SCOPE
from longshore.model.job import Ended, JobState
from longshore.model.worker import OpenSlots, SessionKey
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.keeper_sql import LOCK_WAITING
from longshore.store.postgres.states import (
    CONDITION_OF,
    GROUP_STATES,
    READY,
    RUNNING,
    STATES,
    WAITING,
)
from longshore.store.rows import pack_error, unpack_error, unpack_options

MOST_REACHED: Final = 1000
"""To how many dependents an end is delivered in one transaction."""

EXPANDED_KINDS: Final = frozenset({MAP, SCOPE})
"""The kinds of nodes that `settle` ends as soon as they are ready."""

Decided = tuple[asyncpg.Record, Change]


class Cursor(NamedTuple):
    """An ended job, and the dependent after which the delivery of its end goes on."""

    parent: Parent
    after_child: UUID | None = None


class Starts(NamedTuple):
    """Slots on which jobs may start as soon as they are ready, and who gives them.

    An attempt expires `expiry_margin_s` after its timeout.
    """

    dispatcher: UUID
    offered: Sequence[OpenSlots]
    expiry_margin_s: float
    max_bytes: int
    made: Mapping[UUID, int] = {}
    """How many bytes of files jobs have made that end in this transaction."""


class Settling:
    """What the ends of one transaction did to jobs of groups."""

    def __init__(self, tx: Transaction, starts: Starts | None = None) -> None:
        self.started: list[Attempt] = []
        self.ready: Counter[int] = Counter()
        self.places: list[tuple[int, int, tuple[int, int]]] = []
        """The lanes, urgencies and places of the jobs that became ready, for the cursors."""
        self.delayed = False
        self.cancelling = False
        self.ended: list[Ended] = []
        self.groups: set[UUID] = set()
        """The groups that may be over, or have more to settle."""
        self._tx = tx
        self._starts = starts

    async def deliver(
        self,
        ends: Sequence[Cursor],
        unclosed: Mapping[UUID, int] = {},
        also: Mapping[UUID, Change] = {},
    ) -> None:
        """These ends reach the nodes that depend on them, and those whose scope they are in.

        The nodes that are `unclosed` are told of their own ends; so many more are in their scopes.
        What is woken `also` are new jobs, whose group is running.
        """
        ids = [end.parent.job for end in ends]
        cursors = [end.after_child for end in ends]
        rows = await self._tx.fetch(sql.REACHED, ids, cursors, MOST_REACHED, list(unclosed))
        parents = await self._named([end.parent for end in ends])
        await self._go_on_later(ends, rows)
        live = Counter(place for row in rows if row["is_live"] for place in row["parents"])
        live += await self._tell_scopes(rows, parents, unclosed)
        for place, parent in enumerate(parents, 1):
            if not (live[place] or parent.is_early) or parent.told & Marks.FAILED:
                self.groups.add(parent.group)
        told_nodes = [
            _told(row, [parents[place - 1] for place in row["parents"]])
            for row in rows
            if row["parents"]
        ]
        columns = [(row["child"], one.unmet, int(one.marks)) for row, one in told_nodes]
        changes = [(row, one.change) for row, one in told_nodes if one.change is not None]
        woken = {row["child"]: change for row, change in changes}
        if changes and self._starts and all(_may_start(*one) for one in changes):
            after = [parent.job for parent in parents]
            await self._start([*zip(*columns, strict=True)], changes, self._starts, after)
            woken = {}
        elif columns:
            await self._tx.fetch(sql.COUNT_DOWN, *zip(*columns, strict=True))
        await self.wake({**woken, **also})

    async def _tell_scopes(
        self,
        rows: Sequence[asyncpg.Record],
        parents: Sequence[Parent],
        unclosed: Mapping[UUID, int],
    ) -> Counter[int]:
        """Tells nodes of those in their scopes; counts, for each place, the scopes still open."""
        found: list[tuple[asyncpg.Record, ScopeTold, bool]] = []
        still_open = Counter[int]()
        for row in rows:
            if not (row["inside"] or row["is_own"]):
                continue
            scope = _scope(row, unclosed.get(row["child"], 0))
            one = tell_scope(scope, [parents[place - 1] for place in row["inside"]])
            found.append((row, one, scope.has_ended))
            if one.open:
                still_open.update(row["inside"])
            # A node that is told of its own end may have been the last that others waited for.
            if one.is_closed or (row["is_own"] and not scope.open):
                self.note(row["child"], row["group_id"])
            elif one.is_news:
                self.note(row["child"], row["group_id"], is_early=True)
        if found:
            columns = [
                (row["child"], one.open, int(one.marks), pack_error(one.cause), has_ended)
                for row, one, has_ended in found
            ]
            await self._tx.fetch(sql.TELL_SCOPES, *zip(*columns, strict=True))
        return still_open

    def note(self, job: UUID, group: UUID, *, is_early: bool = False) -> None:
        """The next `settle` tells others of this node."""
        self._tx.note(job, is_early=is_early)
        self.groups.add(group)

    async def _near_files(
        self,
        jobs: Sequence[Woken],
        changes: Sequence[Decided],
        made: Mapping[UUID, int],
        ended: Sequence[UUID],
    ) -> list[Woken]:
        """The jobs, each with the worker that made files of one that it waited for."""
        rows = await self._tx.fetch(sql.WORKERS_OF, list(made))
        workers: dict[UUID | None, UUID | None] = {row["id"]: row["worker"] for row in rows}
        makers = [
            maker_of_files((ended[place - 1] for place in row["parents"]), made)
            for row, _ in changes
        ]
        return [job._replace(last=workers.get(at)) for job, at in zip(jobs, makers, strict=True)]

    async def _start(
        self,
        counters: list[tuple[object, ...]],
        changes: Sequence[Decided],
        starts: Starts,
        ended: Sequence[UUID],
    ) -> None:
        """Counts nodes down and starts the jobs that they let run, or makes them ready."""
        jobs = [
            Woken((row["urgency"], row["rank"], row["number"]), row["lane"], row["size"])
            for row, _ in changes
        ]
        if starts.made:
            jobs = await self._near_files(jobs, changes, starts.made, ended)
        slots = slots_for(jobs, starts.offered, starts.max_bytes)
        known: dict[SessionKey, int] = {}
        places = {at: known.setdefault(slot, len(known) + 1) for at, slot in slots.items()}
        lanes: dict[tuple[str, str], int] = {}
        columns = [
            (
                row["child"],
                places.get(at),
                _place(lanes, row["queue"], row["kind"]),
                change.deadline_s,
            )
            for at, (row, change) in enumerate(changes)
        ]
        rows = await self._tx.fetch(
            sql.WAKE,
            *counters,
            *zip(*sorted(columns, key=_first), strict=True),
            [slot.worker for slot in known],
            [slot.session for slot in known],
            starts.dispatcher,
            [queue for queue, _ in lanes],
            starts.expiry_margin_s,
            [kind for _, kind in lanes],
        )
        await self._ask_sweep({row["group_id"] for row in rows if row["id"] is None})
        woken = sorted((row for row in rows if row["id"] is not None), key=_order)
        self._note_started(woken, list(known))

    def _note_started(self, rows: Sequence[asyncpg.Record], sessions: Sequence[SessionKey]) -> None:
        for row in rows:
            _, place, lane, urgency, rank, id, number, token, kind, args, options, *tries = row
            if place is None:
                self._tx.count(lane, WAITING, READY)
                self.ready[lane] += 1
                self.places.append((lane, urgency, (rank, number)))
                continue
            self._tx.count(lane, WAITING, RUNNING)
            slot = sessions[place - 1]
            of_job = id, number, token, kind, args, unpack_options(options)
            begun, failures, crashes, left_s, round = tries
            tried = begun, failures, crashes, False, ~urgency, left_s, round
            self.started.append(Attempt(*of_job, slot.worker, slot.session, *tried))

    async def _ask_sweep(self, held: set[UUID]) -> None:
        """These groups let nothing begin now. Once they do, a sweep finds their jobs."""
        if held:
            # A group's state may be changing at this moment: then the sweep finds these jobs.
            await self._tx.fetch(sql.ASK_SWEEP, sorted(held))
            self.groups |= held

    async def _named(self, parents: Sequence[Parent]) -> list[Parent]:
        """The nodes with their keys, if an error must name one."""
        bad = [one.job for one in parents if one.told & (Marks.FAILED | Marks.CANCELLED)]
        rows = await self._tx.fetch(sql.NODE_KEYS, bad) if bad else []
        keys = {row["job"]: row["key"] for row in rows}
        return [one._replace(key=keys.get(one.job, "")) for one in parents]

    async def _go_on_later(self, ends: Sequence[Cursor], rows: Sequence[asyncpg.Record]) -> None:
        """Notes the nodes that have more dependents than were reached."""
        last: dict[int, tuple[int, UUID]] = {}
        for row in rows:
            for place in row["parents"]:
                last[place] = (last.get(place, (0,))[0] + 1, row["child"])
        more = [(place, child) for place, (n, child) in last.items() if n >= MOST_REACHED]
        if more:
            found = [ends[place - 1].parent for place, _ in more]
            self.groups.update(one.group for one in found)
            children, early = [child for _, child in more], [one.is_early for one in found]
            await self._tx.fetch(sql.OVERFLOW, [one.job for one in found], children, early)

    async def wake(self, changes: dict[UUID, Change]) -> None:
        """Makes these changes to jobs that still wait, as far as their groups allow."""
        rows = await locked(self._tx, changes, LOCK_WAITING)
        if not rows:
            return
        made: list[Decided] = []
        held: set[UUID] = set()
        for row in rows:
            change, group = changes[row["id"]], row["group_id"]
            if may_become(GROUP_STATES[row["group_state"]], change):
                made.append((row, change))
            else:
                held.add(group)
        await self._ask_sweep(held)
        await apply(self._tx, made, holds_nodes=True)
        self._note(made)

    def _note(self, made: Sequence[Decided]) -> None:
        for row, change in made:
            if change.ends:
                self.ended.append(effects.outcome(row["id"], change))
                self.groups.add(row["group_id"])
            elif change.state is JobState.READY and row["kind"] in NOT_RUN:
                if row["kind"] in EXPANDED_KINDS:
                    self.groups.add(row["group_id"])
            elif change.state is JobState.READY:
                self.ready[row["lane"]] += 1
                self.places.append((row["lane"], row["urgency"], (row["rank"], row["number"])))
            else:
                self.delayed = True


_MARKS: Final = [Marks(number) for number in range(8)]
_first = itemgetter(0)
_order = itemgetter("urgency", "rank", "number")


def _may_start(row: asyncpg.Record, change: Change) -> bool:
    """Whether a job may run at once. Nobody runs a map or a gate."""
    return change.state is JobState.READY and row["kind"] not in NOT_RUN


def _place(places: dict[tuple[str, str], int], queue: str, kind: str) -> int:
    return places.setdefault((queue, kind), len(places) + 1)


def waiting(row: asyncpg.Record) -> Waiting:
    """What an end must know of a node."""
    late_s = row["delay_s"]
    delay_s = late_s if late_s is not None and late_s > 0 else None
    marks = _MARKS[row["marks"]]
    condition = CONDITION_OF[row["condition"]]
    return Waiting(condition, row["unmet"], marks, delay_s, row["expires_s"])


def _told(row: asyncpg.Record, parents: Sequence[Parent]) -> tuple[asyncpg.Record, Delivered]:
    return row, deliver(waiting(row), parents)


def _scope(row: asyncpg.Record, more: int) -> Scope:
    """What a node has of its scope, which grows by so many in this transaction."""
    marks, cause = Marks(row["scope_marks"]), unpack_error(row["cause"])
    return Scope(row["open"] + more, marks, cause, row["has_ended"] or row["is_own"])


async def deliver_noted(tx: Transaction, most: int) -> Settling:
    """Delivers at most so many of the ends that were noted."""
    settling = Settling(tx)
    taken = await tx.fetch(sql.TAKE_UNSETTLED, most)
    rows = await tx.fetch(sql.PARENTS, *zip(*taken, strict=True)) if taken else []
    told_now = [row for row in rows if row["is_early"] or STATES[row["state"]] in TERMINAL]
    # While a round lasts `open` only falls. So a node without open ones needs no second look.
    unclosed = {row["job"]: 0 for row in told_now if row["open"] and not row["is_early"]}
    ends = [_cursor(row) for row in told_now if row["is_early"] or not row["open"]]
    if ends or unclosed:
        await settling.deliver(ends, unclosed)
    if len(taken) == most:
        settling.groups.update(row["group_id"] for row in told_now)
    return settling


def _cursor(row: asyncpg.Record) -> Cursor:
    parent = Parent(
        row["job"],
        row["group_id"],
        "",
        row["number"],
        STATES[row["state"]],
        unpack_error(row["error"]),
        Marks(row["scope_marks"]),
        unpack_error(row["cause"]),
        row["is_early"],
    )
    return Cursor(parent, row["after_child"])
