"""Fairness on the SQLite store: the turns of jobs, and the accounts of their keys.

The core computes turns (`core.fairness`). Only one transaction writes at a time, so an account
holds until its commit. A job that is ready when it is stored gets its turn then. One that becomes
ready later is stored behind `NEW`, out of the way of claims, and gets its turn by the next claim of
its lane, or by `open_limits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec import structs

from longshore.core.fairness import (
    ALL,
    IDLE_S,
    LOOKED_AT,
    MOST_BEFORE,
    MOST_READIED,
    NEW,
    Ground,
    front_of,
    ran,
    settled,
    turns,
    weight_of,
)
from longshore.core.lanes import lane_of
from longshore.model.fair import Account, FairKey, FairUse
from longshore.model.job import Submission, Submitted
from longshore.model.limits import LimitRule, LimitsOpened
from longshore.store.sqlite import limits
from longshore.store.sqlite.limit_rules import limit_rules
from longshore.store.sqlite.sql import Bulk, Row
from longshore.store.sqlite.transaction import Snapshot, Transaction

_WAITING: Final = f"""job INDEXED BY job_fair
    WHERE state = 'ready' AND fair IS NOT NULL AND blocked_on IS NOT '{NEW}'"""
_OF_KEY: Final = f"{_WAITING} AND fair = ? AND lane = ? AND priority = ?"
_LAST: Final = f"SELECT max(rank) FROM {_OF_KEY} AND number <= ?"
_FRONT: Final = f"""
    SELECT min(CASE WHEN fair IS NOT NULL AND attempt = 0 THEN rank END), max(rank), count(*)
    FROM (
        SELECT rank, fair, attempt FROM job INDEXED BY job_ready
        WHERE state = 'ready' AND blocked_on IS NULL AND lane = ? AND priority = ? AND number <= ?
        ORDER BY rank, number LIMIT {LOOKED_AT})"""
_ACCOUNT: Final = """
    SELECT finish, owed, open_jobs, open_cost, runs, mean_s FROM fair_key
    WHERE lane = ? AND priority = ? AND key = ?"""
_KEEP: Final = Bulk(
    "INSERT OR REPLACE INTO fair_key SELECT * FROM {rows} WHERE column1 IS NOT NULL", 10
)
_GIVE: Final = Bulk(
    """UPDATE job SET rank = v.column2, fair = v.column3, blocked_on = NULL,
        concurrency_key = nullif(concurrency_key, '')
    FROM {rows} AS v WHERE job.number = v.column1 AND job.state = 'ready'""",
    3,
)
_PUT_BEHIND: Final = Bulk(
    f"""UPDATE job SET fair = v.column2, blocked_on = '{NEW}'
    FROM {{rows}} AS v WHERE job.number = v.column1 AND job.state = 'delayed'""",
    2,
)
_STATES: Final = "SELECT number, state FROM job WHERE number IN (SELECT value FROM json_each(?))"
_READIED: Final = f"""
    SELECT number, lane, priority, fair FROM job INDEXED BY job_blocked
    WHERE state = 'ready' AND blocked_on IS NOT NULL AND blocked_on = '{NEW}'
        AND lane = ? ORDER BY priority DESC, rank, number LIMIT ?"""
_NEXT_LANE: Final = f"""
    SELECT min(lane) FROM job INDEXED BY job_blocked
    WHERE state = 'ready' AND blocked_on IS NOT NULL AND blocked_on = '{NEW}' AND lane > ?"""
_PLACE: Final = "SELECT number, lane, priority, rank, fair, blocked_on FROM job WHERE id = ?"
_BEFORE: Final = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM {_OF_KEY} AND (rank, number) < (?, ?) LIMIT {MOST_BEFORE})"""
_FORGET: Final = f"""
    DELETE FROM fair_key WHERE noted_at < ? AND NOT EXISTS (
        SELECT 1 FROM {_WAITING} AND fair = fair_key.key AND lane = fair_key.lane
            AND priority = fair_key.priority)"""


def rank_submitted(
    tx: Transaction, jobs: Sequence[Submission], answers: Sequence[object], last: int
) -> None:
    """Gives turns to new jobs, those with numbers above `last`, or puts them behind `NEW`."""
    found = {
        answer.number: job
        for job, answer in zip(jobs, answers, strict=True)
        if job.options.fair and isinstance(answer, Submitted) and answer.number > last
    }
    if not found:
        return
    tx.remembered.has_fair = True
    states = dict(tx.execute(_STATES, (msgspec.json.encode([*found]).decode(),)).fetchall())
    _PUT_BEHIND.run(tx.connection, [(number, job.options.fair) for number, job in found.items()])
    ready = {
        number: FairKey(
            lane_of(job.queue, job.kind, job.target).hash, job.priority, job.options.fair
        )
        for number, job in found.items()
        if states.get(number) == "ready"
    }
    _rank(tx, ready, last)


def _rank(tx: Transaction, jobs: Mapping[int, FairKey], last: int) -> None:
    """Gives turns to these ready jobs; those with numbers above `last` do not wait yet."""
    by_key: dict[FairKey, list[int]] = {}
    for number, key in jobs.items():
        by_key.setdefault(key, []).append(number)
    rules = limit_rules(tx) if by_key else []
    fronts: dict[tuple[int, int], int | None] = {}
    rows: list[Row] = []
    kept: dict[FairKey, Account] = {}
    for key, numbers in by_key.items():
        level = (key.lane, key.priority)
        if level not in fronts:
            fronts[level] = front_of(*tx.execute(_FRONT, (*level, last)).fetchone())
        ground = _ground(tx, key, fronts[level], last, rules)
        ranks, kept[key] = turns(_account(tx, key), ground, len(numbers))
        rows += [(number, rank, key.key) for number, rank in zip(numbers, ranks, strict=True)]
    _GIVE.run(tx.connection, rows)
    _keep(tx, kept)


def _ground(
    tx: Snapshot, key: FairKey, front: int | None, last: int, rules: Iterable[LimitRule]
) -> Ground:
    [furthest] = tx.execute(_LAST, (key.key, key.lane, key.priority, last)).fetchone()
    usual_s = _account(tx, key._replace(key=ALL)).mean_s
    return Ground(front, last + 1, furthest, weight_of(key.key, rules), usual_s)


def _account(tx: Snapshot, key: FairKey) -> Account:
    found = tx.execute(_ACCOUNT, key).fetchone()
    return Account(*found) if found else Account()


def _keep(tx: Transaction, accounts: Mapping[FairKey, Account]) -> None:
    rows: list[Row] = [
        (*key, one.finish, one.owed, one.open_jobs, one.open_cost, one.runs, one.mean_s, tx.now)
        for key, one in accounts.items()
    ]
    _KEEP.run(tx.connection, rows)


def open_limits(tx: Transaction, after: str = "", most: int = 1000) -> LimitsOpened:
    """Lets jobs go before claims that wait behind keys, or for their turn: see the port."""
    opened = limits.open_limits(tx, after, most)
    lanes = _lanes_of_new(tx)
    if lanes:
        tx.remembered.has_fair = True
    ready = give_turns(tx, lanes) + Counter(opened.ready)
    return structs.replace(opened, ready=dict(ready))


def _lanes_of_new(tx: Snapshot) -> list[int]:
    lanes: list[int] = []
    lane = -(1 << 63)
    while (found := tx.execute(_NEXT_LANE, (lane,)).fetchone()[0]) is not None:
        lane = found
        lanes.append(lane)
    return lanes


def give_turns(tx: Transaction, lanes: Collection[int]) -> Counter[int]:
    """Gives turns to so many jobs of these lanes that became ready; by lane."""
    jobs: dict[int, FairKey] = {}
    for lane in lanes:
        left = MOST_READIED - len(jobs)
        for number, *key in tx.execute(_READIED, (lane, left)).fetchall():
            jobs[number] = FairKey(*key)
    if jobs:
        _rank(tx, jobs, tx.last_number)
    return Counter(key.lane for key in jobs.values())


def note_use(tx: Transaction, uses: Sequence[FairUse]) -> None:
    """Attempts at jobs of these fair keys ended, after so long."""
    kept: dict[FairKey, Account] = {}
    for use in uses:
        level = use.of._replace(key=ALL)
        kept[level] = ran(kept.get(level) or _account(tx, level), use.runs, use.total_s)
    for use in uses:
        usual_s = kept[use.of._replace(key=ALL)].mean_s
        kept[use.of] = settled(_account(tx, use.of), usual_s, use.runs, use.total_s)
    _keep(tx, kept)
    tx.remembered.has_fair = True


def fair_place(tx: Snapshot, job: UUID) -> tuple[int, bool]:
    """How many ready jobs of its key are before a ready job, and whether it has no turn yet."""
    found = tx.execute(_PLACE, (job.bytes,)).fetchone()
    if found is None:
        return 0, False
    number, lane, priority, rank, key, behind = found
    [before] = tx.execute(_BEFORE, (key, lane, priority, rank, number)).fetchone()
    return before, behind == NEW


def forget_accounts(tx: Transaction) -> None:
    """Forgets keys of which nothing was heard for long, and of which no job waits."""
    tx.execute(_FORGET, (tx.now - round(IDLE_S * 1e6),))
