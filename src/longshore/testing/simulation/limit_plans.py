"""Limits for scenarios: what jobs bring, and rules that clients set and remove while they run."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from msgspec import Struct

from longshore.core.key_limits import OF_GROUP
from longshore.model.limits import JobLimit, LimitRule, Rate

TENANTS: Final = ("tenant=a", "tenant=b")
MAPS: Final = "api=maps"
FAIR_KEYS: Final = ("", "", *TENANTS)
"""By what jobs share; half of them do not."""
OF_LANES: Final = ("kind=*", "kind=work", "queue=default")
"""Rules for all jobs of these, whatever keys they name."""
PATTERNS: Final = ("tenant=*", "tenant=a", MAPS, *OF_LANES)
MOST_RULES: Final = 9


class RulePlan(Struct, frozen=True):
    """A client sets a rule, or removes that of a pattern."""

    client: str
    at: float
    pattern: str
    rule: LimitRule | None


def random_limits(random: Random) -> tuple[JobLimit, ...]:
    """What jobs bring for each key: the same for all jobs of a key, as one app declares it."""
    tenants = random.choice((1, 2, 3))
    maps = JobLimit(MAPS, random.choice((None, 2)), _rate(random))
    return (*(JobLimit(key, tenants) for key in TENANTS), maps)


def limits_of_a_job(random: Random, brought: Sequence[JobLimit]) -> tuple[JobLimit, ...]:
    """The keys that one job counts for: a tenant mostly, the rate or both."""
    *tenants, maps = brought
    taken = JobLimit(maps.key, maps.concurrency, maps.rate, units=random.choice((1, 1, 2)))
    tenant = random.choice(tenants)
    return random.choice(((), (tenant,), (tenant,), (tenant, taken), (taken,)))


def limit_of_a_group(random: Random) -> JobLimit | None:
    """What limits the jobs of a group together, if anything does."""
    return random.choice((None, JobLimit(OF_GROUP, 1), JobLimit(OF_GROUP, 2)))


def random_rules(random: Random, clients: Sequence[str], storm_s: float) -> tuple[RulePlan, ...]:
    """Rules that come and go. One client has all of a pattern: their order is then its own."""
    owners = {pattern: random.choice(clients) for pattern in PATTERNS}
    times = sorted(random.uniform(0.0, storm_s) for _ in range(random.randint(0, MOST_RULES)))
    return tuple(_rule(random, owners, at) for at in times)


def _rule(random: Random, owners: dict[str, str], at: float) -> RulePlan:
    pattern = random.choice(PATTERNS)
    if random.random() < 0.25:
        return RulePlan(owners[pattern], at, pattern, None)
    if pattern in OF_LANES:
        rate = random.choice((None, None, Rate(5, 1.0, burst=4)))
        return RulePlan(owners[pattern], at, pattern, LimitRule(pattern, _few(random), rate))
    has_rate = pattern == MAPS
    rule = LimitRule(pattern, random.choice((1, 1, 2, 4)), _rate(random) if has_rate else None)
    return RulePlan(owners[pattern], at, pattern, rule)


def _few(random: Random) -> int:
    return random.choice((2, 4, 8))


def _rate(random: Random) -> Rate:
    # At least two at once, so that a job of two units may ever begin.
    return Rate(random.choice((2, 5)), random.choice((1.0, 4.0)), burst=random.choice((2, 4)))
