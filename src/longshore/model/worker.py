"""Workers, dispatchers, lanes and queues as the store and the wire know them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from longshore.model.attempt import Attempt
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, RetryPolicy


class Pool(StrEnum):
    """The pools of Longshore's own workers. Others may advertise pools of any name."""

    COROUTINE = "coroutine"
    PROCESS = "process"


_SLOT_WORDS: dict[str, tuple[str, str]] = {
    Pool.COROUTINE: ("slot", "slots"),
    Pool.PROCESS: ("process", "processes"),
}


def slot_words(pool: str) -> tuple[str, str]:
    """What people call one slot of a pool, and several: where a setting sets them, by its name."""
    return _SLOT_WORDS.get(pool, (f"{pool} slot", f"{pool} slots"))


class Parameter(Struct, frozen=True, omit_defaults=True):
    """One parameter of a job, as far as a submitter elsewhere needs to know it.

    `type` is shown to people. `schema`, a JSON schema as text, is what values are held to.
    """

    name: str
    required: bool = True
    type: str = ""
    schema: str = ""


class KindTerms(Struct, frozen=True, omit_defaults=True):
    """What the app declares for the jobs of a kind, where a submit does not say otherwise."""

    queue: str = DEFAULT_QUEUE
    target: str = ANY_TARGET
    priority: int = 0
    timeout_s: float | None = None
    retry: RetryPolicy = RetryPolicy()


class KindInfo(Struct, frozen=True, omit_defaults=True):
    """What a worker advertises of a kind. `parameters` is None if any are accepted.

    An attempt takes one slot of the kind's pool.
    """

    pool: str = Pool.COROUTINE
    parameters: tuple[Parameter, ...] | None = None
    terms: KindTerms = KindTerms()


class Lane(Struct, frozen=True):
    """Queue, kind and target: what a worker either can or cannot serve."""

    hash: int
    queue: str
    kind: str
    target: str


class WorkerInfo(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a worker says of itself when it attends. No queues means all of them."""

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
    """Which process of which machine it is, by which a dispatcher there can see that it ended."""
    key: str = ""
    """The key that opened its connection, where keys are asked for."""


class Stats(Struct, frozen=True, omit_defaults=True):
    """How busy a worker's machine is."""

    cpu_percent: float = 0.0
    memory_percent: float = 0.0


class Attended(Struct, frozen=True):
    """A worker that is attended: its new session, and what the store says is placed on it."""

    session: int
    placed: tuple[Attempt, ...] = ()


class Gone(Struct, frozen=True):
    """A worker that was declared lost: it must stop what it runs and come back as a new one."""

    reason: str


class Late(Struct, frozen=True):
    """A worker that has asked for a later session since: nothing was changed."""

    session: int


class LostWorker(Struct, frozen=True):
    """A session that ended without a goodbye."""

    info: WorkerInfo
    session: int
    reason: str


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker as it is shown; `running` counts its jobs by kind.

    `seen_at` and its machine's load are written down every few seconds, not at every PING.
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
    """For how long the dispatcher that attends it has shown no sign of life; 0 while it does."""


class DispatcherView(Struct, frozen=True, kw_only=True):
    """A dispatcher as it is shown; `renewed_no` changes for as long as it lives."""

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
    """What can be taken of a kind: `free` more jobs, in a pool that other kinds may share.

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


class Slot(Struct, frozen=True, gc=False):
    """One free slot of one session of a worker."""

    worker: UUID
    session: int


class Want(Struct, frozen=True):
    """A wish to claim: at most one job for each slot, from these lanes, best first."""

    lanes: tuple[int, ...]
    slots: tuple[Slot, ...]


class Facts(Struct, frozen=True, kw_only=True):
    """What `why` needs beside the job itself, read at one moment."""

    queue_paused: bool
    workers: tuple[WorkerView, ...]
    ahead: int
    now: datetime
    lane_limit: int | None = None
    """Set if the job's lane is one too many, past this limit: nobody looks there."""

    supervisor_trouble: str = ""
    """Why the workers that run beside the dispatcher do not start, if they do not."""
