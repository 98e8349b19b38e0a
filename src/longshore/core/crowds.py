"""What a submit does to the other live jobs of its key: drops itself, or takes their place.

Theory. Some jobs say what is to happen if others of their key are live: a limit with `full`, or a
debounce. The live jobs that share such a key are a *crowd*. A store locks the key of a crowd, takes
in the new jobs as it does any others, reads the crowd in a later statement, and asks `settle` what
becomes of it: a list of fates. It applies these in the transaction of the submit. So two submits at
the same moment come one after the other, and a repeated submit, which brings no new job, changes
nothing.

A job that is being cancelled is on its way out and belongs to no crowd. The new job never starts
here: it waits for a slot of its key like any other, so no limit is ever exceeded.

A debounced job that is replaced ends as cancelled, with the number of the job that came in its
place. It would be no honest answer to let all these submits share one job: its arguments would
change under the id of the first, and a client that waits would get the result of other arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from longshore.core.key_limits import bounds_of
from longshore.core.lifecycle import OWNED
from longshore.model.job import JobState, Options
from longshore.model.limits import Debounced, Full, JobLimit, LimitRule


class Member(NamedTuple):
    """A live job of a crowd. Times are microseconds since 1970."""

    number: int
    state: JobState
    has_begun: bool
    due_at: int | None = None
    calm_by: int | None = None
    """When the run of a debounced job begins at the latest."""

    @property
    def waits(self) -> bool:
        """Whether no attempt of it runs."""
        return self.state not in OWNED


class Dropped(NamedTuple):
    """A new job is skipped."""

    number: int
    why: str


class Replaced(NamedTuple):
    """A job is cancelled; if it `must_wait`, only unless it runs by now."""

    number: int
    by: int
    must_wait: bool


class Timed(NamedTuple):
    """A new job that is debounced runs at a time."""

    number: int
    due_at: int
    calm_by: int | None


Fate = Dropped | Replaced | Timed


def crowd_of(kind: str, options: Options) -> str | None:
    """The crowd of a job, as stores keep it; None if it has none."""
    if options.debounce is not None:
        # No key of a limit has a line break.
        return f"{kind}\n{options.debounce.key}"
    limit = limit_with_full(options.limits)
    return None if limit is None else limit.key


def limit_with_full(limits: Iterable[JobLimit]) -> JobLimit | None:
    """The limit of a job that says what to do when its key is full; there is at most one."""
    for one in limits:
        if one.full is not Full.WAIT:
            return one
    return None


def settle(
    members: Iterable[Member], new: Mapping[int, Options], rules: Sequence[LimitRule], now: int
) -> list[Fate]:
    """What becomes of a crowd that has these new jobs, one after the other."""
    fates: list[Fate] = []
    live: list[Member] = []
    for member in sorted(members):
        options = new.get(member.number)
        found = [] if options is None else _fates(member, options, live, rules, now)
        gone = {one.number for one in found if not isinstance(one, Timed)}
        timed = [one for one in found if isinstance(one, Timed)]
        for one in timed:
            member = member._replace(due_at=one.due_at, calm_by=one.calm_by)
        live = [one for one in (*live, member) if one.number not in gone]
        fates += found
    return fates


def _fates(
    new: Member, options: Options, live: Sequence[Member], rules: Sequence[LimitRule], now: int
) -> list[Fate]:
    if options.debounce is not None:
        return _debounced(new, options.debounce, live, now)
    limit = limit_with_full(options.limits)
    most = None if limit is None else bounds_of(limit, rules).concurrency
    if limit is None or most is None:
        return []
    if limit.full is Full.DROP_NEWEST:
        why = f"{limit.key} is at {len(live)} of {most}"
        return [Dropped(new.number, why)] if len(live) >= most else []
    must_wait = limit.full is Full.REPLACE_WAITING
    too_many = max(0, len(live) + 1 - max(1, most))
    replaceable = [one for one in live if one.waits or not must_wait]
    return [Replaced(one.number, new.number, must_wait) for one in replaceable[:too_many]]


def _debounced(new: Member, terms: Debounced, live: Sequence[Member], now: int) -> list[Fate]:
    """The run of the jobs that wait for calm is put off, with the arguments of the new one."""
    if new.due_at is None:
        return []
    earlier = [one for one in live if _waits_for_calm(one, now)]
    if earlier:
        calm_by = earlier[-1].calm_by
    else:
        calm_by = None if terms.max_wait_s is None else now + round(terms.max_wait_s * 1e6)
    due_at = new.due_at if calm_by is None else min(new.due_at, calm_by)
    replaced = [Replaced(one.number, new.number, must_wait=True) for one in earlier]
    return [*replaced, Timed(new.number, due_at, calm_by)]


def _waits_for_calm(job: Member, now: int) -> bool:
    """Whether its time has not come: then it has not begun, and is not about to."""
    is_delayed = job.state is JobState.DELAYED and not job.has_begun
    return is_delayed and job.due_at is not None and job.due_at > now
