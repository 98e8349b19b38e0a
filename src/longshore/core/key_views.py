"""How a key of a limit is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from longshore.core.gcra import Wait, pass_units
from longshore.core.key_limits import bounds_of
from longshore.model.limits import JobLimit, KeyView, LimitRule

MOST_HOLDERS: Final = 10
"""How many jobs that hold a key are named."""


def key_view(
    limit: JobLimit,
    rules: Iterable[LimitRule],
    numbers: Sequence[int],
    even_at: int,
    now: int,
    *,
    waits: bool,
) -> KeyView:
    """A key as it is shown."""
    bounds = bounds_of(limit, rules)
    next_s = None
    if bounds.rate is not None:
        found = pass_units(bounds.rate, limit.units, even_at, now)
        at = found.until if isinstance(found, Wait) else now
        next_s = None if at is None else (at - now) / 1e6
    holders = tuple(numbers[:MOST_HOLDERS])
    return KeyView(limit.key, *bounds, len(numbers), holders, waits, next_s)
