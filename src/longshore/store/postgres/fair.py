"""Fairness on the PostgreSQL store: the turns of jobs, and the accounts of their keys.

Theory. The core computes turns (`core.fairness`). A job that is submitted ready gets its turn in
the transaction that stores it. A job that becomes ready later (of a group, with a delay, of an
application's own transaction) is stored behind `NEW`, out of the way of claims. Nothing that makes
it ready needs to know of that. The next claim of its lane, or else `open_limits`, gives it a turn.

A turn needs the account of its key, locked, and then, in a *later* statement, what waits in the
lane: so it sees what the one that had the lock before did. Nobody waits for an account while he
holds anything: if another transaction has it, the job is stored behind `NEW` too. So there is no
order of locks to keep here. An account is charged for the jobs that were inserted: a submit that is
repeated inserts nothing, and is charged nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from longshore.core.fairness import (
    ALL,
    MOST_READIED,
    Ground,
    front_of,
    ran,
    settled,
    turns,
    weight_of,
)
from longshore.core.lanes import lane_of
from longshore.model.fair import Account, FairKey, FairUse
from longshore.model.job import Submission
from longshore.store.postgres import fair_sql as sql
from longshore.store.postgres.connections import Transaction
from longshore.store.postgres.cursors import ClaimCursors, whole_lane
from longshore.store.postgres.limited_claims import rules_of
from longshore.store.postgres.limits_sql import RULES

Accounts = Mapping[FairKey, Account]


class FairLanes:
    """What a pump knows of the lanes with fair jobs: how far claims came, where jobs may be new."""

    def __init__(self, cursors: ClaimCursors) -> None:
        self.cursors = cursors
        self.with_new: set[int] = set()
        """The lanes in which jobs may become ready that have no turn yet."""

    async def ready(self, tx: Transaction, lanes: Iterable[int]) -> None:
        """Gives turns to jobs of these lanes that became ready."""
        if some := self.with_new.intersection(lanes):
            await give_turns(tx, some, self.cursors)


class NewTurns(NamedTuple):
    """The ranks of some jobs, and what the accounts of their keys were before."""

    ranks: dict[UUID, int]
    keys: dict[UUID, FairKey]
    accounts: Accounts
    grounds: Mapping[FairKey, Ground]

    def charges(self, jobs: Iterable[UUID]) -> dict[FairKey, Account]:
        """The accounts after these of the jobs."""
        counts = Counter(self.keys[job] for job in jobs if job in self.ranks)
        return {
            key: turns(self.accounts[key], self.grounds[key], count)[1]
            for key, count in counts.items()
        }


NO_TURNS = NewTurns({}, {}, {}, {})


def fair_key_of(job: Submission) -> FairKey:
    """The key under which a job shares the workers of its lane."""
    return FairKey(lane_of(job.queue, job.kind, job.target).hash, job.priority, job.options.fair)


def fair_lanes_of(jobs: Iterable[Submission]) -> set[int]:
    """The lanes of those of these jobs that have a fair key."""
    return {fair_key_of(job).lane for job in jobs if job.options.fair}


def is_due(job: Submission) -> bool:
    """Whether a job is surely ready as soon as it is stored."""
    return job.run_at is None and job.delay_s is None


async def new_turns(
    tx: Transaction, keys: Mapping[UUID, FairKey], cursors: ClaimCursors
) -> NewTurns:
    """Turns for these jobs, in this order, except for those whose account another one has."""
    if not keys:
        return NO_TURNS
    accounts = await _locked(tx, sorted(set(keys.values())))
    grounds = await _grounds(tx, [*accounts], cursors) if accounts else {}
    ranks: dict[UUID, int] = {}
    jobs: dict[FairKey, list[UUID]] = {}
    for job, key in keys.items():
        if key in accounts:
            jobs.setdefault(key, []).append(job)
    for key, some in jobs.items():
        found, _ = turns(accounts[key], grounds[key], len(some))
        ranks.update(zip(some, found, strict=True))
    return NewTurns(ranks, dict(keys), accounts, grounds)


async def _locked(tx: Transaction, keys: Sequence[FairKey]) -> dict[FairKey, Account]:
    """The accounts of these keys that nobody else has; those that are not there yet are made."""
    found = _accounts(await tx.fetch(sql.TRY_ACCOUNTS, *zip(*keys, strict=True)))
    missing = [key for key in keys if key not in found]
    if missing:
        columns = list(zip(*missing, strict=True))
        await tx.fetch(sql.ADD_ACCOUNTS, *columns)
        found |= _accounts(await tx.fetch(sql.TRY_ACCOUNTS, *columns))
    return found


async def _grounds(
    tx: Transaction, keys: Sequence[FairKey], cursors: ClaimCursors
) -> dict[FairKey, Ground]:
    levels = sorted({(key.lane, key.priority) for key in keys})
    marks = [cursors.mark(lane, ~priority) or _start(lane) for lane, priority in levels]
    columns = [*zip(*keys, strict=True), *zip(*levels, strict=True), *zip(*marks, strict=True)]
    rows = await tx.fetch(sql.GROUNDS, *columns)
    rules = rules_of(await tx.fetch(RULES))
    return {
        FairKey(row["lane"], row["priority"], row["key"]): Ground(
            front_of(row["first_fair"], row["furthest"], row["seen"]),
            row["number"],
            row["last"],
            weight_of(row["key"], rules),
            row["usual_s"],
        )
        for row in rows
    }


def _start(lane: int) -> tuple[int, int]:
    """The place before all others."""
    _, _, rank, number, _ = whole_lane(lane)
    return rank, number


async def keep_accounts(tx: Transaction, accounts: Accounts) -> None:
    """Writes these accounts, which are locked."""
    if accounts:
        rows = [
            (*key, one.finish, one.owed, one.open_jobs, one.open_cost, one.runs, one.mean_s)
            for key, one in accounts.items()
        ]
        await tx.fetch(sql.KEEP_ACCOUNTS, *zip(*rows, strict=True))


async def give_turns(
    tx: Transaction,
    lanes: Collection[int],
    cursors: ClaimCursors,
    most: int = MOST_READIED,
) -> Counter[int]:
    """Gives turns to so many jobs of these lanes that became ready without one; by lane."""
    rows = await tx.fetch(sql.READIED, [*lanes], most)
    jobs = {row["id"]: FairKey(row["lane"], row["priority"], row["fair"]) for row in rows}
    return await rank_ready(tx, jobs, {row["id"]: row["number"] for row in rows}, cursors)


async def rank_ready(
    tx: Transaction,
    keys: Mapping[UUID, FairKey],
    numbers: Mapping[UUID, int],
    cursors: ClaimCursors,
) -> Counter[int]:
    """Gives turns to these ready jobs, which are locked; answers how many got one, by lane."""
    new = await new_turns(tx, keys, cursors)
    if not new.ranks:
        return Counter()
    ids = [*new.ranks]
    await tx.fetch(sql.GIVE_TURNS, ids, [*new.ranks.values()], [keys[id].key for id in ids])
    await keep_accounts(tx, new.charges(ids))
    for id, rank in new.ranks.items():
        cursors.put_back(keys[id].lane, ~keys[id].priority, (rank, numbers[id]))
    return Counter(keys[id].lane for id in ids)


async def note_use(tx: Transaction, uses: Sequence[FairUse]) -> None:
    """Sets what attempts took against what their keys were charged."""
    by_key = {use.of: use for use in uses}
    levels = {key._replace(key=ALL) for key in by_key}
    wanted = list(zip(*sorted(levels.union(by_key)), strict=True))
    await tx.fetch(sql.ADD_ACCOUNTS, *wanted)
    found = _accounts(await tx.fetch(sql.LOCK_ACCOUNTS, *wanted))
    kept: dict[FairKey, Account] = {}
    for key, use in by_key.items():
        level = key._replace(key=ALL)
        if level in found and key in found:
            kept[level] = ran(kept.get(level, found[level]), use.runs, use.total_s)
    for key, use in by_key.items():
        usual = kept.get(key._replace(key=ALL))
        if usual is not None and key in found:
            kept[key] = settled(found[key], usual.mean_s, use.runs, use.total_s)
    await keep_accounts(tx, kept)


def _accounts(rows: Sequence[asyncpg.Record]) -> dict[FairKey, Account]:
    return {
        FairKey(lane, priority, key): Account(*account) for lane, priority, key, *account in rows
    }
