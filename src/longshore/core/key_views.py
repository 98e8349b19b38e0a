"""How a key of a limit is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from longshore.core.gcra import Wait, pass_units
from longshore.core.key_limits import bounds_of, rule_for
from longshore.model.limits import JobLimit, KeyView, LimitRule

MOST_HOLDERS: Final = 10
"""How many jobs that hold a key are named."""
MOST_COUNTED: Final = 10_000
"""How many jobs that wait for a key are counted."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Holder(NamedTuple):
    """A job that holds a slot: its number, and when its attempt began, in microseconds."""

    number: int
    began: int


class KeyWaits(NamedTuple):
    """How long jobs waited for a key, in microseconds all together, and how often.

    Then how many wait now, up to `MOST_COUNTED`, and for how long these have.
    """

    waited_us: int = 0
    stays: int = 0
    waiting: int = 0
    waiting_us: int = 0


def key_view(
    limit: JobLimit,
    rules: Iterable[LimitRule],
    holders: Sequence[Holder],
    even_at: int,
    now: int,
    waits: KeyWaits,
    *,
    is_wanted: bool = False,
) -> KeyView:
    """A key as it is shown. Jobs wait behind it, or `is_wanted` by those of its lanes."""
    rules = list(rules)
    bounds = bounds_of(limit, rules)
    next_s = next_at = None
    if bounds.rate is not None:
        found = pass_units(bounds.rate, limit.units, even_at, now)
        at = found.until if isinstance(found, Wait) else now
        next_s = None if at is None else (at - now) / 1e6
        next_at = _moment(at) if at is not None and at > now else None
    shown = tuple(one.number for one in holders[:MOST_HOLDERS])
    full_s = full_at = None
    if bounds.concurrency is not None and len(holders) >= bounds.concurrency:
        began = _full_at(limit.key, rules, holders)
        full_s, full_at = max(0.0, (now - began) / 1e6), _moment(began)
    view = KeyView(
        limit.key,
        *bounds,
        held=len(holders),
        holders=shown,
        next_s=next_s,
        full_s=full_s,
        next_at=next_at,
        full_at=full_at,
        waiting=waits.waiting,
        waiting_s=waits.waiting_us / 1e6,
        stays=waits.stays,
        waited_s=waits.waited_us / 1e6,
    )
    return replace(view, is_waited_for=waits.waiting > 0 or (is_wanted and is_full(view)))


def is_full(view: KeyView) -> bool:
    """Whether a key lets nothing more begin now."""
    if view.concurrency is not None and view.held >= view.concurrency:
        return True
    return view.rate is not None and view.next_s != 0


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _full_at(key: str, rules: Iterable[LimitRule], holders: Sequence[Holder]) -> int:
    """Since when a key has been full: the last slot was taken, or a rule came then."""
    rule = rule_for(key, rules)
    set_at = 0 if rule is None or rule.set_at is None else int(rule.set_at.timestamp() * 1e6)
    return max(set_at, *(one.began for one in holders)) if holders else set_at
