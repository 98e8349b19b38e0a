"""The retry of a large group on PostgreSQL, in steps that `settle` takes up.

Theory. What a retry opens is decided by a look at the whole group, which locks nothing. The first
transaction then keeps the decision (`group_reopening`). All others carry it out, at most `most`
jobs in each, whoever takes them: the one that was asked, or `settle` of any dispatcher. Meanwhile
the jobs of the group that run go on, and end as ever.

- *The first transaction* holds the group's row. It forgets the notes of ends that will come again.
  It counts anew whoever is live and depends on what runs again, and the scopes that this is in, and
  holds those jobs that have not begun. What leaves the group and has not ended it cancels. So from
  then on nobody begins who must wait for what runs again. If something began or ended that the
  retry is about, since the look, the look is repeated.
- *Jobs leave the group* that ended, and that were added by what runs again.
- *Nodes are counted anew*, those of all jobs that run again. All of these jobs have still ended. So
  none of them can end a second time before the others know that they have to wait for it.
- *Jobs are opened.* From now on a job may begin as soon as all that it depends on has ended; those
  that depend on it know that they wait for it.
- *The last step* has the group swept: jobs that wait for nothing become ready.

While it lasts (`reopening`) nobody sweeps the group, closes it, adds to it from outside or retries
it. A pause or a cancel is noted in its row, and the sweep at the end does it.

A job may not be opened because another one got its unique key after the decision. Then it stays as
it ended, and those that depend on it hear of that end once more.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import effects
from longshore.core.dependencies import Marks
from longshore.core.lifecycle import TERMINAL
from longshore.core.reopening import NodeState, Reopening, inner_first, open_again, retry_plan
from longshore.errors import StoreUnavailable
from longshore.model.group import MAP, GroupState, RetryPlan
from longshore.model.job import JobState
from longshore.store.postgres import groups_sql as sql
from longshore.store.postgres import growth_sql
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import TURNS, Again, ConnectionPool, Transaction
from longshore.store.postgres.group_retry import GroupRetry, node_states
from longshore.store.postgres.keeper_sql import LOCK_FREE, REOPEN
from longshore.store.postgres.known_sql import HOLDERS
from longshore.store.postgres.node_pages import read_nodes
from longshore.store.postgres.recounting import (
    IS_AMONG,
    count_members,
    count_parents,
    hold_nodes,
    write_counters,
    write_scopes,
)
from longshore.store.postgres.states import CODES, GROUP_STATES, STATES
from longshore.store.rows import unique_key_taken

MOST_REOPENED: Final = 1000
"""A group of at most so many jobs is retried in one transaction, a larger one in steps of these."""
_PLACE_BYTES: Final = 4

_LOOK: Final = """
SELECT state, jobs, ended_at, retries FROM longshore.job_group WHERE id = $1 AND NOT is_gone
"""
_FORGET: Final = f"""
DELETE FROM longshore.unsettled AS u
WHERE EXISTS (
    SELECT FROM longshore.node AS n
    WHERE n.job = u.job AND n.group_id = $1 AND {IS_AMONG.format(place="n.place", bits="$2::bytea")}
    OFFSET 0
)
RETURNING u.job
"""
"""Waits for those who are delivering these notes: they hold a note before they hold nodes."""
_ADDED_BELOW: Final = f"""
SELECT FROM longshore.node AS z
WHERE z.group_id = $1 AND z.place > $3 AND EXISTS (
    SELECT FROM longshore.edge AS e JOIN longshore.node AS n ON n.job = e.parent
    WHERE e.child = z.job AND {IS_AMONG.format(place="n.place", bits="$2::bytea")}
)
LIMIT 1
"""
"""A job that came after the look and depends on what runs again: the look did not count it."""
_NOT_BEGUN: Final = ", ".join(str(CODES[state]) for state in (JobState.WAITING, *effects.HOLD))
_BEGUN: Final = f"""
SELECT FROM longshore.node AS n
CROSS JOIN LATERAL (SELECT state FROM longshore.job WHERE id = n.job OFFSET 0) AS j
WHERE n.group_id = $1 AND n.place = ANY ($2::integer[]) AND j.state NOT IN ({_NOT_BEGUN})
LIMIT 1
"""
_KEEP: Final = """
INSERT INTO longshore.group_reopening (group_id, request, asked_by, opened, retired, again)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_BEGIN: Final = "UPDATE longshore.job_group SET reopening = true WHERE id = $1"
_KEPT: Final = f"""
SELECT request, asked_by, done, octet_length(opened) / {_PLACE_BYTES} AS opened,
    octet_length(retired) / {_PLACE_BYTES} AS retired
FROM longshore.group_reopening WHERE group_id = $1 FOR UPDATE
"""
_PLACES: Final = f"""
SELECT substring({{column}} FROM 1 + {_PLACE_BYTES} * $2::integer FOR {_PLACE_BYTES} * $3::integer)
    AS places, again
FROM longshore.group_reopening WHERE group_id = $1
"""
_JOBS: Final = """
SELECT job FROM longshore.node WHERE group_id = $1 AND place = ANY ($2::integer[])
"""
_DONE: Final = "UPDATE longshore.group_reopening SET done = done + $2 WHERE group_id = $1"
_DROP: Final = "DELETE FROM longshore.group_reopening WHERE group_id = $1"
_END: Final = """
UPDATE longshore.job_group SET reopening = false, sweep_from = 0, sweep_again = true WHERE id = $1
"""


class _Look(NamedTuple):
    """What a look at the whole group found, and what a retry then does."""

    seen: tuple[int, datetime | None, int]
    """The state of the group, when it ended, and how often it was retried."""
    rows: Sequence[asyncpg.Record]
    nodes: Sequence[NodeState]
    plan: RetryPlan
    found: Reopening
    again: set[int]
    """The nodes that are open again, by index as all that follows."""
    counted: list[int]
    """Nodes of live jobs that depend on such, and wait for them again."""
    scopes: list[int]
    """Those among `again` with others in their scopes, inner ones first."""

    def jobs(self, indexes: Iterable[int]) -> list[UUID]:
        """The jobs of these nodes."""
        return [self.rows[at]["job"] for at in indexes]

    def live(self, indexes: Iterable[int]) -> list[int]:
        """Those of these nodes whose jobs had not ended."""
        return [at for at in indexes if self.nodes[at].state not in TERMINAL]

    def places(self, indexes: Iterable[int]) -> list[int]:
        """The places of these nodes."""
        return [self.rows[at]["place"] for at in indexes]

    def bits(self, indexes: Iterable[int]) -> bytes:
        """The places of these nodes, a bit for each place of the group."""
        bits = bytearray(self.rows[-1]["place"] // 8 + 1)
        for place in self.places(indexes):
            bits[place // 8] |= 1 << place % 8
        return bytes(bits)


class _Changed:
    """The answer of the first transaction if something that the retry is about has changed."""


async def reopen_in_steps(
    pool: ConnectionPool, reading: ConnectionPool, asked: GroupRetry, most: int
) -> RetryPlan | None:
    """Opens a new round of jobs of a large group, or says why not; None if it was pruned."""
    if (repeated := await pool.run(asked.repeated)) is not None:
        return repeated
    for _ in range(TURNS):
        look = await _look(reading, asked)
        if look is None:
            return None
        if asked.dry_run or look.plan.refused:
            return look.plan
        answer = await pool.run(_First(asked, look).run)
        if isinstance(answer, _Changed):
            continue
        await take_steps(pool, asked.group, most)
        return answer
    raise StoreUnavailable("jobs of the group changed too often while it was retried; try again")


async def take_steps(pool: ConnectionPool, group: UUID, most: int) -> None:
    """Does all that is left of a retry that was decided."""
    while await pool.run(lambda tx: take_step(tx, group, most)):
        pass


async def _look(pool: ConnectionPool, asked: GroupRetry) -> _Look | None:
    found = await pool.fetch(_LOOK, asked.group)
    if not found:
        return None
    [group] = found
    rows = await read_nodes(pool, asked.group)
    seen = (group["state"], group["ended_at"], group["retries"])
    # Python's own work: a large group would stop the event loop for a second.
    return await asyncio.to_thread(_decided, asked, seen, group["jobs"], rows)


def _decided(
    asked: GroupRetry,
    seen: tuple[int, datetime | None, int],
    jobs: int,
    rows: Sequence[asyncpg.Record],
) -> _Look:
    nodes = node_states(rows, jobs)
    plan, found = retry_plan(asked.group, GROUP_STATES[seen[0]], nodes, asked.keys)
    again, retired = open_again(nodes, found.reopened), set(found.retired)
    counted = [
        at
        for at, node in enumerate(nodes)
        if node.state not in TERMINAL and at not in retired and not again.isdisjoint(node.after)
    ]
    scopes = inner_first(nodes, again.intersection(found.scopes))
    return _Look(seen, rows, nodes, plan, found, again, counted, scopes)


class _First(NamedTuple):
    """The first transaction of a retry."""

    asked: GroupRetry
    look: _Look

    async def run(self, tx: Transaction) -> RetryPlan | _Changed | None:
        """Keeps the decision, and has all wait that is live and depends on what runs again."""
        asked, look = self.asked, self.look
        group = await asked.hold(tx)
        if group is None or isinstance(group, RetryPlan):
            return group
        if (group["state"], group["ended_at"], group["retries"]) != look.seen:
            return _Changed()
        last = look.rows[-1]["place"]
        if await tx.fetch(_ADDED_BELOW, asked.group, look.bits(look.again), last):
            return _Changed()
        if (key := await self._taken(tx)) is not None:
            return RetryPlan(asked.group, refused=unique_key_taken(key))
        await self._forget_notes(tx)
        if not await self._hold(tx):
            return _Changed()
        await asked.give_args(tx, look.rows)
        await self._keep(tx, GROUP_STATES[group["state"]])
        return look.plan

    async def _taken(self, tx: Transaction) -> str | None:
        """A unique key that two of the opened jobs have, or a live one that stays."""
        rows = [self.look.rows[at] for at in self.look.found.reopened]
        keys = Counter(
            (row["kind"], row["unique_key"]) for row in rows if row["unique_key"] is not None
        )
        if twice := [key for (_, key), count in keys.items() if count > 1]:
            return str(twice[0])
        retired = set(self.look.jobs(self.look.found.retired))
        holders = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
        taken: list[str] = [one["unique_key"] for one in holders if one["id"] not in retired]
        return taken[0] if taken else None

    async def _forget_notes(self, tx: Transaction) -> None:
        """No word of the old ends is on its way any more: they will be told again."""
        look = self.look
        bits = look.bits([*look.again, *look.found.retired])
        # Who delivered one of them may have noted another.
        while await tx.fetch(_FORGET, self.asked.group, bits):
            pass

    async def _hold(self, tx: Transaction) -> bool:
        """Has those wait that depend on what runs again; answers whether none of them began."""
        look, found = self.look, self.look.found
        leaving = look.live(found.retired)
        nodes = await hold_nodes(tx, look.jobs([*look.counted, *look.scopes, *leaving]))
        waiting = [at for at in look.counted if look.nodes[at].state in _HELD]
        jobs = set(look.jobs([*waiting, *leaving]))
        rows = await locked(tx, jobs, LOCK_FREE)
        if len(rows) < len(jobs):
            raise Again("a job of the group is changing just now")
        if any(_state(row) in TERMINAL for row in rows):
            return False  # a failure has spread since the look: what ended by it runs again, too
        named = look.places(look.live(found.wanted))
        if named and await tx.fetch(_BEGUN, self.asked.group, named):
            return False
        leave = set(look.jobs(leaving))
        held = [row for row in rows if row["id"] not in leave and _state(row) in effects.HOLD]
        if any(row["kind"] == MAP and nodes[row["id"]]["expanded"] for row in held):
            return False
        await self._count(tx)
        await apply(tx, [(row, effects.HOLD[_state(row)]) for row in held])
        await self.asked.cancel(tx, leave)
        await self.asked.retire(tx, list(leave))
        return True

    async def _count(self, tx: Transaction) -> None:
        """Scopes first: whether one is closed counts for those that depend on it."""
        look = self.look
        again, opened = look.bits(look.again), set(look.found.reopened)
        own = {at for at in look.scopes if at in opened and look.nodes[at].adds}
        # What a job added leaves the group when the job runs again.
        empty = dict.fromkeys(look.jobs(own), (0, Marks.NOTHING))
        others = look.jobs(at for at in look.scopes if at not in own)
        scopes = await count_members(tx, others, again, empty)
        await write_scopes(tx, empty | scopes, set(look.jobs(opened)))
        await write_counters(tx, await count_parents(tx, look.jobs(look.counted), again))

    async def _keep(self, tx: Transaction, state: GroupState) -> None:
        asked, look = self.asked, self.look
        await asked.run_again(tx, state, look.plan)
        await tx.fetch(_BEGIN, asked.group)
        left = [at for at in look.found.retired if look.nodes[at].state in TERMINAL]
        lists = [_packed(look.places(some)) for some in (look.found.reopened, left)]
        await tx.fetch(_KEEP, asked.group, asked.request, asked.by, *lists, look.bits(look.again))


_HELD: Final = frozenset({JobState.WAITING, *effects.HOLD})


def _state(row: asyncpg.Record) -> JobState:
    return STATES[row["state"]]


def _packed(places: Collection[int]) -> bytes:
    return array("i", places).tobytes()


def _unpacked(places: bytes) -> list[int]:
    found = array("i")
    found.frombytes(places)
    return found.tolist()


# steps


async def take_step(tx: Transaction, group: UUID, most: int, *, if_free: bool = False) -> bool:
    """Does the next step of a retry; answers whether something may be left of it.

    With `if_free` it does nothing while another takes a step.
    """
    rows = await tx.fetch(f"{_KEPT} SKIP LOCKED" if if_free else _KEPT, group)
    if not rows:
        return False
    step = _Step(group, rows[0]["asked_by"], rows[0]["request"])
    done, opened, retired = rows[0]["done"], rows[0]["opened"], rows[0]["retired"]
    if done < retired:
        count = await step.retire(tx, done, min(most, retired - done))
    elif done < retired + opened:
        at = done - retired
        count = await step.recount(tx, at, min(most, opened - at))
    elif done < retired + 2 * opened:
        at = done - retired - opened
        count = await step.open(tx, at, min(most, opened - at))
    else:
        await tx.fetch(_DROP, group)
        await tx.fetch(_END, group)
        return False
    await tx.fetch(_DONE, group, count)
    return True


class _Step(NamedTuple):
    """A step of the retry of a group."""

    group: UUID
    by: str
    request: UUID | None

    async def retire(self, tx: Transaction, at: int, count: int) -> int:
        """These jobs, which have ended, leave the group."""
        await tx.fetch(sql.LOCK_GROUP, self.group)
        jobs, _ = await self._jobs(tx, "retired", at, count)
        rows = await locked(tx, jobs)
        await tx.fetch(growth_sql.LEAVE, jobs)
        await tx.fetch(growth_sql.RETIRE, jobs, self.group)
        await self._uncount(tx, rows)
        return count

    async def recount(self, tx: Transaction, at: int, count: int) -> int:
        """The nodes of these jobs, which have ended, wait for all that they will have to."""
        jobs, again = await self._jobs(tx, "opened", at, count)
        await hold_nodes(tx, jobs)
        await write_counters(tx, await count_parents(tx, jobs, again))
        await tx.fetch(growth_sql.FROM_THE_START, jobs)
        return count

    async def open(self, tx: Transaction, at: int, count: int) -> int:
        """These jobs get a new round."""
        jobs, _ = await self._jobs(tx, "opened", at, count)
        rows = await locked(tx, jobs)
        taken = await _taken(tx, rows)
        for job in taken:
            tx.note(job)
        free = [row for row in rows if row["id"] not in taken]
        changes = [
            (row, effects.of_group_retry(row["round"], self.by, self.request)[_state(row)])
            for row in free
        ]
        await apply(tx, changes, self.by, REOPEN)
        await self._uncount(tx, free)
        return count

    async def _jobs(
        self, tx: Transaction, column: str, at: int, count: int
    ) -> tuple[list[UUID], bytes]:
        """The jobs at the next places, and the nodes that are open again."""
        [row] = await tx.fetch(_PLACES.format(column=column), self.group, at, count)
        found = await tx.fetch(_JOBS, self.group, _unpacked(row["places"]))
        return [one["job"] for one in found], row["again"]

    async def _uncount(self, tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
        await uncount(tx, self.group, [_state(row) for row in rows])


async def uncount(tx: Transaction, group: UUID, states: Iterable[JobState]) -> None:
    """Jobs in these states do not count as ended any more."""
    ended = Counter(state for state in states if state in TERMINAL)
    failed = ended[JobState.FAILED] + ended[JobState.DEPENDENCY_FAILED]
    counts = (-ended.total(), -failed, -ended[JobState.CANCELLED])
    await tx.fetch(sql.UNCOUNT, group, *counts)


async def _taken(tx: Transaction, rows: Sequence[asyncpg.Record]) -> set[UUID]:
    """The jobs whose unique key another one has by now."""
    keys: dict[tuple[str, str], list[UUID]] = {}
    for row in rows:
        if row["unique_key"] is not None:
            keys.setdefault((row["kind"], row["unique_key"]), []).append(row["id"])
    held = await tx.fetch(HOLDERS, *zip(*keys, strict=True)) if keys else []
    held_keys = {(one["kind"], one["unique_key"]) for one in held}
    return {job for key, jobs in keys.items() for job in (jobs if key in held_keys else jobs[1:])}
