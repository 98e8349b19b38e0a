"""The groups of the PostgreSQL store: submitted, swept, closed and shown.

Three things happen to a group beside the ends of its jobs. An end reaches dependents (`settling`).
A *sweep* brings every job of the group to where the group's state wants it: when the group begins,
and when it is cancelled. It goes through the nodes in bounded steps, and begins anew for as long as
it met rows that others held. A group *closes* when as many jobs have ended as it has: the counts
are read first without any lock, then again under the lock of the group's row.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

import asyncpg
from msgspec import structs

from longshore.core import effects
from longshore.core.dependencies import becomes, group_end, may_wake
from longshore.core.effects import Effect
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState, Reopening, retry_plan
from longshore.core.why import Facts
from longshore.errors import StoreUnavailable
from longshore.model.attempt import Attempt
from longshore.model.group import (
    MOST_AT_ONCE,
    MOST_SHOWN,
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
from longshore.model.ids import derive_id
from longshore.model.job import Ended, Job, JobState, Refused
from longshore.payload.references import MAX_REFERENCED_BYTES, NodeResult
from longshore.ports import Hint, Settled
from longshore.store.filling import by_job, fill, wanted_results
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.columns import columns, lane_of_item
from longshore.store.postgres.connections import ConnectionPool, Transaction
from longshore.store.postgres.hints import Sender
from longshore.store.postgres.keeper_sql import LOCK_FREE, REOPEN
from longshore.store.postgres.pump import Pump
from longshore.store.postgres.reads import PostgresReads
from longshore.store.postgres.settling import Settling, deliver_noted, waiting
from longshore.store.postgres.sql import ADD_LANES, HOLDERS
from longshore.store.postgres.states import (
    CONDITION_OF,
    CONDITIONS,
    GROUP_CODES,
    GROUP_STATES,
    STATES,
    WAITING,
)
from longshore.store.rows import (
    INT64,
    LARGEST_INT,
    NodeItem,
    clean,
    group_conflict,
    key_taken,
    node_items,
    unique_key_taken,
)

MOST_CLOSED: Final = 100


class PostgresGroups(PostgresReads):
    """The verbs of groups."""

    _keeping: ConnectionPool
    _pump: Pump
    _sender: Sender
    _clock: Callable[[], float]

    def __init__(self) -> None:
        super().__init__()
        self._staging: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        """Stores some nodes of a group. With the last of them it runs, all or nothing."""
        items = node_items(part)
        if isinstance(items, Refused):
            return items

        async def work(tx: Transaction) -> tuple[GroupSubmitted | Refused, Settling]:
            settling = Settling(tx)
            try:
                async with tx.savepoint():
                    return await _stage(tx, part, items, settling), settling
            except _NotAccepted as error:
                return error.answer, Settling(tx)

        # Parts of one group would wait for each other on connections that leases need.
        async with self._staging.setdefault(part.head.id, asyncio.Lock()):
            answer, settling = await self._keeping.run(work)
        self._tell(settling)
        return answer

    async def settle(self, groups: Collection[UUID] = (), most: int = 1000) -> Settled:
        """Does some of what groups have to do, of at most so many jobs."""
        delivered = await self._keeping.run(lambda tx: deliver_noted(tx, most))
        swept = await self._keeping.run(lambda tx: _sweep(tx, most))
        named = list({*groups, *delivered.groups, *swept.groups}) if groups else None
        closed, again = await self._keeping.run(lambda tx: _close(tx, named))
        for settling in (delivered, swept):
            self._tell(settling)
        ended = (*delivered.ended, *swept.ended, *closed)
        if ended:
            self._sender.tell(Hint.ENDED)
        over = {one.id for one in closed}
        return Settled(
            delivered.ready + swept.ready,
            delivered.delayed or swept.delayed,
            ended,
            frozenset((delivered.groups | swept.groups | again) - over),
        )

    def _tell(self, settling: Settling) -> None:
        """Makes the claims of this process find at once what became ready, and hints at it."""
        for lane, urgency, place in settling.places:
            self._pump.cursors.put_back(lane, urgency, place)
        if settling.ready:
            self._sender.tell(Hint.WORK)
        if settling.cancelling:
            self._sender.tell(Hint.CANCEL)

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        """Marks a group as cancelling; `settle` ends its jobs."""
        group = await self.group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        code, who = GROUP_CODES[GroupState.CANCELLING], clean(by) or "a client"
        rows = await self._keeping.fetch(sql.CANCEL_GROUP, group.id, code, who)
        return GroupVerdict.CANCELLING if rows else GroupVerdict.ALREADY_ENDED

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        """Holds a group's jobs that have not begun, or lets them go on."""
        group = await self.group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        state = GroupState.PAUSED if paused else GroupState.RUNNING
        may = [GROUP_CODES[GroupState.RUNNING], GROUP_CODES[GroupState.PAUSED]]
        rows = await self._keeping.fetch(sql.PAUSE_GROUP, group.id, GROUP_CODES[state], may)
        if rows:
            return GroupVerdict(state.value)
        again = await self.group(group.id)
        over = again is None or again.ended_at is not None
        return GroupVerdict.ALREADY_ENDED if over else GroupVerdict.NOT_RUNNING

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
    ) -> RetryPlan | None:
        """Opens a new round of what did not succeed, or of some jobs and all below them."""
        group = await self.group(ref)
        if group is None:
            return None
        retry = _Retry(group.id, by, request, keys, dry_run)
        return await self._keeping.run(retry.run)

    async def _filled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts with the results that their arguments refer to."""
        wanted = wanted_results(attempts)
        rows: Sequence[asyncpg.Record] = ()
        if wanted:
            columns = zip(*wanted, strict=True)
            rows = await self._reading.fetch(sql.RESULTS, *columns, MAX_REFERENCED_BYTES)
        results = (
            (row["job"], row["key"], NodeResult(STATES[row["state"]], row["size"], row["result"]))
            for row in rows
        )
        return fill(attempts, by_job(results))

    # showing

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is; of a job of a group, also what it waits for."""
        facts = await super().explain(job)
        if job.group is None:
            return facts
        rows = await self._reading.fetch(sql.NODE_FACTS, job.id)
        groups = await self._reading.fetch(sql.GROUP_BY_ID, job.group)
        if not rows or not groups:
            return facts
        [row], [group] = rows, groups
        others = await self._reading.fetch(sql.WAITS_FOR, job.id, MOST_SHOWN)
        node = NodeFacts(
            key=row["key"],
            group=_shown(group, {}),
            on=CONDITION_OF[row["condition"]],
            after=row["after"],
            unmet=row["unmet"],
            waits_for=tuple((key, STATES[state]) for key, state in others),
        )
        return structs.replace(facts, node=node)

    async def group(self, ref: UUID | int) -> Group | None:
        """One group, by its id or number."""
        if isinstance(ref, int) and ref not in INT64:
            return None
        query = sql.GROUP_BY_NUMBER if isinstance(ref, int) else sql.GROUP_BY_ID
        for row in await self._reading.fetch(query, ref):
            counts = await self._reading.fetch(sql.GROUP_COUNTS, row["id"])
            return _shown(row, {STATES[one["state"]].value: one["n"] for one in counts})
        return None

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        """Groups, newest first, without counts."""
        states = [GROUP_CODES[state] for state in wanted.states] or None
        before = LARGEST_INT if wanted.before is None else max(0, min(wanted.before, LARGEST_INT))
        name = None if wanted.name is None else clean(wanted.name)
        rows = await self._reading.fetch(sql.LIST_GROUPS, states, name, before, wanted.limit)
        return [_shown(row, {}) for row in rows]

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        """The nodes of a group in its order, after a place in it."""
        rows = await self._reading.fetch(sql.NODES, group, after, most)
        return [
            NodeView(
                key=row["key"],
                job=row["job"],
                number=row["number"],
                kind=row["kind"],
                state=STATES[row["state"]],
                after=tuple(row["after"]),
                on=CONDITION_OF[row["condition"]],
                unmet=row["unmet"],
            )
            for row in rows
        ]


class _NotAccepted(Exception):
    """Undoes what a refused part has stored."""

    def __init__(self, answer: Refused) -> None:
        super().__init__(answer.message)
        self.answer = answer


# submitting


async def _stage(
    tx: Transaction, part: GroupPart, items: Sequence[NodeItem], settling: Settling
) -> GroupSubmitted | Refused:
    head = part.head
    values = (head.jobs, GROUP_CODES[GroupState.STAGING], head.fail_fast, head.name)
    await tx.fetch(sql.ADD_GROUP, head.id, *values, list(head.labels))
    locked_group = await tx.fetch(sql.LOCK_GROUP, head.id)
    if not locked_group:
        raise StoreUnavailable(f"group {head.id} was pruned just now; try again")
    [group] = locked_group
    if not _is_same(group, head):
        return group_conflict(head.id)
    state, staged = GROUP_STATES[group["state"]], group["staged"]
    if state is GroupState.STAGING:
        new = await _unknown(tx, part, items)
        if new:
            await _add(tx, head.id, new)
        staged += len(new)
        if staged == head.jobs:
            state = GroupState.RUNNING if head.jobs else GroupState.SUCCEEDED
        await tx.fetch(sql.NOW_STAGED, head.id, len(new), GROUP_CODES[state])
        if state is GroupState.RUNNING:
            await _begin(tx, head.id, settling)
    return GroupSubmitted(head.id, group["number"], state, staged)


def _is_same(row: asyncpg.Record, head: GroupHead) -> bool:
    stored = (row["name"], row["jobs"], row["fail_fast"], tuple(row["labels"]))
    return stored == (head.name, head.jobs, head.fail_fast, head.labels)


async def _unknown(
    tx: Transaction, part: GroupPart, items: Sequence[NodeItem]
) -> Sequence[NodeItem]:
    """The nodes of a part that are not stored yet; those that are must be the same."""
    last = part.first + len(part.nodes)
    rows = await tx.fetch(sql.STAGED, part.head.id, part.first, last)
    stored = {row["place"]: row["body_hash"] for row in rows}
    if any(stored.get(item.place, item.body) != item.body for item in items):
        raise _NotAccepted(group_conflict(part.head.id))
    return [item for item in items if item.place not in stored]


async def _add(tx: Transaction, group: UUID, items: Sequence[NodeItem]) -> None:
    jobs = [(item.node.job, item.job_body) for item in items]
    values = [*columns(jobs)]
    delays = [item.node.job.delay_s for item in items]
    values[6] = delays if any(delay is not None for delay in delays) else []
    rows = await tx.fetch(
        sql.ADD_NODES,
        *values,
        group,
        [item.body for item in items],
        [item.place for item in items],
        [len(item.parents) for item in items],
        [CONDITIONS[item.node.on] for item in items],
        [item.node.key for item in items],
    )
    if sum(row["n"] for row in rows) < len(items):
        raise _NotAccepted(await _taken(tx, group, items))
    ids = {item.place: item.node.job.id for item in items}
    for at in {at for item in items for at in item.parents}.difference(ids):
        ids[at] = derive_id(group, at)
    edges = [(ids[at], item.node.job.id) for item in items for at in item.parents]
    if edges:
        await tx.fetch(sql.ADD_EDGES, *zip(*edges, strict=True))
    lanes = {lane.hash: lane for lane in map(lane_of_item, jobs)}
    fields = [(lane.hash, lane.queue, lane.kind, lane.target) for lane in lanes.values()]
    await tx.fetch(ADD_LANES, *zip(*fields, strict=True))
    for row in rows:
        tx.count(row["lane"], None, WAITING, row["n"])


async def _taken(tx: Transaction, group: UUID, items: Sequence[NodeItem]) -> Refused:
    """The refusal of a group, naming the first job whose id or unique key is taken."""
    own = {item.node.job.id for item in items}
    keyed = [item.node.job for item in items if item.node.job.unique_key is not None]
    keys = [(job.kind, job.unique_key) for job in keyed]
    rows = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
    held = {(row["kind"], row["unique_key"]) for row in rows if row["id"] not in own}
    held |= {key for key in keys if keys.count(key) > 1}
    for item in items:
        if (item.node.job.kind, item.node.job.unique_key) in held:
            return key_taken(group, item.node.key, item.node.job)
    return key_taken(group, items[0].node.key, items[0].node.job)


async def _begin(tx: Transaction, group: UUID, settling: Settling) -> None:
    """Makes the jobs ready that depend on nothing; if they are many, a sweep does the rest."""
    rows = await tx.fetch(sql.SWEPT_NODES, group, 0, MOST_AT_ONCE, False)
    await settling.wake({row["job"]: change for row in rows if (change := becomes(waiting(row)))})
    if len(rows) == MOST_AT_ONCE:
        await tx.fetch(sql.SWEEP_ON, group, rows[-1]["place"] + 1, False)
        settling.groups.add(group)


# upkeep


async def _sweep(tx: Transaction, most: int) -> Settling:
    """Brings some jobs of one group to where the group's state wants them."""
    settling = Settling(tx)
    found = await tx.fetch(sql.NEXT_SWEEP)
    # Also the group after this one: whoever settles then goes on with it at once.
    settling.groups.update(group["id"] for group in found)
    for group in found[:1]:
        state, first = GROUP_STATES[group["state"]], group["sweep_from"]
        every = not may_wake(state)
        rows = await tx.fetch(sql.SWEPT_NODES, group["id"], first, most, every)
        live = [row for row in rows if STATES[row["state"]] not in TERMINAL]
        free = [row for row in live if row["condition"] is not None]
        missed = await _bring(tx, state, free, group, settling)
        again = len(free) < len(live) or missed > 0
        if len(rows) < most:
            again = again or group["sweep_again"]
            next_place, again = (0 if again else None), False
        else:
            next_place, again = rows[-1]["place"] + 1, again or group["sweep_again"]
        await tx.fetch(sql.SWEEP_ON, group["id"], next_place, again)
    return settling


async def _bring(
    tx: Transaction,
    state: GroupState,
    nodes: Sequence[asyncpg.Record],
    group: asyncpg.Record,
    settling: Settling,
) -> int:
    """Brings the jobs of these nodes to where the group's state wants them; answers the missed."""
    match state:
        case GroupState.CANCELLING:
            return await _change(tx, nodes, effects.CANCEL, settling, group["cancelled_by"])
        case GroupState.PAUSED:
            return await _change(tx, nodes, effects.HOLD, settling)
        case _:
            wakes = {row["job"]: change for row in nodes if (change := becomes(waiting(row)))}
            await settling.wake(wakes)
            return 0


async def _change(
    tx: Transaction,
    nodes: Sequence[asyncpg.Record],
    effect: Effect,
    settling: Settling,
    by: str = "",
) -> int:
    """Changes the jobs of these nodes; answers how many were held by others."""
    wanted = [row["job"] for row in nodes if STATES[row["state"]] in effect]
    rows = await locked(tx, wanted, LOCK_FREE)
    made = [
        (row, change) for row in rows if (change := effect.get(STATES[row["state"]])) is not None
    ]
    await apply(tx, made, by)
    for row, change in made:
        if change.ends:
            settling.ended.append(effects.outcome(row["id"], change))
        elif change.state is JobState.CANCELLING:
            settling.cancelling = True
    return len(wanted) - len(rows)


async def _close(tx: Transaction, named: list[UUID] | None) -> tuple[list[Ended], set[UUID]]:
    """Ends groups without a live job; answers also those whose rest a failure cancels."""
    running, staging = GROUP_CODES[GroupState.RUNNING], GROUP_CODES[GroupState.STAGING]
    found = await tx.fetch(sql.MAY_BE_OVER, running, staging, named, MOST_CLOSED)
    if not found:
        return [], set()
    held = await tx.fetch(sql.HOLD_GROUPS, [row["id"] for row in found])
    rows = await tx.fetch(sql.ARE_OVER, running, [row["id"] for row in held])
    over = {
        row["id"]: group_end(row["failed"], row["cancelled"], by_user=bool(row["cancelled_by"]))
        for row in rows
        if row["ended"] >= row["staged"]
    }
    if over:
        await tx.fetch(sql.CLOSE, list(over), [GROUP_CODES[state] for state in over.values()])
    failing = {row["id"] for row in rows if row["id"] not in over}
    if failing:
        code = GROUP_CODES[GroupState.CANCELLING]
        await tx.fetch(sql.CANCEL_ALL, list(failing), code)
    return [Ended(id, JobState(state.value)) for id, state in over.items()], failing


# retrying


class _Retry(NamedTuple):
    """The retry of a group, in one transaction.

    It holds the group's row and all its nodes first. So nobody counts a node down between the look
    at the states and the new counters.
    """

    group: UUID
    by: str
    request: UUID | None
    keys: Sequence[str]
    dry_run: bool

    async def run(self, tx: Transaction) -> RetryPlan | None:
        """Opens the rounds, or says why not; None if the group was pruned."""
        found = await tx.fetch(sql.LOCK_GROUP, self.group)
        if not found or found[0]["is_gone"]:
            return None
        [group] = found
        for row in await tx.fetch(sql.RETRIED, self.request) if self.request else ():
            tx.rest_on_found()
            return RetryPlan(self.group, tuple(row["reopened"]))
        await tx.fetch(sql.HOLD_NODES, self.group)
        rows = await tx.fetch(sql.NODE_STATES, self.group)
        nodes = [NodeState(row["key"], STATES[row["state"]], row["after"]) for row in rows]
        state = GROUP_STATES[group["state"]]
        # Python's own work: a large group would stop the event loop for a second.
        plan, changes = await asyncio.to_thread(retry_plan, self.group, state, nodes, self.keys)
        if plan.refused or self.dry_run:
            return plan
        jobs = [row["job"] for row in rows]
        if (taken := await self._open(tx, jobs, changes)) is not None:
            return RetryPlan(self.group, refused=unique_key_taken(taken))
        counters = [
            (jobs[at], unmet, int(marks)) for at, (unmet, marks) in changes.counters.items()
        ]
        await tx.fetch(sql.COUNT_DOWN, *zip(*counters, strict=True))
        await tx.fetch(sql.FORGET_UNSETTLED, self.group)
        ended = Counter(nodes[at].state for at in changes.reopened)
        failed = ended[JobState.FAILED] + ended[JobState.DEPENDENCY_FAILED]
        counts = (-ended.total(), -failed, -ended[JobState.CANCELLED])
        await tx.fetch(sql.UNCOUNT, self.group, *counts)
        state = GroupState.PAUSED if state is GroupState.PAUSED else GroupState.RUNNING
        await tx.fetch(sql.RUN_AGAIN, self.group, GROUP_CODES[state])
        if self.request is not None:
            await tx.fetch(sql.NOTE_RETRY, self.request, self.group, list(plan.reopened))
        return plan

    async def _open(self, tx: Transaction, jobs: Sequence[UUID], found: Reopening) -> str | None:
        """Changes the jobs; answers a unique key that another job has, if there is one."""
        rows = await locked(tx, [jobs[at] for at in found.reopened])
        keys = {(row["kind"], row["unique_key"]) for row in rows if row["unique_key"] is not None}
        taken = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
        if taken:
            key: str = taken[0]["unique_key"]
            return key
        changes = [
            (row, effects.of_group_retry(row["round"], self.by, self.request)[STATES[row["state"]]])
            for row in rows
        ]
        await apply(tx, changes, self.by, REOPEN)
        held = await locked(tx, [jobs[at] for at in found.held])
        if any(STATES[row["state"]] not in effects.HOLD for row in held):
            raise StoreUnavailable("a job of the group started just now; try again")
        await apply(tx, [(row, effects.HOLD[STATES[row["state"]]]) for row in held])
        return None


def _shown(row: asyncpg.Record, counts: dict[str, int]) -> Group:
    values = {**row, "state": GROUP_STATES[row["state"]], "labels": tuple(row["labels"])}
    return Group(**values, counts=counts)
