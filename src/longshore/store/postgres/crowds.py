"""Crowds on the PostgreSQL store: what new jobs do to the other live jobs of their key.

Theory. The core decides (`core.crowds`). `lock_crowds` locks the keys before the jobs are stored,
and `Crowds.settle` reads the crowds in a later statement: what other submits of these keys did is
committed by then, and visible. A claim passes over a key that is locked, so no job of a limited
key begins meanwhile.

Order of locks: jobs that end, then keys in their order, and then nothing is waited for. A job that
is to be cancelled may be in the hands of another transaction that ends it, and that one may wait
for the key. So a cancel takes only jobs that are free. The others are *held*: after the commit they
are cancelled one by one, by transactions that hold nothing else. Should this process die in
between, the next submit of the key cancels them, because it counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from longshore.core import crowds, effects
from longshore.core.crowds import Dropped, Fate, Member, Replaced, Timed, crowd_of
from longshore.model.job import Ended, JobState, Options, Submission
from longshore.store.postgres.changes import apply, locked
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.keeper_sql import LOCK, LOCK_FREE
from longshore.store.postgres.limited_claims import rules_of
from longshore.store.postgres.limits_sql import ADD_KEYS, LOCK_KEYS, RULES
from longshore.store.postgres.states import CANCELLING, ENDED, OWNED_CODES, READY, STATES

_MEMBERS: Final = f"""
SELECT i.crowd, l.*
FROM unnest($1::text[]) AS i (crowd)
CROSS JOIN LATERAL (
    SELECT j.id, j.number, j.state, j.attempt, j.calm_by,
        (extract(epoch FROM j.run_at) * 1000000)::bigint AS due_at,
        (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now
    FROM longshore.job AS j
    WHERE j.crowd = i.crowd AND j.crowd IS NOT NULL AND j.state < {ENDED}
        AND j.state <> {CANCELLING}
    OFFSET 0
) AS l
"""
_TIME: Final = """
UPDATE longshore.job AS j
SET run_at = 'epoch'::timestamptz + i.due_at * interval '1 microsecond', calm_by = i.calm_by
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS i (id, due_at, calm_by)
WHERE j.id = i.id
"""


class Held(NamedTuple):
    """A job that another transaction held when it was to be cancelled."""

    job: UUID
    fate: Replaced


def may_crowd(job: Submission) -> bool:
    """Whether a job belongs to a crowd; quickly, as most have neither limits nor a debounce."""
    options = job.options
    return bool(options.limits or options.debounce) and crowd_of(job.kind, options) is not None


async def lock_crowds(tx: Transaction, jobs: Sequence[Submission]) -> None:
    """Locks the keys of these jobs until the commit, waiting for others that have them."""
    crowded = {crowd_of(job.kind, job.options) for job in jobs}
    limited = {one.key for job in jobs for one in job.options.limits}
    wanted = sorted(limited.union(one for one in crowded if one is not None))
    # The row of a key may be removed between the two statements.
    while wanted:
        await tx.fetch(ADD_KEYS, wanted)
        if len(await tx.fetch(LOCK_KEYS, wanted)) == len(wanted):
            return


class Crowds:
    """What the new jobs of one transaction do to their crowds."""

    def __init__(self, tx: Transaction) -> None:
        self.ended: list[Ended] = []
        self.stopping: list[UUID] = []
        self.held: list[Held] = []
        self.dropped: list[tuple[UUID, int]] = []
        """The jobs that were dropped although they were ready, and their lanes."""
        self._tx = tx
        self._new: dict[str, dict[int, Options]] = {}

    def note(self, job: Submission, number: int) -> None:
        """A job is new."""
        crowd = crowd_of(job.kind, job.options)
        if crowd is not None:
            self._new.setdefault(crowd, {})[number] = job.options

    async def settle(self) -> None:
        """Decides what becomes of the crowds, and does it."""
        if not self._new:
            return
        rows = await self._tx.fetch(_MEMBERS, list(self._new))
        rules = rules_of(await self._tx.fetch(RULES))
        fates: list[Fate] = []
        for crowd, new in self._new.items():
            found = [row for row in rows if row["crowd"] == crowd]
            now = found[0]["now"] if found else 0
            fates += crowds.settle(map(_member, found), new, rules, now)
        await self._apply(fates, {row["number"]: row["id"] for row in rows})

    async def _apply(self, fates: Sequence[Fate], ids: dict[int, UUID]) -> None:
        timed = [one for one in fates if isinstance(one, Timed)]
        if timed:
            numbers, due_at, calm_by = zip(*timed, strict=True)
            await self._tx.fetch(_TIME, [ids[one] for one in numbers], due_at, calm_by)
        gone = {ids[one.number]: one for one in fates if not isinstance(one, Timed)}
        rows = await locked(self._tx, gone, LOCK_FREE)
        free = {row["id"] for row in rows}
        self.held += [
            Held(id, fate)
            for id, fate in gone.items()
            if id not in free and isinstance(fate, Replaced)
        ]
        done = await change(self._tx, rows, gone)
        for row, made in done:
            if made.ends:
                self.ended.append(effects.outcome(row["id"], made))
            else:
                self.stopping.append(row["id"])
            if made.state is JobState.SKIPPED and row["state"] == READY:
                self.dropped.append((row["id"], row["lane"]))


async def change(
    tx: Transaction, rows: Sequence[asyncpg.Record], fates: dict[UUID, Dropped | Replaced]
) -> list[tuple[asyncpg.Record, effects.Change]]:
    """Makes what became of these jobs, which are locked; answers the changes."""
    found = []
    for row in rows:
        fate, state = fates[row["id"]], STATES[row["state"]]
        if isinstance(fate, Dropped):
            effect = effects.of_drop(fate.why)
        elif fate.must_wait and row["state"] in OWNED_CODES:
            continue
        else:
            effect = effects.of_replacement(fate.by)
        if state in effect:
            found.append((row, effect[state]))
    await apply(tx, found)
    return found


async def cancel_held(tx: Transaction, held: Held) -> Ended | UUID | None:
    """Cancels a job that was held; answers its end, or its id if it runs and is to be stopped."""
    rows = await locked(tx, [held.job], LOCK)
    done = await change(tx, rows, {held.job: held.fate})
    for row, made in done:
        return effects.outcome(row["id"], made) if made.ends else held.job
    return None


def count_dropped(
    dropped: Iterable[tuple[UUID, int]], ready: Counter[int], sent: set[int], by_ends: Counter[int]
) -> None:
    """Jobs that were dropped are ready no more."""
    for id, lane in dropped:
        ready[lane] -= 1
        if id.int in sent:
            by_ends[lane] -= 1


def _member(row: asyncpg.Record) -> Member:
    state, has_begun = STATES[row["state"]], row["attempt"] > 0
    return Member(row["number"], state, has_begun, row["due_at"], row["calm_by"])
