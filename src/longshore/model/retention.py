"""How long ended jobs are kept, and what became of those that were not."""

from __future__ import annotations

from msgspec import Struct

from longshore.model.job import JobState


class Retention(Struct, frozen=True):
    """What is kept of ended jobs, by state: for how long after their end, and how many at most.

    A job goes when either bound is passed, oldest number first. Jobs in a state that has no bound
    are kept for ever, and so are all that have not ended.
    """

    seconds: dict[JobState, float] = {}
    most: dict[JobState, int] = {}

    @property
    def states(self) -> frozenset[JobState]:
        """The states that have a bound."""
        return frozenset(self.seconds) | frozenset(self.most)


class Pruned(Struct, frozen=True):
    """What one step of a pruning removed, by state.

    It has looked at every job with a number up to `up_to`; `done` says that none of those after it
    is to go now.
    """

    removed: dict[JobState, int]
    up_to: int
    done: bool
