"""Which ended jobs to remove.

Theory. No index lists jobs that succeeded, except that of job numbers: another one would slow every
finish. So a prune walks along the numbers, oldest first, and remembers how far it came. It passes
over jobs that still run or ended late; a later walk from the start meets them again. Numbers are
given in the order in which jobs are accepted, and no job ends before that. So the walk can stop at
the first job that was accepted too lately, and reads little more than it removes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from longshore.core.lifecycle import TERMINAL
from longshore.errors import InvalidInput
from longshore.model.group import ENDED_GROUPS, GroupState
from longshore.model.job import JobState
from longshore.model.retention import Retention


def retention(
    keep_succeeded_s: float = 0.0, keep_failed_s: float = 0.0, keep_most: int = 0
) -> Retention:
    """What a dispatcher's settings say; 0 is no bound."""
    by_state = {
        state: keep_succeeded_s if state is JobState.SUCCEEDED else keep_failed_s
        for state in sorted(TERMINAL)
    }
    return Retention(
        seconds={state: seconds for state, seconds in by_state.items() if seconds > 0},
        most=dict.fromkeys(sorted(TERMINAL), keep_most) if keep_most > 0 else {},
    )


def requested(
    configured: Retention,
    states: Collection[JobState] = (),
    older_than_s: float | None = None,
    keep: int | None = None,
) -> Retention:
    """The bounds that a client asks for; if it gives none, the configured ones."""
    live = sorted(set(states) - TERMINAL)
    if live:
        ended = ", ".join(sorted(TERMINAL))
        raise InvalidInput(f"a job that is {live[0]} is never pruned; name a state of: {ended}")
    if older_than_s is not None and not (isfinite(older_than_s) and older_than_s >= 0):
        raise InvalidInput(f"older_than_s is {older_than_s}; give seconds, 0 or more")
    if keep is not None and keep < 0:
        raise InvalidInput(f"keep is {keep}; give a number of jobs, 0 or more")
    wanted = sorted(states) or sorted(TERMINAL)
    if older_than_s is None and keep is None:
        return only(configured, wanted)
    return Retention(
        seconds={} if older_than_s is None else dict.fromkeys(wanted, older_than_s),
        most={} if keep is None else dict.fromkeys(wanted, keep),
    )


def only(kept: Retention, states: Collection[JobState]) -> Retention:
    """The bounds of these states alone."""
    return Retention(
        seconds={state: s for state, s in kept.seconds.items() if state in states},
        most={state: n for state, n in kept.most.items() if state in states},
    )


def continued(kept: Retention, counted: Mapping[JobState, int]) -> Retention:
    """The bounds for the next step of a dry run: the jobs counted so far still exist."""
    most = {state: n + counted.get(state, 0) for state, n in kept.most.items()}
    return Retention(seconds=kept.seconds, most=most)


def group_bounds(kept: Retention) -> dict[GroupState, float]:
    """How long to keep ended groups: as long as jobs that ended so. Groups have no other bound."""
    ends = ((state, JobState(state.value)) for state in sorted(ENDED_GROUPS))
    return {state: kept.seconds[job] for state, job in ends if job in kept.seconds}


class Seen(NamedTuple):
    """A job as a walk sees it, with how long ago it was accepted and ended."""

    number: int
    state: JobState
    accepted_s: float
    ended_s: float | None


class Walk:
    """Looks at jobs in the order of their numbers, and says which to remove.

    `counts` is how many jobs there are in each state. `up_to` is the last number it has looked at.
    Once it is `over`, no later job is to be removed.
    """

    def __init__(self, kept: Retention, counts: Mapping[JobState, int], after: int) -> None:
        self._seconds = kept.seconds
        self._youngest_s = min(kept.seconds.values(), default=inf)
        self._excess = {
            state: excess
            for state, most in kept.most.items()
            if (excess := counts.get(state, 0) - most) > 0
        }
        self.up_to = after
        self.over = not (kept.seconds or self._excess)

    def through(self, jobs: Sequence[Seen]) -> list[int]:
        """Looks at the next jobs; answers the indexes of those to remove."""
        places: list[int] = []
        for place, job in enumerate(jobs):
            self.over = not self._excess and job.accepted_s < self._youngest_s
            if self.over:
                break
            self.up_to = job.number
            if self._goes(job):
                places.append(place)
        return places

    def _goes(self, job: Seen) -> bool:
        if job.state not in TERMINAL:
            return False
        old = job.ended_s is not None and job.ended_s >= self._seconds.get(job.state, inf)
        if not old and job.state not in self._excess:
            return False
        left = self._excess.pop(job.state, 0) - 1
        if left > 0:
            self._excess[job.state] = left
        return True
