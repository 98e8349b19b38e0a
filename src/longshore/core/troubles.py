"""What is wrong right now, in words, by what the store keeps counted and who is alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from longshore.core.blocking import Cause
from longshore.core.job_query import term
from longshore.core.limits import RESERVED_PREFIX
from longshore.core.rates import rate_text
from longshore.core.turns import is_turn_kind, split_kind
from longshore.model.depth import LaneView
from longshore.model.group import Group
from longshore.model.job import Job, JobState
from longshore.model.limits import KeyView
from longshore.model.schedule import Schedule
from longshore.model.worker import WorkerView

LEAST_FAILED: Final = 3
"""A kind of which fewer jobs have failed is not called failing."""
FAILING_SHARE: Final = 0.2
"""A kind is failing if this share of its ended jobs, of those that are kept, has failed."""
MOST_TOLD: Final = 12


class About(StrEnum):
    """What a trouble is about: where to look."""

    JOBS = "jobs"
    QUEUES = "queues"
    WORKERS = "workers"
    DISPATCHERS = "dispatchers"
    ACTORS = "actors"
    TURNS = "turns"
    LIMITS = "limits"
    SCHEDULES = "schedules"
    GROUPS = "groups"


class Trouble(Struct, frozen=True, kw_only=True):
    """One thing that is wrong; `since` is when it began, if that is known."""

    words: str
    about: About
    query: str = ""
    """The search that finds the jobs that it is about; the type of actors, a schedule's name,
    a group's number."""
    since: datetime | None = None
    grave: bool = True
    """Whether jobs stand still because of it."""


class SeenDispatcher(Struct, frozen=True):
    """A dispatcher: its name, whether it renews its lease, and for how long it has not."""

    name: str
    alive: bool
    silent_s: float


_NOBODY: Final = {
    Cause.NO_WORKER: "no live worker serves it",
    Cause.SILENT_DISPATCHER: "the dispatcher of its workers is silent",
    Cause.DRAINING: "all its workers are draining",
    Cause.NO_SLOTS: "its workers have no slots for it",
    Cause.LANE_LIMIT: "it is past max_lanes, and no dispatcher looks there",
}


def troubles(
    lanes: Sequence[LaneView],
    workers: Sequence[WorkerView],
    dispatchers: Iterable[SeenDispatcher],
    keys: Iterable[KeyView] = (),
    schedules: Iterable[Schedule] = (),
    turns: Iterable[Job] = (),
    stalled: Iterable[Group] = (),
) -> list[Trouble]:
    """All that is wrong, what is grave first.

    `keys` are those that jobs wait for, `schedules` those that paused after failures, `turns` those
    that may hang, `stalled` groups that make no progress though they could.
    """
    found = [
        *_of_dispatchers(dispatchers),
        *_of_groups(stalled),
        *_of_lanes(lanes),
        *_paused(lanes),
        *_of_actors(lanes),
        *_of_turns(turns),
        *_of_schedules(schedules),
        *_of_workers(workers),
        *_of_keys(keys),
        *_failing(lanes),
    ]
    return sorted(found, key=lambda one: not one.grave)[:MOST_TOLD]


def _of_dispatchers(dispatchers: Iterable[SeenDispatcher]) -> Iterator[Trouble]:
    for one in dispatchers:
        if not one.alive:
            words = f"dispatcher {one.name} is silent: it does not renew its lease"
            yield Trouble(words=words, about=About.DISPATCHERS)


def _of_groups(stalled: Iterable[Group]) -> Iterator[Trouble]:
    for one in stalled:
        words = f"group {one.number} ({one.name}) makes no progress though it could"
        query = str(one.number)
        yield Trouble(words=words, about=About.GROUPS, query=query, since=one.stalled_at)


def _of_lanes(lanes: Iterable[LaneView]) -> Iterator[Trouble]:
    for lane in lanes:
        why = _NOBODY.get(Cause(lane.held_back)) if lane.held_back else None
        ready = lane.counts.get(JobState.READY.value, 0)
        if why is not None:
            target = f" for target '{lane.target}'" if lane.target else ""
            words = f"{_jobs(ready)} of kind '{lane.kind}' in queue '{lane.queue}'{target}: {why}"
            terms = (term("kind", lane.kind), term("queue", lane.queue), "state:ready")
            query = " ".join(terms)
            yield Trouble(words=words, about=About.JOBS, query=query, since=lane.oldest_at)


def _paused(lanes: Iterable[LaneView]) -> Iterator[Trouble]:
    waiting: Counter[str] = Counter()
    since: dict[str, datetime | None] = {}
    for lane in lanes:
        ready = lane.counts.get(JobState.READY.value, 0)
        if lane.paused and ready:
            waiting[lane.queue] += ready
            since[lane.queue] = lane.paused_at
    for queue, count in waiting.items():
        words = f"queue '{queue}' is paused, and {_jobs(count)} wait in it"
        query = f"{term('queue', queue)} state:ready"
        yield Trouble(words=words, about=About.QUEUES, query=query, since=since[queue])


def _of_actors(lanes: Iterable[LaneView]) -> Iterator[Trouble]:
    failed: Counter[str] = Counter()
    for lane in lanes:
        type, version = split_kind(lane.kind)
        if version:
            failed[type] += lane.counts.get(JobState.FAILED.value, 0)
    for type, count in failed.items():
        if count:
            noun, whose = ("1 actor", "its") if count == 1 else (f"{count:,} actors", "their")
            words = f"{noun} of type '{type}' failed, and {whose} messages wait"
            yield Trouble(words=words, about=About.ACTORS, query=type)


def _of_turns(turns: Iterable[Job]) -> Iterator[Trouble]:
    found: dict[str, list[Job]] = {}
    for one in turns:
        found.setdefault(split_kind(one.kind)[0], []).append(one)
    for type, long in found.items():
        some, ends, whom = "a turn", "it", "its actor"
        if len(long) > 1:
            some, ends, whom = f"{len(long):,} turns", "them", "their actors"
        what = f"may hang: no timeout_s ends {ends}, and what is sent to {whom} waits"
        words = f"{some} of type '{type}' {what}"
        since = min((one.started_at for one in long if one.started_at), default=None)
        yield Trouble(words=words, about=About.TURNS, query=type, since=since, grave=False)


def _of_schedules(schedules: Iterable[Schedule]) -> Iterator[Trouble]:
    for one in schedules:
        name, state = one.new.name, one.state
        words = f"schedule '{name}' is paused: {state.note or 'its runs failed'}"
        at = state.paused_at
        yield Trouble(words=words, about=About.SCHEDULES, query=name, since=at)


def _of_keys(keys: Iterable[KeyView]) -> Iterator[Trouble]:
    for one in keys:
        if one.is_waited_for and one.concurrency is not None and one.full_at is not None:
            used = f"{one.held:,} of {one.concurrency:,} in use"
            words = f"key {one.key} is full ({used}), and jobs wait for it"
            yield Trouble(words=words, about=About.LIMITS, since=one.full_at, grave=False)
        elif one.is_waited_for and one.rate is not None and one.next_at is not None:
            words = f"key {one.key} is at its rate ({rate_text(one.rate)}), and jobs wait for it"
            yield Trouble(words=words, about=About.LIMITS, grave=False)


def _of_workers(workers: Sequence[WorkerView]) -> Iterator[Trouble]:
    alive = [one for one in workers if one.alive]
    if not any(not one.info.gateway for one in alive):
        yield Trouble(words="no worker is alive", about=About.WORKERS, grave=False)
    for one in workers:
        if not one.alive and one.ended_why and "lost" in one.ended_why and not one.info.gateway:
            words = f"worker {one.info.name or one.info.id} was lost: {one.ended_why}"
            yield Trouble(words=words, about=About.WORKERS, since=one.ended_at, grave=False)


def _failing(lanes: Iterable[LaneView]) -> Iterator[Trouble]:
    failed: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for lane in lanes:
        if is_turn_kind(lane.kind):
            continue
        bad = lane.counts.get(JobState.FAILED.value, 0)
        failed[lane.kind] += bad
        ended[lane.kind] += bad + lane.counts.get(JobState.SUCCEEDED.value, 0)
    for kind, bad in failed.most_common():
        if bad >= LEAST_FAILED and bad >= FAILING_SHARE * ended[kind]:
            if kind.startswith(RESERVED_PREFIX) and kind not in ended:
                continue
            words = f"kind '{kind}' fails: {bad:,} of the {ended[kind]:,} kept jobs that ran"
            query = f"{term('kind', kind)} state:failed"
            yield Trouble(words=words, about=About.JOBS, query=query, grave=False)


def _jobs(count: int) -> str:
    return f"{count:,} ready job{'' if count == 1 else 's'}"
