"""Which jobs with limits may start, and behind which key the others wait.

Theory. A store that claims jobs with limits locks their keys, reads what it has of them
(`KeyState`), and asks `Starts` about one job after another, in the order of claims. A job starts if
each of its keys has room; it then holds a *slot* of each, also where nothing limits the key so far:
a rule may come while the job runs. Slots are numbered from 1 on, and a store never has two rows of
one slot: so nothing is ever above, even if two claims should count at the same moment.

A slot is held by an attempt, that is by a job and its token. It is free once the job has left that
attempt: whatever ended it, nobody has to give anything back, and no slot can leak.

Keys of kinds and queues that have a rule count all that runs in their lanes (see `lane_rules`), and
not only the attempts that have a slot: `others` says how many have none.

A job that may not start is put behind the first of its keys that has no room, out of the way of
claims. When room comes, as many of those behind a key go back before claims as may start, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from longshore.core.gcra import Passed, free_units, pass_units
from longshore.core.key_limits import Bounds, bounds_of
from longshore.model.job import Options
from longshore.model.limits import JobLimit, LimitRule, Rate

MOST_WOKEN: Final = 1000
"""How many jobs at most go back before claims at once, of each lane behind a key."""


@dataclass
class KeyState:
    """A key that is locked: the slots that attempts hold, and when its rate would be even."""

    slots: set[int] = field(default_factory=set)
    even_at: int = 0
    others: int = 0
    """How many attempts count for it besides, without a slot."""

    @property
    def running(self) -> int:
        """How many attempts count for it."""
        return len(self.slots) + self.others


class Start(NamedTuple):
    """It may start. `slots` are those that it holds then: of which keys, and their numbers."""

    slots: tuple[tuple[str, int], ...]


class Behind(NamedTuple):
    """It waits behind a key; `until` is when its rate has room, None if nobody knows."""

    key: str
    until: int | None = None


class Closed(NamedTuple):
    """A key lets no job begin that takes one unit; `until` is when its rate has room, if that."""

    until: int | None = None


class NotNow(NamedTuple):
    """Somebody else has one of its keys at the moment."""


NOT_NOW: Final = NotNow()


class Starts:
    """Decides about jobs one by one, in the order of claims; `keys` are those that are locked."""

    def __init__(self, rules: Sequence[LimitRule], keys: dict[str, KeyState], now: int) -> None:
        self._rules = rules
        self._keys = keys
        self._now = now
        self._bounds: dict[JobLimit, Bounds] = {}
        self._free_from: dict[str, int] = {}
        self.passed: dict[str, int] = {}
        """For each key with a rate of which units began, the time to keep."""

    def of(
        self, limits: Sequence[JobLimit], of_lane: Sequence[str] = ()
    ) -> Start | Behind | NotNow:
        """What becomes of a job with these limits, in a lane that counts for these keys too."""
        implied: Sequence[JobLimit] = ()
        if of_lane:
            named = {limit.key for limit in limits}
            implied = [JobLimit(key) for key in of_lane if key not in named]
        passed: dict[str, int] = {}
        for limit in (*implied, *limits):
            state = self._keys.get(limit.key)
            if state is None:
                return NOT_NOW
            bounds = self._bounds_of(limit)
            if bounds.concurrency is not None and state.running >= bounds.concurrency:
                return Behind(limit.key)
            if bounds.rate is not None:
                found = pass_units(bounds.rate, limit.units, state.even_at, self._now)
                if not isinstance(found, Passed):
                    return Behind(limit.key, found.until)
                passed[limit.key] = found.even_at
        for limit in implied:
            self._keys[limit.key].others += 1
        for key, even_at in passed.items():
            self._keys[key].even_at = even_at
        self.passed |= passed
        return Start(tuple((limit.key, self._take_slot(limit.key)) for limit in limits))

    def room(self, limit: JobLimit) -> int:
        """How many jobs like this one may start, as far as its key goes."""
        state, bounds = self._keys[limit.key], self._bounds_of(limit)
        most = MOST_WOKEN
        if bounds.concurrency is not None:
            most = min(most, bounds.concurrency - state.running)
        if bounds.rate is not None:
            most = min(most, self._free(bounds.rate, limit))
        return max(0, most)

    def _free(self, rate: Rate, limit: JobLimit) -> int:
        """How many such jobs the rate lets begin now."""
        even_at = self._keys[limit.key].even_at
        return free_units(rate, even_at, self._now, limit.units) // limit.units

    def closed(self, keys: Iterable[str]) -> Closed | None:
        """Whether one of these keys lets no job begin that takes one unit; None if all let one."""
        key = self.full_of(keys)
        return None if key is None else Closed(self.until(JobLimit(key)))

    def full_of(self, keys: Iterable[str]) -> str | None:
        """The first of these keys that lets no job begin that takes one unit."""
        return next((key for key in keys if not self.room(JobLimit(key))), None)

    def until(self, limit: JobLimit) -> int | None:
        """When the rate of its key lets such a job begin; None if it has none, or it may now."""
        state, bounds = self._keys[limit.key], self._bounds_of(limit)
        if bounds.rate is None:
            return None
        found = pass_units(bounds.rate, limit.units, state.even_at, self._now)
        return None if isinstance(found, Passed) else found.until

    def _take_slot(self, key: str) -> int:
        """Takes the lowest slot that is free. Free ones only become fewer while this decides."""
        slots, number = self._keys[key].slots, self._free_from.get(key, 1)
        while number in slots:
            number += 1
        slots.add(number)
        self._free_from[key] = number + 1
        return number

    def _bounds_of(self, limit: JobLimit) -> Bounds:
        if limit not in self._bounds:
            self._bounds[limit] = bounds_of(limit, self._rules)
        return self._bounds[limit]


def keys_text(limits: Sequence[JobLimit]) -> str | None:
    """The keys of a job as a store keeps them; None if it has none."""
    return "\n".join(limit.key for limit in limits) or None


def held_keys_text(options: Options) -> str | None:
    """The keys of a job of a group as a store keeps them until it is ready.

    With any, even an empty text, it does not start in the statement that makes it ready.
    """
    return keys_text(options.limits) or ("" if options.fair else None)


def soonest(times: Iterable[int | None]) -> int | None:
    """The first of these times; None if there is none."""
    return min((at for at in times if at is not None), default=None)
