"""What is different between two runs of a group: outcomes and run times by key, alike ones as one.

Keys name the same work in both runs. What has not ended yet is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from longshore.core.lifecycle import TERMINAL
from longshore.model.job import JobState

SHARE: Final = 1.5
"""A job is slower if it took so many times as long as before, and faster likewise."""
LEAST_S: Final = 1.0
"""A smaller difference of run times does not count."""
MOST_KEYS: Final = 10
"""So many keys of those that are alike are named."""


class JobRun(NamedTuple):
    """What became of one key in a run, and how long its last attempt took, if it ran."""

    kind: str
    number: int
    state: JobState
    took_s: float | None


class Difference(Struct, frozen=True, kw_only=True):
    """What is different of some keys of one kind. The seconds are those of all of them."""

    words: str
    kind: str
    count: int
    keys: tuple[tuple[str, int], ...]
    """The first of the keys, each with the number of its newer job."""
    before_s: float = 0.0
    now_s: float = 0.0
    grave: bool = False
    """Whether it went well before, and does not now."""


class _Place(NamedTuple):
    rank: int
    words: str
    kind: str


def differences(before: Mapping[str, JobRun], now: Mapping[str, JobRun]) -> list[Difference]:
    """All that is different, what went worse first."""
    found: dict[_Place, list[str]] = {}
    for key in {**now, **before}:
        place = _place(before.get(key), now.get(key))
        if place is not None:
            found.setdefault(place, []).append(key)
    order = sorted(found, key=lambda place: (place.rank, -len(found[place])))
    return [_difference(place, found[place], before, now) for place in order]


def _place(before: JobRun | None, now: JobRun | None) -> _Place | None:
    """Under which head the difference of one key is told; None if there is none."""
    if now is None:
        return None if before is None else _Place(5, "not in this run", before.kind)
    if before is None:
        return _Place(4, "new in this run", now.kind)
    if now.state not in TERMINAL or before.state not in TERMINAL:
        return None
    if now.state is not before.state:
        rank = 0 if before.state is JobState.SUCCEEDED else 1
        return _Place(rank, f"{_word(before.state)} before, {_word(now.state)} now", now.kind)
    if before.took_s is None or now.took_s is None:
        return None
    if abs(now.took_s - before.took_s) < LEAST_S:
        return None
    if now.took_s >= SHARE * before.took_s:
        return _Place(2, "slower", now.kind)
    return _Place(3, "faster", now.kind) if before.took_s >= SHARE * now.took_s else None


def _word(state: JobState) -> str:
    return state.value.replace("_", " ")


def _difference(
    place: _Place, keys: list[str], before: Mapping[str, JobRun], now: Mapping[str, JobRun]
) -> Difference:
    newer = {**before, **now}
    return Difference(
        words=place.words,
        kind=place.kind,
        count=len(keys),
        keys=tuple((key, newer[key].number) for key in keys[:MOST_KEYS]),
        before_s=sum(before[key].took_s or 0.0 for key in keys if key in before),
        now_s=sum(now[key].took_s or 0.0 for key in keys if key in now),
        grave=place.rank == 0,
    )
