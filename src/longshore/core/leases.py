"""Lease arithmetic: who may believe what, for how long.

A worker's lease counts from when it *sent* the PING that was answered; its dispatcher's patience
counts from when it *received* one. The first moment is the earlier one, so a worker always stops
before anybody else may start its jobs, and no two machines' clocks are ever compared.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from longshore.model.worker import WorkerInfo

PINGS_IN_A_LEASE: Final = 5
"""A worker may miss all but one of these, and still keep its lease."""


class Lease(Struct, frozen=True):
    """The right of a worker to run what it holds."""

    sent_at: float
    lease_s: float

    @property
    def ends_at(self) -> float:
        """When the right ends."""
        return self.sent_at + self.lease_s

    def less_than_half_left(self, now: float) -> bool:
        """Whether it is time to look for a dispatcher that can renew it."""
        return self.ends_at - now < self.lease_s / 2

    def abort_at(self, before_s: float) -> float:
        """When to abort jobs: `before_s` before the end, at most a third of the lease."""
        return self.ends_at - min(before_s, self.lease_s / 3)

    def kill_at(self, before_s: float) -> float:
        """When to kill what is left: `before_s` before the end, at most a sixth of the lease."""
        return self.ends_at - min(before_s, self.lease_s / 6)


ANOTHERS: Final = "another worker has this id"


def is_anothers(known: WorkerInfo, asking: WorkerInfo) -> bool:
    """Whether a worker's id was taken with another key: its jobs are not for whoever names it."""
    return bool(known.key) and known.key != asking.key


def is_lost(heard_at: float, now: float, lease_s: float) -> bool:
    """Whether a worker's own dispatcher may give its jobs to others."""
    return now - heard_at >= lease_s


def is_silent(renewed_seen_at: float, now: float, lease_s: float, margin_s: float) -> bool:
    """Whether a dispatcher that stopped renewing may have its workers declared lost by others."""
    return now - renewed_seen_at >= lease_s + margin_s


def ping_every_s(workers: int, ping_s: float, most_per_s: int, lease_s: float) -> float:
    """How often each worker is to say that it lives, so that all together do not say it too often.

    A large fleet says it less often than `ping_s`, but never so seldom that a lost PING or two
    could cost a worker its lease: that goes before `most_per_s`.
    """
    return min(max(ping_s, workers / most_per_s), lease_s / PINGS_IN_A_LEASE)
