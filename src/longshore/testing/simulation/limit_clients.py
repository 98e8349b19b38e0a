"""What clients do to limits: they set rules and remove them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from longshore.client.connection import Connection
from longshore.client.limit_requests import LimitRequests
from longshore.errors import NotFound
from longshore.testing.simulation.actor_clients import patiently
from longshore.testing.simulation.limit_plans import RulePlan


async def set_rules(
    plans: Sequence[RulePlan], note: Callable[[str], None], connection: Connection
) -> None:
    """Does all of it, one after the other: so an earlier rule never comes after a later one."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    for plan in plans:
        await asyncio.sleep(max(0.0, began_at + plan.at - loop.time()))
        note(f"removes the rule {plan.pattern}" if plan.rule is None else f"sets {plan.rule}")
        with suppress(NotFound):
            await patiently(partial(_set, connection.limits, plan))


async def _set(limits: LimitRequests, plan: RulePlan) -> None:
    if plan.rule is None:
        await limits.remove(plan.pattern)
    else:
        await limits.set(plan.pattern, plan.rule.concurrency, plan.rule.rate)
