"""The retry of a group on PostgreSQL, in one transaction. `group_reopening` retries large ones.

It holds the group's row and all its nodes first. So nobody counts a node down, or adds one, between
the look at the states and the new counters. What a job added that runs again leaves the group.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.dependencies import Marks
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState, Reopening, retry_plan
from longshore.errors import StoreUnavailable
from longshore.model.group import SCOPE, GroupState, RetryPlan
from longshore.model.job import JobState
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres import growth_sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Again, Transaction
from longshore.store.postgres.keeper_sql import LOCK_FREE, REOPEN
from longshore.store.postgres.known_sql import HOLDERS
from longshore.store.postgres.states import GROUP_CODES, GROUP_STATES, STATES
from longshore.store.rows import unique_key_taken

Rows = Sequence[asyncpg.Record]


def node_states(rows: Rows, submitted: int) -> list[NodeState]:
    """The nodes of a group, by place; those after the `submitted` ones were added.

    What they depend on is named by index among them. Places and indexes differ once nodes have left
    the group.
    """
    by_job = {row["job"]: index for index, row in enumerate(rows)}
    by_place = {row["place"]: index for index, row in enumerate(rows)}
    return [
        NodeState(
            row["key"],
            STATES[row["state"]],
            [by_place[place] for place in row["after"]],
            by_job.get(row["scope"]),
            row["kind"] != SCOPE,
            row["place"] >= submitted,
        )
        for row in rows
    ]


class GroupRetry(NamedTuple):
    """What a user asked for: which jobs of a group to open again, and how."""

    group: UUID
    by: str
    request: UUID | None
    keys: Sequence[str]
    args: bytes | None
    dry_run: bool

    async def run(self, tx: Transaction) -> RetryPlan | None:
        """Opens the rounds, or says why not; None if the group was pruned."""
        group = await self.hold(tx)
        if group is None or isinstance(group, RetryPlan):
            return group
        await tx.fetch(sql.HOLD_UNSETTLED, self.group)
        await tx.fetch(sql.HOLD_NODES, self.group)
        rows = await tx.fetch(sql.NODE_STATES, self.group)
        state, jobs = GROUP_STATES[group["state"]], group["jobs"]
        # Python's own work: a large group would stop the event loop for a second.
        plan, changes = await asyncio.to_thread(
            lambda: retry_plan(self.group, state, node_states(rows, jobs), self.keys)
        )
        if plan.refused or self.dry_run:
            return plan
        ids = [row["job"] for row in rows]
        if (taken := await self._open(tx, ids, changes)) is not None:
            return RetryPlan(self.group, refused=unique_key_taken(taken))
        await self._count_anew(tx, rows, changes)
        await self.retire(tx, [ids[at] for at in changes.retired])
        await self.give_args(tx, rows)
        await self.run_again(tx, state, plan)
        return plan

    async def hold(self, tx: Transaction) -> asyncpg.Record | RetryPlan | None:
        """Locks the group's row; answers a repeat as at first, and None if the group is gone."""
        found = await tx.fetch(sql.LOCK_GROUP, self.group)
        if not found or found[0]["is_gone"]:
            return None
        if (plan := await self.repeated(tx)) is not None:
            return plan
        if found[0]["reopening"]:
            raise Again("another retry of the group is under way")
        return found[0]

    async def repeated(self, tx: Transaction) -> RetryPlan | None:
        """The answer of the first such request, if this one repeats it."""
        for row in await tx.fetch(sql.RETRIED, self.request) if self.request else ():
            tx.rest_on_found()
            return RetryPlan(self.group, tuple(row["reopened"]), retired=tuple(row["retired"]))
        return None

    async def run_again(self, tx: Transaction, state: GroupState, plan: RetryPlan) -> None:
        """The group runs, or stays paused; a repeat of the request finds the answer."""
        state = GroupState.PAUSED if state is GroupState.PAUSED else GroupState.RUNNING
        await tx.fetch(sql.RUN_AGAIN, self.group, GROUP_CODES[state])
        if self.request is not None:
            names = list(plan.reopened), list(plan.retired)
            await tx.fetch(sql.NOTE_RETRY, self.request, self.group, *names)

    async def _open(self, tx: Transaction, jobs: Sequence[UUID], found: Reopening) -> str | None:
        """Changes the jobs; answers a unique key that another job has, if there is one."""
        retired = {jobs[at] for at in found.retired}
        rows = await locked(tx, [jobs[at] for at in found.reopened])
        keys = {(row["kind"], row["unique_key"]) for row in rows if row["unique_key"] is not None}
        holders = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
        for holder in holders:
            if holder["id"] not in retired:
                key: str = holder["unique_key"]
                return key
        await self.cancel(tx, retired)
        changes = [
            (row, effects.of_group_retry(row["round"], self.by, self.request)[STATES[row["state"]]])
            for row in rows
        ]
        await apply(tx, changes, self.by, REOPEN)
        held = await locked(tx, [jobs[at] for at in found.held], LOCK_FREE)
        # Not waited for: one that has just begun may be ending, and its end wants the group's row.
        if len(held) < len(found.held) or any(
            STATES[row["state"]] not in effects.HOLD for row in held
        ):
            raise StoreUnavailable("a job of the group started just now; try again")
        await apply(tx, [(row, effects.HOLD[STATES[row["state"]]]) for row in held])
        return None

    async def cancel(self, tx: Transaction, retired: set[UUID]) -> None:
        """Cancels the jobs that leave the group and have not ended.

        They leave it first: so their ends are not counted as those of the group.
        """
        if not retired:
            return
        await locked(tx, retired)
        await tx.fetch(growth_sql.LEAVE, sorted(retired))
        live = [row for row in await locked(tx, retired) if STATES[row["state"]] not in TERMINAL]
        changes = [(row, effects.CANCEL[STATES[row["state"]]]) for row in live]
        if not all(change.ends for _, change in changes):
            raise StoreUnavailable("a job of the group started just now; try again")
        await apply(tx, changes, self.by)

    async def _count_anew(self, tx: Transaction, rows: Rows, found: Reopening) -> None:
        """Writes the counters of nodes and of the group; no end is on its way any more."""
        jobs = [row["job"] for row in rows]
        counters = [(jobs[at], unmet, int(marks)) for at, (unmet, marks) in found.counters.items()]
        if counters:
            await tx.fetch(sql.COUNT_DOWN, *zip(*counters, strict=True))
        await write_scopes(tx, rows, found.scopes, set(found.reopened))
        await tx.fetch(growth_sql.FROM_THE_START, [jobs[at] for at in found.reopened])
        await tx.fetch(sql.FORGET_UNSETTLED, self.group)
        gone = [STATES[rows[at]["state"]] for at in (*found.reopened, *found.retired)]
        ended = Counter(state for state in gone if state in TERMINAL)
        failed = ended[JobState.FAILED] + ended[JobState.DEPENDENCY_FAILED]
        counts = (-ended.total(), -failed, -ended[JobState.CANCELLED])
        await tx.fetch(sql.UNCOUNT, self.group, *counts)

    async def retire(self, tx: Transaction, retired: Sequence[UUID]) -> None:
        """Removes the nodes of jobs that left the group."""
        if retired:
            await tx.fetch(growth_sql.RETIRE, retired, self.group)

    async def give_args(self, tx: Transaction, rows: Rows) -> None:
        """Gives the job that was named its new arguments, if there are any."""
        if self.args is None:
            return
        for row in rows:
            if row["key"] in self.keys:
                await tx.fetch(growth_sql.GIVE_ARGS, row["job"], self.args)


async def write_scopes(
    tx: Transaction,
    rows: Rows,
    scopes: Mapping[int, tuple[int, Marks]],
    opened: Collection[int] = (),
) -> None:
    """Gives nodes, by index among `rows`, new counters of their scopes."""
    columns = [
        (rows[at]["job"], left, int(marks), _has_ended(rows[at]) and at not in opened)
        for at, (left, marks) in scopes.items()
    ]
    if columns:
        await tx.fetch(growth_sql.COUNT_ANEW, *zip(*columns, strict=True))


def _has_ended(row: asyncpg.Record) -> bool:
    return STATES[row["state"]] in TERMINAL
