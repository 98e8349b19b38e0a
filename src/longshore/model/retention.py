"""How long a store keeps ended jobs and groups, and which it removed."""

from __future__ import annotations

from msgspec import Struct

from longshore.model.job import JobState


class Retention(Struct, frozen=True):
    """How long to keep ended jobs, and how many at most, by state.

    A job past either bound is removed, oldest number first. Jobs in a state without a bound stay
    for ever, and so do all that have not ended.
    """

    seconds: dict[JobState, float] = {}
    most: dict[JobState, int] = {}

    @property
    def states(self) -> frozenset[JobState]:
        """The states that have a bound."""
        return frozenset(self.seconds) | frozenset(self.most)


class Pruned(Struct, frozen=True):
    """How many jobs one step of pruning removed, by state.

    It has looked at every job up to number `up_to`. `done` says that no later job is to be removed.
    Jobs of groups count in `group_jobs` alone.
    """

    removed: dict[JobState, int]
    up_to: int
    done: bool
    groups: int = 0
    group_jobs: int = 0


class GroupsPruned(Struct, frozen=True):
    """How many groups one step of pruning took away, and how many jobs of such groups.

    A group that was taken away is shown no more; later steps remove its jobs. `done` says that
    nothing is left to do.
    """

    groups: int
    jobs: int
    done: bool
