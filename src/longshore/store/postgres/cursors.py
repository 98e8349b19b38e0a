"""Where claims begin in each lane.

Theory. A claimed job leaves a dead entry at the head of the index of ready jobs. Every later claim
walks over that entry until a vacuum removes it, and an old snapshot can put the vacuum off for
hours. So the store remembers, for each lane and urgency, how far its claims came: a mark. The next
claim begins there. It reads the lane in ranges, each from one mark up to the next urgency that has
a mark.

A job can become ready before a mark: a worker handed it back, it came due, a user retried it, or
its submitter committed late. Three rules find such jobs:

- What this process makes ready moves the mark back at once.
- A mark trails the claims by `TRAIL_S`, for transactions that have a number and commit late.
- A full look reads a lane without marks, every `FULL_LOOK_S`, and also when the lane gave less than
  was wanted. After it the lane rests, for longer if the look cost more, and much longer if the lane
  gave something: its jobs are started as they come, and looks that cost much would make them late.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

TRAIL_S: Final = 0.25
FULL_LOOK_S: Final = 2.0
LOOK_SHARE: Final = 20.0
GIVING_SHARE: Final = 400.0
"""As `LOOK_SHARE`, for a lane that gave something, but less than was wanted."""
LONGEST_REST_S: Final = 10.0
MOST_LEVELS: Final = 8

FIRST_URGENCY: Final = -(2**15)
LAST_URGENCY: Final = 2**15 - 1
_FIRST_RANK: Final = -(2**63)

Place = tuple[int, int]
"""Rank and number: a place within one lane and urgency."""


class Range(NamedTuple):
    """A part of a lane: it begins after a place and ends with an urgency."""

    lane: int
    urgency: int
    rank: int
    number: int
    last_urgency: int


class Reached(NamedTuple):
    """The last place that a claim took in one lane and urgency."""

    lane: int
    urgency: int
    place: Place


class ScanPlan(NamedTuple):
    """What one claim reads, and the versions of its lanes when it began."""

    ranges: list[Range]
    full: frozenset[int]
    versions: dict[int, int]


class _Level:
    """One urgency of one lane: everything up to `mark` was claimed a while ago."""

    def __init__(self, now: float, place: Place) -> None:
        self.mark: Place | None = None
        self._due = place
        self._due_at = now + TRAIL_S
        self._reached = place

    def reach(self, now: float, place: Place) -> None:
        self._reached = max(self._reached, place)
        if now >= self._due_at:
            self.mark, self._due, self._due_at = self._due, self._reached, now + TRAIL_S

    def fall_back(self, place: Place) -> None:
        """Moves back: the next claims begin before this place."""
        before = (place[0], place[1] - 1)
        self.mark = None if self.mark is None else min(self.mark, before)
        self._due = min(self._due, before)
        self._reached = min(self._reached, before)


class _Lane:
    """What is known of one lane."""

    def __init__(self) -> None:
        self.levels: dict[int, _Level] = {}
        self.version = 0
        self.was_short = False
        self.gave_some = False
        self._looked_at = 0.0
        self._rest_s = 0.0

    def looked(self, cost_s: float, now: float) -> None:
        self._looked_at = now
        self._rest_s = min(cost_s * LOOK_SHARE, LONGEST_REST_S)

    def wants_full_look(self, now: float) -> bool:
        rest_s = max(FULL_LOOK_S, self._rest_s)
        if self.was_short:
            giving_s = self._rest_s * GIVING_SHARE / LOOK_SHARE
            rest_s = min(giving_s, rest_s) if self.gave_some else self._rest_s
        return now - self._looked_at >= rest_s


class ClaimCursors:
    """The marks of all lanes that this process claims from."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}

    def look(self, lanes: Iterable[int], now: float) -> ScanPlan:
        """What a claim from these lanes should read now."""
        ranges: list[Range] = []
        full: list[int] = []
        versions: dict[int, int] = {}
        for lane in lanes:
            known = self._lane(lane)
            versions[lane] = known.version
            marks = {} if known.wants_full_look(now) else _marks(known)
            if not marks:
                full.append(lane)
            ranges += _ranges(lane, marks)
        return ScanPlan(ranges, frozenset(full), versions)

    def claimed(
        self, look: ScanPlan, took: Sequence[Reached], *, short: bool, cost_s: float, now: float
    ) -> None:
        """Learns from a committed claim; `short` if it found less than was wanted."""
        gave = {one.lane for one in took}
        for lane in look.versions:
            known = self._lane(lane)
            known.was_short, known.gave_some = short, lane in gave
            if lane in look.full:
                known.looked(cost_s, now)
        for lane, urgency, place in took:
            known = self._lane(lane)
            if known.version == look.versions[lane]:
                _reach(known, urgency, place, now)

    def unseen(self, look: ScanPlan, took: Sequence[Reached], now: float) -> list[int]:
        """The lanes that a short claim read from marks only, and that may have a full look now."""
        short = [lane for lane in look.versions if lane not in look.full]
        gave = {one.lane for one in took}
        for lane in short:
            known = self._lane(lane)
            known.was_short, known.gave_some = True, lane in gave
        return [lane for lane in short if self._lane(lane).wants_full_look(now)]

    def mark(self, lane: int, urgency: int) -> Place | None:
        """Up to where everything in this lane was claimed a while ago, if that is known."""
        known = self._lanes.get(lane)
        level = None if known is None else known.levels.get(urgency)
        return None if level is None else level.mark

    def keep(self, lanes: Container[int]) -> None:
        """Forgets all lanes but these. A claim that is under way may bring others back."""
        self._lanes = {lane: known for lane, known in self._lanes.items() if lane in lanes}

    def _lane(self, lane: int) -> _Lane:
        return self._lanes.setdefault(lane, _Lane())

    def put_back(self, lane: int, urgency: int, place: Place) -> None:
        """A job became ready: if it lies before the mark, the mark moves back before it."""
        known = self._lanes.get(lane)
        if known is None:
            return
        # A claim that is under way may have missed it, and must not move the mark past it.
        known.version += 1
        if urgency in known.levels:
            known.levels[urgency].fall_back(place)


def _reach(lane: _Lane, urgency: int, place: Place, now: float) -> None:
    if urgency in lane.levels:
        lane.levels[urgency].reach(now, place)
        return
    if len(lane.levels) >= MOST_LEVELS:
        del lane.levels[next(iter(lane.levels))]
    lane.levels[urgency] = _Level(now, place)


def _marks(lane: _Lane) -> dict[int, Place]:
    return {
        urgency: level.mark
        for urgency, level in sorted(lane.levels.items())
        if level.mark is not None
    }


def whole_lane(lane: int) -> Range:
    """All of a lane."""
    return Range(lane, FIRST_URGENCY, _FIRST_RANK, 0, LAST_URGENCY)


def _ranges(lane: int, marks: dict[int, Place]) -> Iterator[Range]:
    """The ranges of a lane, which leave out what lies before each mark."""
    urgency, place = FIRST_URGENCY, (_FIRST_RANK, 0)
    for marked, mark in marks.items():
        if marked > FIRST_URGENCY:
            yield Range(lane, urgency, *place, marked - 1)
        urgency, place = marked, mark
    yield Range(lane, urgency, *place, LAST_URGENCY)
