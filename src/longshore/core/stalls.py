"""Which groups make no progress though they could, and what is said of them.

Theory. A group that has not ended must do one of four things: run a job, have one that waits for a
worker or for a time, be held by a person (a pause), or end. A store tells of each group a *mark*
that changes with every end. A watcher compares marks, by its own clock: this is cheap, and it may
err, as one job can run for a day. So a mark that stayed for long is only the reason to look closely
(`core.examining`), and the close look decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from longshore.core.group_words import in_states
from longshore.core.lanes import lane_of, serves
from longshore.core.lifecycle import OWNED
from longshore.core.timing import span
from longshore.model.finding import Finding
from longshore.model.group import Group, GroupProgress, GroupState
from longshore.model.job import Job, JobState
from longshore.model.worker import Lane, WorkerInfo

WATCHED: Final = frozenset({GroupState.RUNNING, GroupState.CANCELLING})
"""A group in another state waits for its submitter or for a person."""
MOST_TOLD: Final = 20
"""Of how many jobs and lanes a message tells."""
_NAMES_TOLD: Final = 5
STALLED: Final = "stalled"
"""What is said of a group that makes no progress though it could."""


class Policy(StrEnum):
    """What dispatchers do to a group that makes no progress though it could."""

    LOG = "log"
    REPAIR = "repair"
    CANCEL = "cancel"


class _Watched:
    __slots__ = ("look_at", "mark", "since", "told")

    def __init__(self, mark: int, since: float, look_at: float) -> None:
        self.mark = mark
        self.since = since
        self.look_at = look_at
        self.told: set[str] = set()


class GroupWatch:
    """Remembers of each group since when its mark stayed, and what was said of it since."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._watched: dict[int, _Watched] = {}

    def see(self, page: Sequence[GroupProgress], after: int, up_to: int | None, now: float) -> None:
        """These are the groups between two numbers; without the second, they are the last ones."""
        known = {one.number: one for one in page if one.state in WATCHED}
        for number in list(self._watched):
            if after < number and (up_to is None or number <= up_to) and number not in known:
                del self._watched[number]
        for number, one in known.items():
            watched = self._watched.get(number)
            if watched is None or watched.mark != one.mark:
                self._watched[number] = _Watched(one.mark, now, now + self._stall_s)

    def due(self, now: float, most: int) -> list[int]:
        """The numbers of groups to look at closely now, those first that waited longest for it.

        Each is due again when it made no progress for as long once more.
        """
        late = [
            (one.look_at, number) for number, one in self._watched.items() if one.look_at <= now
        ]
        found = [number for _, number in sorted(late)[:most]]
        for number in found:
            self._watched[number].look_at = now + self._stall_s
        return found

    def idle_s(self, group: int, now: float) -> float:
        """For how long a group has made no progress, as far as this watch saw."""
        return now - self._watched[group].since

    def is_news(self, group: int, words: str) -> bool:
        """Whether this was not said of the group yet since its last progress."""
        told = self._watched[group].told
        if words in told:
            return False
        told.add(words)
        return True

    def stalled(self) -> list[int]:
        """The numbers of groups of which it was said that they stand still."""
        return [number for number, one in self._watched.items() if STALLED in one.told]

    def mark_of(self, group: int) -> int:
        """The mark that stayed."""
        return self._watched[group].mark


def works(group: Group) -> bool:
    """Whether something of a group runs, or waits for a time."""
    moving = {*OWNED, JobState.DELAYED}
    return any(group.counts.get(state.value) for state in moving)


def unserved(lanes: Mapping[Lane, int], alive: Sequence[WorkerInfo]) -> dict[Lane, int]:
    """Those of these lanes that no live worker serves."""
    return {
        lane: count
        for lane, count in lanes.items()
        if not any(serves(worker, lane) for worker in alive)
    }


# words


def stall_words(
    group: Group,
    idle_s: float,
    findings: Sequence[Finding],
    jobs: Sequence[Job],
    alive: Sequence[WorkerInfo],
) -> str:
    """A stall in full: what is wrong, and for each job who could run it."""
    lines = [
        f"group {group.number} ({group.name}) has made no progress for {span(idle_s)} though it "
        f"could: {in_states(group)}; nothing of it runs, and nothing that a worker could take",
        *_some([finding.words for finding in findings]),
        *_some([_runner(job, alive) for job in jobs]),
    ]
    return "\n".join(lines)


def _runner(job: Job, alive: Sequence[WorkerInfo]) -> str:
    lane = lane_of(job.queue, job.kind, job.target)
    return f"job {job.number} ({_lane_words(lane)}) is {job.state}; {_servers(lane, alive)}"


def _servers(lane: Lane, alive: Sequence[WorkerInfo]) -> str:
    able = [worker.name or str(worker.id) for worker in alive if serves(worker, lane)]
    if not able:
        return "no live worker serves it"
    more = f" and {len(able) - _NAMES_TOLD:,} more" if len(able) > _NAMES_TOLD else ""
    return f"served by {', '.join(able[:_NAMES_TOLD])}{more}"


def unserved_words(group: Group, idle_s: float, lanes: Mapping[Lane, int], alive: int) -> str:
    """Ready jobs that nobody can run."""
    workers = f"none of the {alive:,} live workers serves" if alive else "no worker lives to serve"
    lines = [
        f"group {group.number} ({group.name}) has made no progress for {span(idle_s)}: "
        f"{in_states(group)}; {workers}",
        *_some([f"{_lane_words(lane)}: {count:,} ready" for lane, count in lanes.items()]),
    ]
    return "\n".join(lines)


def _lane_words(lane: Lane) -> str:
    target = f", target '{lane.target}'" if lane.target else ""
    return f"kind '{lane.kind}', queue '{lane.queue}'{target}"


def _some(lines: Iterable[str]) -> list[str]:
    given = list(lines)
    more = len(given) - MOST_TOLD
    return [*given[:MOST_TOLD], *([f"and {more:,} more"] if more > 0 else [])]
