"""How long nothing went on when a cluster of PostgreSQL failed over, and what that cost. Pure.

A probe writes to each member past Longshore, and so tells for how long the cluster itself was
away. Longshore may need a few seconds more: it must find the new primary. Jobs that run meanwhile
go on, unless the outage is longer than a lease allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from longshore.testing.chaos.facts import Body, Facts
from longshore.testing.chaos.overlaps import WITHOUT_LEASE, explanation

LATE_S = 5.0
"""So much longer than the cluster Longshore may be away."""
GENEROUS_S = 5.0
"""What is allowed besides: calls come by chance, and the machine is shared."""
SAFE_SHARE = 0.6
"""An outage of this share of a lease costs no running job: workers abort after two thirds."""
TOLD_TO_FAIL = "flaky"


class Stall(Struct, frozen=True):
    """A time in which no client heard of anything, and how much of it the cluster was away."""

    at: float
    lasted_s: float
    away_s: float

    @property
    def late_s(self) -> float:
        """How much longer than the cluster Longshore was away."""
        return self.lasted_s - self.away_s


def stalls(facts: Facts) -> Iterator[Stall]:
    """Each time of the storm in which the cluster was away and no client heard of anything."""
    signs = sorted(_signs(facts))
    for before, after in pairwise(signs):
        away_s = sum(
            max(0.0, min(after, one.at) - max(before, one.at - one.seconds))
            for one in facts.outages
        )
        if away_s:
            yield Stall(before, after - before, away_s)


def _signs(facts: Facts) -> Iterator[float]:
    """When a client heard that something was accepted or has ended, and the ends of the storm."""
    began, calm = facts.phases.get("storm", 0.0), facts.phases.get("calm", float("inf"))
    heard = (at for job in facts.jobs.values() for at in (job.accepted, *(s.at for s in job.seen)))
    yield from (at for at in heard if at is not None and began <= at <= calm)
    if began:
        yield began


def away_too_long(facts: Facts) -> Iterator[tuple[str, str]]:
    """Longshore goes on soon after the cluster does."""
    for stall in stalls(facts):
        if stall.late_s > LATE_S + GENEROUS_S:
            yield (
                f"the stall of {stall.lasted_s:.1f} s",
                f"the cluster was away for {stall.away_s:.1f} s of it, so Longshore was away for "
                f"{stall.late_s:.1f} s more",
            )


def given_up(facts: Facts) -> Iterator[tuple[str, str]]:
    """A job that runs while the cluster fails over goes on, if that is shorter than a lease."""
    for outage in facts.outages:
        if outage.seconds > facts.lease_s * SAFE_SHARE:
            continue
        began = outage.at - outage.seconds
        for job in facts.jobs.values():
            for one, after in pairwise(sorted(job.bodies, key=lambda body: body.began)):
                ran = one.began < began <= one.last
                if ran and after.began <= outage.at + facts.lease_s and _must_go_on(facts, one):
                    said = f"attempt {after.attempt} replaced attempt {one.attempt}"
                    yield job.name, f"{said}, which ran through an outage of {outage.seconds:.1f} s"


def _must_go_on(facts: Facts, body: Body) -> bool:
    is_leased = body.sort not in WITHOUT_LEASE and body.sort != TOLD_TO_FAIL
    return is_leased and not explanation(facts, body)
