"""The nominal times of a schedule, as instants.

Cron expressions name local times, and twice a year local times and instants part. The rules:

- An hour field that begins with `*` asks for the hours as they pass: a time that comes twice when
  clocks go back fires twice (its offsets tell them apart), and one that does not come at all when
  they go forward does not fire.
- Any other hour field names local times. Each fires once: at the first of two, and one that does
  not come fires at the moment when the clocks go forward.

`cronsim` finds the local times; what it knows of zones is not used, because it covers five fields
only and not all of the above. Where an instant would come twice (two specs, two local times in one
gap) it is one nominal time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import islice
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from longshore.errors import InvalidInput
from longshore.model.schedule import Spec, Timing

_SECOND: Final = timedelta(seconds=1)
_LONGEST_FOLD: Final = timedelta(hours=4)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?")
MOST_LOOKED_AHEAD: Final = 100
"""So many times in a row may be excluded before the next look comes in between."""

Excludes = Callable[[datetime], bool]


def zone_of(name: str) -> ZoneInfo:
    """The time zone; raises `InvalidInput` if the IANA list has none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"'{name}' is no time zone; give a name of the IANA list, like Europe/Vienna"
        ) from None


def candidates(timing: Timing, after: datetime) -> Iterator[tuple[datetime, bool]]:
    """The times after this one, in order, each with whether it is excluded."""
    if timing.starts_at is not None:
        after = max(after, timing.starts_at - _SECOND / 1_000_000)
    anchor = timing.starts_at or _EPOCH
    excludes = _exclusion(timing.exclude)
    each = [_of_spec(spec, anchor, after, excludes) for spec in timing.specs]
    last: datetime | None = None
    for at, is_excluded in merge(*each):
        if timing.ends_at is not None and at > timing.ends_at:
            return
        # An excluded one of two at the same instant comes last: the other counts.
        if at != last:
            yield at, is_excluded
        last = at


def next_times(timing: Timing, after: datetime, most: int) -> list[datetime]:
    """The next nominal times; fewer if it takes too long to find them."""
    found = candidates(timing, after)
    tried = islice(found, most + 100 * MOST_LOOKED_AHEAD)
    return list(islice((at for at, is_excluded in tried if not is_excluded), most))


def next_look(timing: Timing, after: datetime) -> datetime | None:
    """The next nominal time, or an excluded one before it if many are; None if there is none."""
    at: datetime | None = None
    for at, is_excluded in islice(candidates(timing, after), MOST_LOOKED_AHEAD):
        if not is_excluded:
            return at
    return at


def due_at(schedule: UUID, nominal_at: datetime, jitter_s: float) -> datetime:
    """When a nominal time is submitted: with jitter a little later, always by the same amount."""
    if not jitter_s:
        return nominal_at
    key = schedule.bytes + int(nominal_at.timestamp() * 1_000_000).to_bytes(8, "big", signed=True)
    share = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") / 2**64
    return nominal_at + timedelta(seconds=share * jitter_s)


def local(at: datetime, tz: str) -> datetime:
    """The time as clocks show it there."""
    return at.astimezone(zone_of(tz))


# one spec


def _of_spec(
    spec: Spec, anchor: datetime, after: datetime, excludes: Excludes
) -> Iterator[tuple[datetime, bool]]:
    zone = zone_of(spec.tz)
    times = _of_cron(spec.cron, zone, after) if spec.cron else _every(spec.every_s, anchor, after)
    for at in times:
        yield at, excludes(at.astimezone(zone).replace(tzinfo=None, fold=0))


def _every(every_s: float, anchor: datetime, after: datetime) -> Iterator[datetime]:
    every = timedelta(seconds=every_s)
    at = anchor + max(0, (after - anchor) // every + 1) * every
    while True:
        yield at
        try:
            at += every
        except OverflowError:
            return


def _of_cron(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    fields = expression.split()
    passing = fields[-4].startswith("*")
    found = _passing(expression, zone, after) if passing else _named(expression, zone, after)
    last = after
    for at in found:
        if at > last:
            yield at
            last = at


def _named(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Each local time once. The instants never go back."""
    for naive in CronSim(expression, _naive(after, zone)):
        at = naive.replace(tzinfo=zone).astimezone(UTC)
        yield at if _naive(at, zone) == naive else _end_of_gap(naive, zone)


def _passing(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Each local time as often as it comes: first ones and second ones, in order."""
    second: deque[datetime] = deque()
    for naive in CronSim(expression, _naive(after, zone) - _goes_back(after, zone)):
        at = naive.replace(tzinfo=zone).astimezone(UTC)
        if _naive(at, zone) != naive:
            continue
        while second and second[0] < at:
            yield second.popleft()
        yield at
        again = naive.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if again != at:
            second.append(again)
    yield from second


def _naive(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _goes_back(after: datetime, zone: ZoneInfo) -> timedelta:
    """By how much the clocks go back soon: local times before `after` come again then."""
    return max(timedelta(0), _offset(after, zone) - _offset(after + _LONGEST_FOLD, zone))


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)


def _end_of_gap(naive: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks go forward past this local time."""
    low = naive.replace(tzinfo=zone, fold=1).astimezone(UTC)
    high = naive.replace(tzinfo=zone, fold=0).astimezone(UTC)
    before = _offset(low, zone)
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if _offset(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high


# what is excluded


@lru_cache(maxsize=1000)
def _exclusion(exclude: tuple[str, ...]) -> Excludes:
    tests = [_excludes_days(text) or _excludes_cron(text) for text in exclude]
    return lambda naive: any(test(naive) for test in tests)


def _excludes_days(text: str) -> Excludes | None:
    found = _DAYS.fullmatch(text.strip())
    if found is None:
        return None
    try:
        first = date.fromisoformat(found[1])
        last = date.fromisoformat(found[2] or found[1])
    except ValueError as error:
        raise InvalidInput(f"exclude has '{text}': {error}") from None
    return lambda naive: first <= naive.date() <= last


def _excludes_cron(text: str) -> Excludes:
    check_cron(text)
    has_seconds = len(text.split()) == 6

    def excludes(naive: datetime) -> bool:
        at = naive.replace(microsecond=0) if has_seconds else naive.replace(second=0, microsecond=0)
        return next(CronSim(text, at - _SECOND), None) == at

    return excludes


# what is refused


def check_cron(expression: str) -> None:
    """Raises `InvalidInput` unless this is a cron expression of five fields, or six."""
    try:
        CronSim(expression, datetime(2020, 1, 1))
    except CronSimError as error:
        raise InvalidInput(
            f"'{expression}' is no cron expression: {error}; give minute, hour, day of month, "
            "month and day of week, and before them seconds if you like: '0 2 * * *'"
        ) from None


def check_exclude(exclude: tuple[str, ...]) -> None:
    """Raises `InvalidInput` if one of these is neither days nor a cron expression."""
    _exclusion(exclude)
