"""What goes wrong with web workers: gateways and services die and freeze, HTTP loses requests.

What the others suffer (`faults`) happens too: dispatchers die, the store is away, and gateways are
cut off from dispatchers as workers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from longshore.testing.simulation.faults import (
    Cut,
    Fate,
    Fault,
    Freeze,
    Kill,
    Kind,
    Leave,
    Nodes,
    Theme,
    Unreliable,
)


class WebTheme(StrEnum):
    """What a storm over web workers is about."""

    ANYTHING = "anything"
    GATEWAYS_DIE = "gateways die, one after the other"
    GATEWAYS_FREEZE = "gateways freeze, and are late when they go on"
    SERVICES = "services die, freeze and resign"
    LINKS = "HTTP loses, doubles and delays what is said"


class WebFate:
    """Makes faults of those kinds that the seed has switched on."""

    def __init__(
        self,
        random: Random,
        nodes: Nodes,
        gateways: Sequence[str],
        services: Sequence[str],
        storm_s: float,
        theme: WebTheme,
    ) -> None:
        self._random = random
        self._nodes = nodes
        self._gateways = gateways
        self._services = services
        self._storm_s = storm_s
        self._theme = theme

    def faults(self) -> tuple[Fault, ...]:
        """Faults in the order of time, until the storm is over."""
        found = [*self._others(), *self._own()]
        return tuple(sorted(found, key=lambda fault: fault.at))

    def _others(self) -> Sequence[Fault]:
        if self._theme is not WebTheme.ANYTHING or self._random.random() < 0.4:
            return ()
        working = (*self._nodes.workers, *self._gateways)
        nodes = Nodes(self._nodes.dispatchers, working, self._nodes.clients)
        return Fate(self._random, nodes, self._storm_s, Theme.ANYTHING).faults()

    def _own(self) -> Sequence[Fault]:
        kinds, random = self._chosen(), self._random
        if not kinds:
            return []
        is_seldom = self._theme is WebTheme.GATEWAYS_DIE
        every_s = 40.0 if is_seldom else random.choice((2.0, 5.0, 12.0))
        found: list[Fault] = []
        at = random.uniform(0.0, every_s)
        while at < self._storm_s:
            one = random.choice(kinds)(at)
            found += one if isinstance(one, list) else [one]
            at += (
                every_s * random.uniform(0.8, 1.5) if is_seldom else random.expovariate(1 / every_s)
            )
        return found

    def _chosen(self) -> list[Kind]:
        match self._theme:
            case WebTheme.ANYTHING:
                kinds = [
                    self._kill_gateway,
                    self._freeze_gateway,
                    self._stop_gateway,
                    self._kill_service,
                    self._freeze_service,
                    self._resign,
                    self._cut,
                    self._spoil,
                ]
                return [kind for kind in kinds if self._random.random() < 0.5]
            case WebTheme.GATEWAYS_DIE:
                return [self._kill_gateway]
            case WebTheme.GATEWAYS_FREEZE:
                return [self._freeze_gateway, self._freeze_gateway, self._kill_gateway]
            case WebTheme.SERVICES:
                return [self._kill_service, self._freeze_service, self._resign, self._cut]
            case WebTheme.LINKS:
                return [self._spoil, self._cut]

    def _span_s(self) -> float:
        """A while: a blink, a few seconds, or longer than every lease."""
        random = self._random
        return random.choice(
            (random.uniform(0.1, 2.0), random.uniform(2.0, 15.0), random.uniform(15.0, 60.0))
        )

    def _fuse(self) -> int:
        return self._random.choice((0, self._random.randint(1, 10), self._random.randint(1, 100)))

    def _kill_gateway(self, at: float) -> Fault:
        node = self._random.choice(self._gateways)
        return Kill(at, node, self._fuse(), self._span_s(), is_trouble=False)

    def _freeze_gateway(self, at: float) -> Fault:
        node = self._random.choice(self._gateways)
        return Freeze(at, node, self._fuse(), self._span_s())

    def _stop_gateway(self, at: float) -> Fault:
        node = self._random.choice(self._gateways)
        return Leave(at, node, self._span_s(), is_trouble=False)

    def _kill_service(self, at: float) -> Fault:
        node = self._random.choice(self._services)
        return Kill(at, node, self._fuse(), self._span_s(), is_trouble=True)

    def _freeze_service(self, at: float) -> Fault:
        node = self._random.choice(self._services)
        return Freeze(at, node, self._fuse(), self._span_s())

    def _resign(self, at: float) -> Fault:
        return Leave(at, self._random.choice(self._services), self._span_s(), is_trouble=True)

    def _cut(self, at: float) -> Fault:
        """A service hears or reaches some gateways no more."""
        service = self._random.choice(self._services)
        some = self._random.sample(self._gateways, self._random.randint(1, len(self._gateways)))
        there = {(gateway, service) for gateway in some}
        back = {(service, gateway) for gateway in some}
        ways = self._random.choice((there, back, there | back))
        return Cut(at, frozenset(ways), False, self._span_s())

    def _spoil(self, at: float) -> Fault:
        random = self._random
        return Unreliable(
            at,
            random.choice((0.0, 0.2, 0.5)),
            random.choice((0.0, 0.2, 0.5)),
            random.choice((0.0, 0.3)),
            random.choice((0.0, 0.5, 4.0)),
            self._span_s(),
        )
