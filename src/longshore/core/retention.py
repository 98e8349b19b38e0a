"""Which ended jobs go.

Theory. Jobs that went well are in no index but that of their numbers, because an index of them
would cost every finish. So whoever prunes walks along the numbers, oldest first, and remembers how
far it came. What it passes over (a job that still runs, one that ended late) is met again by a
later walk from the start. A job cannot have ended before it was accepted, and numbers are given in
the order of acceptance: so a walk ends at the first job that is too young, however old, and has
read little more than what it removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from longshore.core.lifecycle import TERMINAL
from longshore.errors import InvalidInput
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
    """What a client asks to have pruned; without bounds of its own the configured ones hold."""
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
    """The same bounds for these states, and none for others."""
    return Retention(
        seconds={state: s for state, s in kept.seconds.items() if state in states},
        most={state: n for state, n in kept.most.items() if state in states},
    )


def continued(kept: Retention, counted: Mapping[JobState, int]) -> Retention:
    """The bounds for going on after so many were counted that a real pruning had removed."""
    most = {state: n + counted.get(state, 0) for state, n in kept.most.items()}
    return Retention(seconds=kept.seconds, most=most)


class Seen(NamedTuple):
    """A job as a walk sees it: how long ago it was accepted, and how long ago it ended."""

    number: int
    state: JobState
    accepted_s: float
    ended_s: float | None


class Walk:
    """Is shown jobs in the order of their numbers, and says which of them go.

    `counts` is how many jobs there are in each state. `up_to` is the last number that it has dealt
    with; once it is `over`, none of those after it is to go.
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

    def through(self, stretch: Sequence[Seen]) -> list[int]:
        """The places of those that go, in the next jobs in order."""
        places: list[int] = []
        for place, job in enumerate(stretch):
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
