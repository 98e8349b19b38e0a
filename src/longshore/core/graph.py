"""The shape of a group: whether its dependencies can be met, and in which order its jobs start.

Theory. The *height* of a node is the length of the longest path from it down to one that nothing
depends on: the number of nodes on it, or the sum of their weights, as whole numbers above 0. A node
is higher than every node that depends on it. So the order by falling height does two things at
once: each node comes after those it depends on, and of two that can run, the one with the longer
path below it comes first. A store numbers jobs in this order and claims them by number. That starts
the longest paths first, and older groups before younger ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from heapq import heappop, heappush
from typing import Final

from longshore.errors import InvalidInput

MAX_STEPS: Final = 1_000_000
"""How many edges the search for the shortest cycle follows before it takes the best it found."""
_SHOWN: Final = 20

Edges = Mapping[str, Sequence[str]]
"""For each key, the keys that it depends on."""
Weights = Mapping[str, int]
"""For each key, how long its job takes, in any unit. A key without a weight counts 1."""


def start_order(after: Edges, weights: Weights | None = None) -> list[str]:
    """The keys in the order in which a group numbers its jobs.

    Weights must be above 0: only then each key comes after those it depends on. Raises
    `InvalidInput` if a dependency is unknown, or if there is a cycle: then no job of it could ever
    start.
    """
    _check_known(after)
    heights = _heights(after, weights or {})
    # Of keys as high as each other, the first stays first.
    return sorted(after, key=heights.__getitem__, reverse=True)


def _check_known(after: Edges) -> None:
    for key, wanted in after.items():
        for other in wanted:
            if other == key:
                raise InvalidInput(f"job '{key}' depends on itself; remove it from its `after`")
            if other not in after:
                near = get_close_matches(other, after, n=1)
                hint = f" (nearest: '{near[0]}')" if near else ""
                raise InvalidInput(
                    f"job '{key}' depends on '{other:.200}', which the group does not have{hint}"
                )


def _heights(after: Edges, weights: Weights) -> dict[str, int]:
    """How long the longest path is from each node down."""
    dependents = dict.fromkeys(after, 0)
    # A key that is named twice counts twice, up and down.
    for wanted in after.values():
        for other in wanted:
            dependents[other] += 1
    heights = {key: weights.get(key, 1) for key in after} if weights else dict.fromkeys(after, 1)
    frontier = deque(key for key, count in dependents.items() if not count)
    done = 0
    while frontier:
        key = frontier.popleft()
        done += 1
        height = heights[key]
        for other in after[key]:
            above = height + (weights.get(other, 1) if weights else 1)
            if above > heights[other]:
                heights[other] = above
            dependents[other] -= 1
            if not dependents[other]:
                frontier.append(other)
    if done < len(after):
        cyclic = {key: after[key] for key, count in dependents.items() if count}
        raise InvalidInput(f"these jobs wait for each other: {_told(_shortest_cycle(cyclic))}")
    return heights


def _told(cycle: Sequence[str]) -> str:
    """A cycle in words, each key followed by the one that it depends on."""
    shown = [f"'{key}'" for key in cycle[:_SHOWN]]
    if len(cycle) > _SHOWN:
        shown.append(f"… ({len(cycle) - _SHOWN:,} more)")
    return " after ".join([*shown, f"'{cycle[0]}'"])


def _shortest_cycle(after: Edges) -> list[str]:
    """The shortest cycle, or the shortest that was found within `MAX_STEPS`."""
    best: list[str] = []
    steps = 0
    for start in after:
        found, taken = _cycle_through(start, after, len(best))
        steps += taken
        if found:
            best = found
        if best and (len(best) == 2 or steps > MAX_STEPS):
            break
    return best


def _cycle_through(start: str, after: Edges, below: int) -> tuple[list[str], int]:
    """The shortest cycle through a key, if it is shorter than `below`; and the edges looked at."""
    came_from: dict[str, str] = {}
    frontier, steps, length = [start], 0, 1
    while frontier and (not below or length < below):
        following = []
        for key in frontier:
            for other in after[key]:
                steps += 1
                if other == start:
                    return _path(came_from, key), steps
                if other in after and other not in came_from:
                    came_from[other] = key
                    following.append(other)
        frontier, length = following, length + 1
    return [], steps


def _path(came_from: Mapping[str, str], last: str) -> list[str]:
    path = [last]
    while path[-1] in came_from:
        path.append(came_from[path[-1]])
    return path[::-1]


def places(order: Iterable[str], after: Edges) -> list[tuple[int, ...]]:
    """For each key in this order, the places of those that it depends on, each once."""
    known: dict[str, int] = {}
    found: list[tuple[int, ...]] = []
    for place, key in enumerate(order):
        wanted = after[key]
        found.append(tuple(sorted({known[other] for other in wanted})) if wanted else ())
        known[key] = place
    return found


def layers(after: Edges) -> list[list[str]]:
    """The keys in layers: those of one layer depend only on those of the layers above."""
    depth: dict[str, int] = {}
    found: list[list[str]] = []
    for key in start_order(after):
        depth[key] = max((depth[other] + 1 for other in after[key]), default=0)
        if depth[key] == len(found):
            found.append([])
        found[depth[key]].append(key)
    return found


def longest_chain(after: Edges, weights: Weights | None = None) -> list[str]:
    """The keys on a longest path, each followed by one that depends on it.

    `after` has each key after those that it depends on. Dependencies that are no keys of it do not
    count. Of several paths it takes the one that ends first, by the order of the keys.
    """
    weights = weights or {}
    lengths: dict[str, int] = {}
    came_from: dict[str, str] = {}
    for key, wanted in after.items():
        known = [other for other in wanted if other in lengths]
        lengths[key] = weights.get(key, 1)
        if known:
            came_from[key] = max(known, key=lengths.__getitem__)
            lengths[key] += lengths[came_from[key]]
    return _path(came_from, max(lengths, key=lengths.__getitem__)) if lengths else []


def makespan(after: Edges, seconds: Mapping[str, float], slots: int) -> float:
    """How long the jobs take on so many slots, if a free slot takes the first that can run.

    `after` has the jobs in the order in which they are taken. Dependencies that are no keys of it
    have ended.
    """
    unmet = {
        key: len({other for other in wanted if other in after}) for key, wanted in after.items()
    }
    dependents: dict[str, list[int]] = {key: [] for key in after}
    keys = list(after)
    for place, key in enumerate(keys):
        for other in {other for other in after[key] if other in after}:
            dependents[other].append(place)
    ready = [place for place, key in enumerate(keys) if not unmet[key]]
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < slots:
            place = heappop(ready)
            heappush(running, (now + seconds[keys[place]], place))
        now, ended = heappop(running)
        for place in dependents[keys[ended]]:
            unmet[keys[place]] -= 1
            if not unmet[keys[place]]:
                heappush(ready, place)
    return now
