"""What the ends of jobs do to those that depend on them, on PostgreSQL.

The pump calls `deliver` for the jobs that it ends: their direct dependents are decided in the same
transaction. Whatever else ends a job of a group notes it in `unsettled`, and so does `deliver` for
the dependents that end by it. `groups.settle` takes these notes up. So a transaction is bounded,
however far an end reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.dependencies import (
    Delivered,
    Marks,
    Parent,
    Waiting,
    deliver,
    may_wake,
    told,
)
from longshore.core.effects import Change
from longshore.core.lifecycle import TERMINAL
from longshore.model.job import Ended, JobState
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.keeper_sql import LOCK_WAITING
from longshore.store.postgres.states import CONDITION_OF, GROUP_STATES, STATES
from longshore.store.rows import unpack_error

MOST_REACHED: Final = 1000
"""To how many dependents an end is delivered in one transaction."""

Decided = tuple[asyncpg.Record, Change]


class Cursor(NamedTuple):
    """An ended job, and the dependent after which the delivery of its end goes on."""

    parent: Parent
    after_child: UUID | None = None


class Settling:
    """What the ends of one transaction did to jobs of groups."""

    def __init__(self, tx: Transaction) -> None:
        self.ready: Counter[int] = Counter()
        self.places: list[tuple[int, int, tuple[int, int]]] = []
        """The lanes, urgencies and places of the jobs that became ready, for the cursors."""
        self.delayed = False
        self.cancelling = False
        self.ended: list[Ended] = []
        self.groups: set[UUID] = set()
        """The groups that may be over, or have more to settle."""
        self._tx = tx

    async def deliver(self, ends: Sequence[Cursor]) -> None:
        """These ends reach the nodes that depend on them."""
        ids = [end.parent.job for end in ends]
        cursors = [end.after_child for end in ends]
        rows = await self._tx.fetch(sql.REACHED, ids, cursors, MOST_REACHED)
        parents = await self._named([end.parent for end in ends])
        await self._go_on_later(ends, rows)
        live = Counter(place for row in rows if row["is_live"] for place in row["parents"])
        for place, parent in enumerate(parents, 1):
            if not live[place] or told(parent.state) & Marks.FAILED:
                self.groups.add(parent.group)
        if not rows:
            return
        told_nodes = [_told(row, [parents[place - 1] for place in row["parents"]]) for row in rows]
        columns = [(row["child"], one.unmet, int(one.marks)) for row, one in told_nodes]
        await self._tx.fetch(sql.COUNT_DOWN, *zip(*columns, strict=True))
        await self.wake(
            {row["child"]: one.change for row, one in told_nodes if one.change is not None}
        )

    async def _named(self, parents: Sequence[Parent]) -> list[Parent]:
        """The ended jobs with their keys, if an error must name one."""
        bad = [one.job for one in parents if told(one.state) & (Marks.FAILED | Marks.CANCELLED)]
        rows = await self._tx.fetch(sql.NODE_KEYS, bad) if bad else []
        keys = {row["job"]: row["key"] for row in rows}
        return [one._replace(key=keys.get(one.job, "")) for one in parents]

    async def _go_on_later(self, ends: Sequence[Cursor], rows: Sequence[asyncpg.Record]) -> None:
        """Notes the ended jobs that have more dependents than were reached."""
        last: dict[int, tuple[int, UUID]] = {}
        for row in rows:
            for place in row["parents"]:
                last[place] = (last.get(place, (0,))[0] + 1, row["child"])
        more = [(place, child) for place, (n, child) in last.items() if n >= MOST_REACHED]
        if more:
            jobs = [ends[place - 1].parent for place, _ in more]
            self.groups.update(job.group for job in jobs)
            children = [child for _, child in more]
            await self._tx.fetch(sql.OVERFLOW, [job.job for job in jobs], children)

    async def wake(self, changes: dict[UUID, Change]) -> None:
        """Makes these changes to jobs that still wait, as far as their groups allow."""
        rows = await locked(self._tx, changes, LOCK_WAITING)
        if not rows:
            return
        made: list[Decided] = []
        held: set[UUID] = set()
        for row in rows:
            change, group = changes[row["id"]], row["group_id"]
            if change.ends or may_wake(GROUP_STATES[row["group_state"]]):
                made.append((row, change))
            else:
                held.add(group)
        if held:
            # The group's state may be changing at this moment: then the sweep finds these jobs.
            await self._tx.fetch(sql.ASK_SWEEP, sorted(held))
            self.groups |= held
        await apply(self._tx, made)
        self._note(made)

    def _note(self, made: Sequence[Decided]) -> None:
        for row, change in made:
            if change.ends:
                self.ended.append(effects.outcome(row["id"], change))
                self.groups.add(row["group_id"])
            elif change.state is JobState.READY:
                self.ready[row["lane"]] += 1
                self.places.append((row["lane"], row["urgency"], (row["rank"], row["number"])))
            else:
                self.delayed = True


def waiting(row: asyncpg.Record) -> Waiting:
    """What an end must know of a node."""
    late_s = row["delay_s"]
    delay_s = late_s if late_s is not None and late_s > 0 else None
    marks = Marks(row["marks"])
    condition = CONDITION_OF[row["condition"]]
    return Waiting(condition, row["unmet"], marks, delay_s, row["expires_s"])


def _told(row: asyncpg.Record, parents: Sequence[Parent]) -> tuple[asyncpg.Record, Delivered]:
    return row, deliver(waiting(row), parents)


async def deliver_noted(tx: Transaction, most: int) -> Settling:
    """Delivers at most so many of the ends that were noted."""
    settling = Settling(tx)
    taken = await tx.fetch(sql.TAKE_UNSETTLED, most)
    rows = await tx.fetch(sql.PARENTS, *zip(*taken, strict=True)) if taken else []
    ends = [_cursor(row) for row in rows if STATES[row["state"]] in TERMINAL]
    if ends:
        await settling.deliver(ends)
    if len(taken) == most:
        settling.groups.update(end.parent.group for end in ends)
    return settling


def _cursor(row: asyncpg.Record) -> Cursor:
    state, error = STATES[row["state"]], unpack_error(row["error"])
    parent = Parent(row["job"], row["group_id"], "", row["number"], state, error)
    return Cursor(parent, row["after_child"])
