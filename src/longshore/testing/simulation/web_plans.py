"""Web workers of a scenario: the gateways, the services, and how each of these behaves."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final

from msgspec import Struct

from longshore.config import GatewaySettings

FETCH: Final = "fetch"
"""A kind that only web workers serve."""


class Knowledge(StrEnum):
    """What a service says of the jobs that it runs."""

    LISTS = "its health answers list them"
    FORGETS = "they do, and now and then it loses one"
    SILENT = "it says nothing of them"


class ServicePlan(Struct, frozen=True):
    """A web service."""

    node: str
    kinds: tuple[str, ...]
    max_jobs: int
    knowledge: Knowledge
    is_careless: bool
    """Whether it looks for room before it looks whether it has a job already."""
    refuses: tuple[tuple[float, float], ...]
    """From when to when it takes nothing, though it has room."""


class WebPlans(Struct, frozen=True):
    """All that a scenario has of web workers; nothing, unless it is about them."""

    gateways: tuple[str, ...] = ()
    services: tuple[ServicePlan, ...] = ()
    settings: GatewaySettings = GatewaySettings()


def random_web(random: Random, gateways: int, storm_s: float) -> WebPlans:
    """Gateways and services by chance. Of each kind there is a service that serves it."""
    every_s = random.choice((1.0, 2.0, 5.0))
    settings = GatewaySettings(
        web_ping_interval_s=every_s,
        web_dead_ping_interval_s=2 * every_s,
        web_request_s=random.choice((1.0, 3.0)),
        web_adoption_s=10.0,
    )
    services = [_service(random, f"s{n}", storm_s) for n in range(1, random.randint(1, 4) + 1)]
    return WebPlans(names("g", gateways), tuple(services), settings)


def names(letter: str, count: int) -> tuple[str, ...]:
    """The names of so many nodes."""
    return tuple(f"{letter}{number}" for number in range(1, count + 1))


def _service(random: Random, node: str, storm_s: float) -> ServicePlan:
    return ServicePlan(
        node,
        (FETCH, "work") if random.random() < 0.5 else (FETCH,),
        random.randint(1, 3),
        random.choice((Knowledge.LISTS, Knowledge.LISTS, Knowledge.FORGETS, Knowledge.SILENT)),
        random.random() < 0.5,
        _spells(random, storm_s) if random.random() < 0.4 else (),
    )


def _spells(random: Random, storm_s: float) -> tuple[tuple[float, float], ...]:
    starts: Sequence[float] = sorted(random.uniform(0.0, storm_s) for _ in range(3))
    return tuple((at, at + random.uniform(1.0, 10.0)) for at in starts)
