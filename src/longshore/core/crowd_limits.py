"""What cannot be combined with a limit's `full`, or with a debounce, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.crowds import crowd_of
from longshore.core.key_limits import LONGEST_S, why_no_key
from longshore.errors import InvalidInput
from longshore.model.job import Submission
from longshore.model.limits import Debounced, Full, JobLimit

_INSTEAD: Final = "submit it by itself"


def why_not_full(limits: Sequence[JobLimit]) -> str | None:
    """Why these limits cannot say what to do when a key is full; None if they can."""
    full = [one for one in limits if one.full is not Full.WAIT]
    for one in full:
        if one.concurrency is None and one.rate is not None:
            return (
                f"full='{one.full}' is about how many jobs of '{one.key}' are live, but only a "
                "rate limits it; give a concurrency too, or leave out full"
            )
    if len(full) > 1:
        keys = " and ".join(f"'{one.key}'" for one in full)
        return (
            f"full is given for {keys}; a job can do one thing when a limit is full: give full in "
            "one of its limits"
        )
    return None


def why_not_debounced(
    debounce: Debounced,
    limits: Sequence[JobLimit] = (),
    *,
    unique: bool = False,
    timed: bool = False,
) -> str | None:
    """Why jobs on these terms cannot be debounced; None if they can."""
    if any(one.full is not Full.WAIT for one in limits):
        return (
            "debounce and a limit with full both say what becomes of earlier jobs; give only one "
            "of them"
        )
    if unique:
        return (
            "debounce runs the last of the jobs with a key, unique_key the first; give only one "
            "of them"
        )
    if timed:
        return "debounce says when a job runs; leave out delay_s and run_at"
    return _why_no_times(debounce)


def _why_no_times(debounce: Debounced) -> str | None:
    wait_s, max_wait_s = debounce.wait_s, debounce.max_wait_s
    if not 0 < wait_s <= LONGEST_S:
        return f"wait_s is {wait_s:g}; a debounce waits for more than 0 seconds, at most a year"
    if max_wait_s is not None and not wait_s <= max_wait_s <= LONGEST_S:
        return (
            f"max_wait_s is {max_wait_s:g}; it is at least wait_s ({wait_s:g}), and at most a year"
        )
    return None


def check_crowd(job: Submission) -> None:
    """Raises `InvalidInput` if a job cannot have its `full` or its debounce."""
    options = job.options
    if why := why_not_full(options.limits):
        raise InvalidInput(why)
    if (debounce := options.debounce) is None:
        return
    unique, timed = job.unique_key is not None, job.run_at is not None
    why = why_no_key(debounce.key)
    why = why or why_not_debounced(debounce, options.limits, unique=unique, timed=timed)
    if why is None and job.delay_s != debounce.wait_s:
        why = f"delay_s is {job.delay_s}; that of a debounced job is its wait_s: {debounce.wait_s}"
    if why:
        raise InvalidInput(why)


def check_no_crowd(job: Submission, where: str) -> None:
    """Raises `InvalidInput` if a job ends others, or itself, where no job may."""
    if crowd_of(job.kind, job.options) is None:
        return
    if job.options.debounce is not None:
        what, without = "is debounced", "debounce=None"
    else:
        what, without = "says what to do when its limit is full", "limit=None"
    raise InvalidInput(
        f"job '{job.kind}' {what}, which {where}; {_INSTEAD}, or without: options({without})"
    )


IN_GROUP: Final = "a job of a group cannot: others may wait for the one that it would end"
IN_TRANSACTION: Final = (
    "a submit in a transaction of your own cannot: the key would be locked until you commit"
)
