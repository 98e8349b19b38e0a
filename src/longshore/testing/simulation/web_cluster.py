"""The gateways and services of a simulation, and what they may suffer without harm to jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.web_workers import promised_of
from longshore.ports import Store
from longshore.testing.simulation.bodies import Script, Witness
from longshore.testing.simulation.cluster import DispatcherNode, Node, World
from longshore.testing.simulation.gateways import GatewayNode
from longshore.testing.simulation.services import OnChecked, ServiceNode
from longshore.testing.simulation.web_agreement import web_disagreement
from longshore.testing.simulation.web_plans import WebPlans

SETTLED_S: Final = 7.0
"""How long it takes at most until the present lease of a service is told to it."""


class WebCluster:
    """What a scenario has of web workers; empty if it has none."""

    def __init__(
        self,
        world: World,
        plans: WebPlans,
        dispatchers: Sequence[str],
        lease_s: float,
        script: Script,
        witness: Witness,
        on_checked: OnChecked,
    ) -> None:
        settings = plans.settings
        self._world = world
        adopted_s = lease_s + settings.web_adoption_s
        retries, every_s = settings.web_max_retries, settings.web_ping_interval_s
        self.promised_s = promised_of(every_s, retries, adopted_s)
        self.gateways = [
            GatewayNode(world, name, _from(dispatchers, at), settings, lease_s, script, witness)
            for at, name in enumerate(plans.gateways)
        ]
        self.services = [
            ServiceNode(world, plan, plans.gateways, script, witness, on_checked)
            for plan in plans.services
        ]
        self._slots = {plan.node: plan.max_jobs for plan in plans.services}

    @property
    def nodes(self) -> list[Node]:
        """All of them."""
        return [*self.gateways, *self.services]

    def slots(self, service: str) -> int:
        """How many jobs a service takes at once."""
        return self._slots[service]

    def is_fair(self, dispatchers: Sequence[Node]) -> bool:
        """Whether services had every chance to keep their jobs: at most one gateway died.

        Another one has been there for long enough to adopt what that one attended.
        """
        if not self.gateways:
            return True
        now = self._world.loop.time()
        long_ago = now - self.promised_s - SETTLED_S
        died = [one for one in self.gateways if one.died_at > long_ago]
        stayed = [
            one
            for one in self.gateways
            if one not in died and one.up_since is not None and one.up_since < long_ago
        ]
        return (
            len(died) <= 1 and bool(stayed) and all(one.died_at < long_ago for one in dispatchers)
        )

    def disagreement(self, store: Store, dispatchers: Sequence[DispatcherNode]) -> str | None:
        """What is not so yet in calm, in words; None if everybody agrees."""
        if not self.gateways:
            return None
        return web_disagreement(store, dispatchers, self.gateways, self.services)


def _from(dispatchers: Sequence[str], at: int) -> list[str]:
    """Each gateway begins with another dispatcher."""
    first = at % len(dispatchers)
    return [*dispatchers[first:], *dispatchers[:first]]
