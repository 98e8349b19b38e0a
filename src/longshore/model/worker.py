"""Workers, dispatchers, lanes and queues as the store and the wire know them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from longshore.model.attempt import Attempt
from longshore.model.group import NodeFacts
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, RetryPolicy


class Pool(StrEnum):
    """The pools of Longshore's own workers. Other workers may name their pools as they like."""

    COROUTINE = "coroutine"
    PROCESS = "process"
    THREAD = "thread"


_SLOT_WORDS: dict[str, tuple[str, str]] = {
    Pool.COROUTINE: ("slot", "slots"),
    Pool.PROCESS: ("process", "processes"),
    Pool.THREAD: ("thread", "threads"),
}


def slot_words(pool: str) -> tuple[str, str]:
    """The words for one slot of a pool, and for several. They match the names of the settings."""
    return _SLOT_WORDS.get(pool, (f"{pool} slot", f"{pool} slots"))


AHEAD_POOLS: Final = frozenset({Pool.PROCESS, Pool.THREAD})
"""The pools whose attempts a worker may hold ahead of its slots."""


class Parameter(Struct, frozen=True, omit_defaults=True):
    """One parameter of a kind, for submitters without the code.

    `type` is for people. `schema`, a JSON schema as text, is what values must match.
    """

    name: str
    required: bool = True
    type: str = ""
    schema: str = ""


class KindTerms(Struct, frozen=True, omit_defaults=True):
    """What the app declares for the jobs of a kind. A submit may override each field."""

    queue: str = DEFAULT_QUEUE
    target: str = ANY_TARGET
    priority: int = 0
    timeout_s: float | None = None
    retry: RetryPolicy = RetryPolicy()


class KindInfo(Struct, frozen=True, omit_defaults=True):
    """What a worker advertises of a kind. `parameters` is None if it accepts any.

    An attempt takes one slot of the kind's pool.
    """

    pool: str = Pool.COROUTINE
    parameters: tuple[Parameter, ...] | None = None
    terms: KindTerms = KindTerms()


class Lane(Struct, frozen=True):
    """Queue, kind and target. A worker serves either all jobs of a lane or none."""

    hash: int
    queue: str
    kind: str
    target: str


class WorkerInfo(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a worker says of itself when it joins. Without queues it serves all."""

    id: UUID
    name: str = ""
    host: str = ""
    pid: int = 0
    kinds: dict[str, KindInfo] = {}
    queues: tuple[str, ...] = ()
    target: str = ""
    pools: dict[str, int] = {}
    """How many attempts it runs at once in each pool."""
    process: str = ""
    """Names its machine and process. A dispatcher on that machine sees when the process ends."""
    key: str = ""
    """The key that opened its connection, if the dispatcher asks for keys."""


class Stats(Struct, frozen=True, omit_defaults=True):
    """How busy a worker's machine is."""

    cpu_percent: float = 0.0
    memory_percent: float = 0.0


class Ahead(Struct, frozen=True, omit_defaults=True):
    """What a worker holds ahead of its free slots, if it is given them: so many, of these kinds."""

    pools: dict[str, int] = {}
    kinds: tuple[str, ...] = ()


class Attended(Struct, frozen=True):
    """The store attends the worker: its new session, and the attempts that it owns."""

    session: int
    placed: tuple[Attempt, ...] = ()


class Gone(Struct, frozen=True):
    """The worker was declared lost: it must stop its jobs and come back as a new worker."""

    reason: str


class Late(Struct, frozen=True):
    """The worker has asked for a later session since: nothing changed."""

    session: int


class LostWorker(Struct, frozen=True):
    """A session that ended without a goodbye."""

    info: WorkerInfo
    session: int
    reason: str


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker as commands show it; `running` counts its jobs by kind.

    The dispatcher writes `seen_at` and the machine's load every few seconds, not at every PING.
    """

    info: WorkerInfo
    session: int
    dispatcher: UUID
    alive: bool
    draining: bool
    running: dict[str, int]
    started_at: datetime
    attended_at: datetime
    ended_at: datetime | None = None
    ended_why: str = ""
    seen_at: datetime | None = None
    cpu_percent: float | None = None
    memory_percent: float | None = None
    silent_s: float = 0.0
    """How long its dispatcher has not renewed its lease; 0 while it does."""


class DispatcherView(Struct, frozen=True, kw_only=True):
    """A dispatcher as commands show it. While it lives, `renewed_no` keeps changing."""

    id: UUID
    name: str
    renewed_no: int
    started_at: datetime


class DrainVerdict(StrEnum):
    """What a drain did."""

    DRAINING = "draining"
    ALREADY_DRAINING = "already_draining"
    GONE = "gone"
    AMBIGUOUS = "ambiguous"
    NOT_FOUND = "not_found"


class PoolCapacity(Struct, frozen=True, kw_only=True):
    """What a pool can take, over all workers that use it."""

    pool: str
    workers: int
    slots: int
    busy: int
    free: int


class KindCapacity(Struct, frozen=True, kw_only=True):
    """What the fleet can take of a kind: `free` more jobs, in a pool that other kinds may share.

    `busy` counts the pool's jobs of every kind, `running` those of this one.
    """

    kind: str
    pool: str
    workers: int
    slots: int
    busy: int
    free: int
    running: int


class Capacity(Struct, frozen=True, kw_only=True):
    """What the fleet can take now."""

    kinds: tuple[KindCapacity, ...]
    pools: tuple[PoolCapacity, ...]


class QueueView(Struct, frozen=True):
    """A queue: whether it is paused, and how many jobs it holds in each state."""

    name: str
    paused: bool
    counts: dict[str, int]


class SessionKey(Struct, frozen=True, gc=False):
    """Names one session of a worker. Where slots are listed, each is named by its session."""

    worker: UUID
    session: int


class Claim(Struct, frozen=True):
    """A claim: at most one job for each slot, from these lanes, best job first."""

    lanes: tuple[int, ...]
    slots: tuple[SessionKey, ...]


class Facts(Struct, frozen=True, kw_only=True):
    """What `why` needs beside the job, read at one moment."""

    queue_paused: bool
    workers: tuple[WorkerView, ...]
    ahead: int
    now: datetime
    lane_limit: int | None = None
    """Set if the job's lane is past this limit: no dispatcher looks there."""
    supervisor_trouble: str = ""
    """Why the workers beside the dispatcher do not start; empty if they do."""
    node: NodeFacts | None = None
    """Its place in its group, if it has one."""
