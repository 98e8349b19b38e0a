"""Lease arithmetic: until when a worker may run its jobs, and from when others may.

Theory. No two workers may run one job at once, and no two machines' clocks agree. So each side
measures with its own clock, from its own event. A worker's lease starts when it *sends* a PING, if
a PONG answers it. The dispatcher declares the worker lost when `lease_s` has passed since it last
*received* anything from it. A PING is sent before it is received. So the worker's lease ends first:
the worker stops its jobs before any other worker may start them.

Dispatchers hold a lease too, on their row in the store. When that row has not changed for `lease_s`
and a margin, every lease that this dispatcher granted has ended.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from longshore.model.worker import WorkerInfo

PINGS_IN_A_LEASE: Final = 5
"""A worker that gets one of these through still keeps its lease."""


class Lease(Struct, frozen=True):
    """The right of a worker to run what it holds."""

    sent_at: float
    lease_s: float

    @property
    def ends_at(self) -> float:
        """When the lease ends."""
        return self.sent_at + self.lease_s

    def less_than_half_left(self, now: float) -> bool:
        """Whether the worker should look for a dispatcher that can renew the lease."""
        return self.ends_at - now < self.lease_s / 2

    def abort_at(self, before_s: float) -> float:
        """When to abort jobs: `before_s` before the end, but at most a third of the lease."""
        return self.ends_at - min(before_s, self.lease_s / 3)

    def kill_at(self, before_s: float) -> float:
        """When to kill the rest: `before_s` before the end, but at most a sixth of the lease."""
        return self.ends_at - min(before_s, self.lease_s / 6)


ANOTHERS: Final = "another worker has this id"
RESIGNED: Final = "its registration has ended"
"""Why nobody attends the worker that a web service was: its READY came late."""


def is_anothers(known: WorkerInfo, asking: WorkerInfo) -> bool:
    """Whether `asking` names a worker that connected with another key, and so is an impostor.

    For a web service any gateway may speak: dispatchers know gateways by their keys.
    """
    if known.service is not None and known.service == asking.service:
        return False
    return bool(known.key) and known.key != asking.key


def lease_for(info: WorkerInfo, lease_s: float) -> float:
    """The lease of a worker whose dispatcher grants `lease_s`."""
    return max(info.lease_s, lease_s)


def is_lost(heard_at: float, now: float, lease_s: float) -> bool:
    """Whether a worker's own dispatcher may give its jobs to others."""
    return now - heard_at >= lease_s


def is_silent(renewed_seen_at: float, now: float, lease_s: float, margin_s: float) -> bool:
    """Whether others may declare the workers of a dispatcher lost that stopped renewing."""
    return now - renewed_seen_at >= lease_s + margin_s


def ping_every_s(workers: int, ping_s: float, most_per_s: int, lease_s: float) -> float:
    """How often each worker sends PING, so that the fleet sends at most `most_per_s`.

    Workers of a large fleet send less often than every `ping_s`. But each sends several in a lease,
    even if that exceeds `most_per_s`: one or two lost PINGs must not cost a worker its lease.
    """
    return min(max(ping_s, workers / most_per_s), lease_s / PINGS_IN_A_LEASE)
