"""Limits: at most so many jobs of a key at once, or in a time.

A key is `name=value`, such as `tenant=acme`. A job names the keys that it counts for, and may bring
a limit for each. A rule, which lies in the store, goes before what jobs bring.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Rate(Struct, frozen=True, omit_defaults=True, gc=False):
    """So many units in so many seconds; over any such time at most `units + burst`."""

    units: int
    per_s: float
    burst: int = 1


class Full(StrEnum):
    """What a submit does if as many jobs of its key are live as may run at once.

    `WAIT`: it waits for its turn. `DROP_NEWEST`: it is skipped. `CANCEL_OLDEST`: the oldest is
    cancelled, also if it runs. `REPLACE_WAITING`: the oldest of those that wait is cancelled.
    """

    WAIT = "wait"
    DROP_NEWEST = "drop_newest"
    CANCEL_OLDEST = "cancel_oldest"
    REPLACE_WAITING = "replace_waiting"


class Debounced(Struct, frozen=True, omit_defaults=True, gc=False):
    """Of the jobs of a kind with this key only the last runs, `wait_s` after it came.

    It runs at the latest `max_wait_s` after the first of them came.
    """

    key: str
    wait_s: float
    max_wait_s: float | None = None


class JobLimit(Struct, frozen=True, omit_defaults=True, gc=False):
    """A key that a job counts for, and what limits the key unless a rule says otherwise."""

    key: str
    concurrency: int | None = None
    rate: Rate | None = None
    units: int = 1
    """How much of the rate the job takes."""
    full: Full = Full.WAIT
    """What its submit does if the key is full."""


class LimitRule(Struct, frozen=True, omit_defaults=True):
    """What limits the keys that match a pattern: a key, or one whose value ends with `*`."""

    pattern: str
    concurrency: int | None = None
    rate: Rate | None = None
    set_at: datetime | None = None
    weight: float | None = None
    """The share of a fair key (`core.fairness`). It limits nothing."""


class KeyView(Struct, frozen=True, omit_defaults=True):
    """A key as it is now: what limits it, which jobs hold its slots, whether jobs wait for it."""

    key: str
    concurrency: int | None = None
    rate: Rate | None = None
    pattern: str = ""
    """The rule that limits it; empty if the jobs brought the limit."""
    held: int = 0
    holders: tuple[int, ...] = ()
    """The numbers of the first jobs that hold its slots."""
    is_waited_for: bool = False
    next_s: float | None = None
    """In how many seconds its rate lets the next unit begin; None if it has none."""
    full_s: float | None = None
    """For how many seconds all its slots have been held; None if one is free."""
    next_at: datetime | None = None
    """When its rate lets the next unit begin; None if that is now, or never."""
    full_at: datetime | None = None
    """Since when all its slots have been held; None if one is free."""
    waiting: int = 0
    """How many jobs wait for it, up to a bound (10,000)."""
    waiting_s: float = 0.0
    """How long these have been waiting, all together."""
    stays: int = 0
    """How often jobs waited for it that do so no more."""
    waited_s: float = 0.0
    """How long they waited for it, all together."""


class LimitsOpened(Struct, frozen=True):
    """How many jobs may be claimed again that waited behind keys, by lane.

    `next_s` is in how many seconds a rate has room again. `after` is the last key that was looked
    at; empty if there are no more.
    """

    ready: dict[int, int] = {}
    next_s: float | None = None
    after: str = ""
