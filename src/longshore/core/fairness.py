"""Fairness between keys: the turn that each job gets when it becomes ready.

Theory: start-time fair queueing. Claims take the ready jobs of one priority by their *rank*. That
of most jobs is their number. A job with a fair key gets a rank of its own, its turn, once, when it
becomes ready: it starts where the last job of its key *finishes*, which is that job's start and its
cost, divided by the weight of the key. So the jobs of one key lie one behind the other, those of
two keys side by side, and whoever takes them by rank takes from each key in proportion to its
weight.

A key that comes, or comes back, starts at the *front*: where service is now, that is at the lowest
rank of the fair jobs that wait in its lane. So it gets no credit for the time before, and what it
did not use then is not saved up. If none waits, it starts at the number of the next job. Thus fair
jobs and others share one scale, and nobody who had the workers to himself pays for it later.

The cost of a job is the mean run time of its key, in units of that of all keys of its lane. Known
only afterwards is what a job really took. What a key took beyond what it was charged it *owes*: its
next job starts so much later. If it took less, its next jobs cost half until that is even.

What a key is charged for jobs that never run, because they are cancelled or expire, it does not
pay: its next job starts right behind the last that still waits.

Rules of limits have the weights: the most specific rule with a weight counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor
from typing import Final, NamedTuple

from msgspec.structs import replace

from longshore.core.key_limits import is_whole, key_of, matches, specific, why_no_key
from longshore.errors import InvalidInput
from longshore.model.fair import Account
from longshore.model.limits import LimitRule

MOST_RUNS: Final = 200
"""For how many runs the mean of a key counts at most when further runs come."""
SUPPOSED_RUNS: Final = 2
"""A key counts as if it had run so often before as long as others do on average."""
LEAST_COST: Final = 1 / 64
MOST_COST: Final = 64.0
MOST_OWED: Final = 1_000_000.0
"""A key owes at most so many runs of the mean length."""
IDLE_S: Final = 86_400.0
"""A key of which nothing was heard for so long is forgotten."""
LOOKED_AT: Final = 64
"""At so many jobs a store looks for the front of a lane."""
MOST_BEFORE: Final = 10_000
"""So many jobs before another one of its key are counted."""
MOST_READIED: Final = 1000
"""So many jobs that became ready get their turns at once."""

NEW: Final = "fair"
"""Behind this, which is no key of a limit, jobs wait that have no turn yet."""
ALL: Final = ""
"""The account under this key has the runs of all keys of a lane."""


class Ground(NamedTuple):
    """What a turn depends on beside the account of the key, read under its lock.

    `front` is the lowest rank of the fair jobs that wait, None if none does, `number` that of the
    next job, and `last` the highest rank of the key's own jobs that wait, None if none does.
    """

    front: int | None
    number: int
    last: int | None
    weight: float = 1.0
    usual_s: float = 0.0
    """The mean run time of all keys; 0 if nothing has run yet."""


def turns(account: Account, ground: Ground, count: int) -> tuple[list[int], Account]:
    """The ranks of so many new jobs of a key, in order, and its account after them."""
    cost = cost_of(account, ground.usual_s)
    start, owed = _begin(account, ground, cost)
    ranks: list[int] = []
    charged = 0.0
    for _ in range(count):
        paid = min(-owed, cost / 2) if owed < 0 else 0.0
        owed += paid
        ranks.append(floor(start))
        start += (cost - paid) / ground.weight
        charged += cost - paid
    if not count:
        return ranks, account
    open_jobs, open_cost = account.open_jobs + count, account.open_cost + charged
    after = {"finish": start, "owed": owed, "open_jobs": open_jobs, "open_cost": open_cost}
    return ranks, replace(account, **after)


def _begin(account: Account, ground: Ground, cost: float) -> tuple[float, float]:
    """Where the next job of a key starts, and what the key owes then."""
    front = float(ground.number if ground.front is None else ground.front)
    if ground.front is None and ground.last is None:
        return front, 0.0
    behind = front if ground.last is None else max(front, float(ground.last))
    finish = min(account.finish, behind + 1 + cost / ground.weight)
    if account.owed > 0:
        return max(front, finish + account.owed / ground.weight), 0.0
    return (finish, account.owed) if finish > front else (front, 0.0)


def cost_of(account: Account, usual_s: float) -> float:
    """What a job of a key is charged: 1 is the mean run time of all."""
    if usual_s <= 0 or not account.runs:
        return 1.0
    runs = account.runs + SUPPOSED_RUNS
    mean_s = (account.runs * account.mean_s + SUPPOSED_RUNS * usual_s) / runs
    return min(max(mean_s / usual_s, LEAST_COST), MOST_COST)


def ran(account: Account, runs: int, total_s: float) -> Account:
    """An account after further runs: what they say of the next ones."""
    old = min(account.runs, MOST_RUNS)
    if not old + runs:
        return account
    mean_s = (old * account.mean_s + total_s) / (old + runs)
    return replace(account, runs=old + runs, mean_s=mean_s)


def settled(account: Account, usual_s: float, runs: int, total_s: float) -> Account:
    """The account of a key after so many of its jobs ended: what these took against their charge.

    Attempts that are tried again end no job, but they take time. Jobs that were never charged,
    because a slot was free for them, count for nothing.
    """
    if not account.open_jobs:
        return ran(account, runs, total_s)
    charged = min(runs, account.open_jobs)
    open_cost, open_jobs = account.open_cost, account.open_jobs - charged
    paid = open_cost * charged / account.open_jobs
    used = total_s / usual_s * (charged / runs if runs else 1.0) if usual_s > 0 else paid
    owed = min(max(account.owed + used - paid, -MOST_OWED), MOST_OWED)
    known = ran(account, runs, total_s)
    return replace(known, owed=owed, open_jobs=open_jobs, open_cost=max(0.0, open_cost - paid))


def weight_of(key: str, rules: Iterable[LimitRule]) -> float:
    """The weight of a key: that of the most specific rule about it which has one, or else 1."""
    best = weighing(key, rules)
    return 1.0 if best is None or best.weight is None else best.weight


def weighing(key: str, rules: Iterable[LimitRule]) -> LimitRule | None:
    """The rule that has the weight of a key; None if none has."""
    found = [one for one in rules if one.weight is not None and matches(one.pattern, key)]
    return max(found, key=specific, default=None)


def front_of(first_fair: int | None, furthest: int | None, seen: int) -> int | None:
    """The front of a lane, by the first `LOOKED_AT` jobs that wait in it; `seen` is how many.

    `first_fair` is the lowest rank of the fair ones that never began, `furthest` the highest of
    all. Jobs that are tried again keep their old turns: these say nothing of where service is now.
    """
    if first_fair is not None:
        return first_fair
    return furthest if seen >= LOOKED_AT else None


def needs_value(key: str) -> bool:
    """Whether this is the name of a parameter, whose argument completes it to a fair key."""
    return bool(key) and not is_whole(key)


def fair_key_for(parameter: str, given: Mapping[str, object]) -> str:
    """The fair key of a job with these arguments; raises `InvalidInput` if they make none."""
    key = key_of(parameter, given.get(parameter))
    if why := why_not_fair(key):
        raise InvalidInput(why)
    return key


def why_not_fair(key: str) -> str | None:
    """Why a job cannot have this fair key; None if it can."""
    why = why_no_key(key)
    return None if why is None else f"fair_by: {why}"
