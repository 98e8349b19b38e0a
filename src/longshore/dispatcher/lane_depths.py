"""What lanes hold, with the jobs that a rule for their kind or queue holds back now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from longshore.core.lane_rules import held_back_by_rules, rules_only, with_rates
from longshore.model.depth import LaneDepth
from longshore.ports import Store

MOST_RATES: Final = 100
"""Of so many keys with a rate at most it is asked when the next job may begin."""


async def lane_depths(store: Store) -> Sequence[LaneDepth]:
    """Every lane that holds jobs. Of a lane that a rule has closed, all ready jobs are `behind`."""
    depths = await store.depths()
    rules = rules_only(await store.limit_rules())
    if not rules:
        return depths
    rated = with_rates(depths, rules)[:MOST_RATES]
    views = [await store.limit_key(key) for key in rated]
    spent = {view.key for view in views if view.next_at is not None}
    return held_back_by_rules(depths, rules, spent)
