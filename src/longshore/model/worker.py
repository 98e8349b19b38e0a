"""Workers, dispatchers, lanes and queues as the store and the wire know them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from longshore.model.attempt import Attempt
from longshore.model.history import HistoryJob
from longshore.model.job import ANY_TARGET, DEFAULT_QUEUE, RetryPolicy
from longshore.model.limits import Debounced, JobLimit
from longshore.model.usage import Peak


class Pool(StrEnum):
    """The pools of Longshore's own workers. Other workers may name their pools as they like."""

    COROUTINE = "coroutine"
    PROCESS = "process"
    THREAD = "thread"
    COMMAND = "command"
    CONTAINER = "container"


PROGRAM_POOLS: Final = frozenset({Pool.COMMAND, Pool.CONTAINER})
"""The pools whose jobs are programs, not functions of an app."""

Isolation = Literal["coroutine", "process", "thread"]
"""The pools of functions, as apps choose them: what keeps a job's code apart from other code."""


class PoolFacts(Struct, frozen=True, kw_only=True):
    """What is particular to a pool. `slots` also names the setting that has their number."""

    slot: str
    slots: str
    runs: str
    """What its slots bound, to follow "How many"."""
    takes_async: bool = False
    takes_plain: bool = False
    looks_ahead: bool = False
    """Whether a worker may hold attempts ahead of its slots."""


POOLS: Final[dict[str, PoolFacts]] = {
    Pool.COROUTINE: PoolFacts(
        slot="slot", slots="slots", runs="async def jobs run", takes_async=True
    ),
    Pool.PROCESS: PoolFacts(
        slot="process",
        slots="processes",
        runs="jobs run in processes",
        takes_async=True,
        takes_plain=True,
        looks_ahead=True,
    ),
    Pool.THREAD: PoolFacts(
        slot="thread",
        slots="threads",
        runs="jobs run in threads",
        takes_plain=True,
        looks_ahead=True,
    ),
    Pool.COMMAND: PoolFacts(
        slot="command", slots="commands", runs="commands run", looks_ahead=True
    ),
    Pool.CONTAINER: PoolFacts(slot="container", slots="containers", runs="containers run"),
}
AHEAD_POOLS: Final = frozenset(pool for pool, facts in POOLS.items() if facts.looks_ahead)


def slot_words(pool: str) -> tuple[str, str]:
    """The words for one slot of a pool, and for several."""
    known = POOLS.get(pool)
    return (known.slot, known.slots) if known else (f"{pool} slot", f"{pool} slots")


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
    expires_s: float | None = None
    resources: str = ""
    limits: tuple[JobLimit, ...] = ()
    """Of each the key is a parameter of the job, a whole key, or `()`: a function makes it."""
    debounce: Debounced | None = None
    """Its key is a parameter of the job, a whole key, or `()`: a function makes it."""
    fair_by: str = ""
    """A parameter of the job, a whole key, or `()`: a function makes it; empty if there is none."""


class KindInfo(Struct, frozen=True, omit_defaults=True):
    """What a worker advertises of a kind. `parameters` is None if it accepts any.

    An attempt takes one slot of the kind's pool. For the turns of actors, `parameters` are the
    fields of the state, and `messages` has what handlers take; None if any message is handled.
    """

    pool: str = Pool.COROUTINE
    parameters: tuple[Parameter, ...] | None = None
    terms: KindTerms = KindTerms()
    listed: tuple[str, ...] = ()
    """The fields that actors are listed by, if it is the kind of their turns."""
    history: HistoryJob | None = None
    """The job that hears of the commits of actors, if it is the kind of their turns."""
    recovers: bool = False
    """Whether it is for turns of actors that handle what has failed for good."""
    messages: dict[str, tuple[Parameter, ...] | None] | None = None
    files: bool = False
    """Whether its attempts get tickets, with which they reach filesets."""
    inputs: tuple[str, ...] = ()
    """The filesets that its attempts read, NAME or NAME@VERSION; `{name}` is an argument.

    An empty one is made by another job of the group.
    """
    outputs: tuple[str, ...] = ()
    """The filesets that its attempts make."""
    lost_free: bool = False
    """Whether the loss of their worker costs its attempts nothing, and so is no crash."""
    batch: int = 0
    """How many of its attempts share a run at most; 0 if each has its own."""


class Lane(Struct, frozen=True):
    """Queue, kind and target. A worker serves either all jobs of a lane or none."""

    hash: int
    queue: str
    kind: str
    target: str


class MachineInfo(Struct, frozen=True, omit_defaults=True):
    """The machine of a worker, for whoever looks after machines."""

    instance: str = ""
    """What its cloud calls it, or its operator."""
    private_ip: str = ""
    public_ip: str = ""
    url: str = ""
    """Where it answers HTTP, if it is a gateway."""


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
    gateway: bool = False
    """Whether a gateway speaks for it. Only such workers serve kinds of Longshore's own."""
    service: UUID | None = None
    """The registration of the web service that it is, if a gateway speaks for that."""
    lease_s: float = 0.0
    """Its own lease, if that is longer than the dispatcher's."""
    machine: MachineInfo = MachineInfo()
    resources: dict[str, float] = {}
    """What its jobs share, by name: `cpu` in cores, `memory` and `disk` in bytes, devices."""


class Stats(Struct, frozen=True, omit_defaults=True):
    """How busy a worker's machine is."""

    cpu_percent: float = 0.0
    memory_percent: float = 0.0


class Ahead(Struct, frozen=True, omit_defaults=True):
    """What a worker holds ahead of its free slots, if it is given them: so many, of these kinds."""

    pools: dict[str, int] = {}
    kinds: tuple[str, ...] = ()


class Run(Struct, frozen=True, gc=False):
    """An attempt that runs, and for how long."""

    token: int
    age_s: float


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
    """A worker as commands show it; `running` counts its jobs by kind, those held ahead too.

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
    shapes: dict[str, int] = {}
    """How many of its jobs have each target, of those that take resources."""


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

    `busy` counts the pool's slots that jobs of any kind take. `running` counts the jobs of this
    kind that workers have, those held ahead too.
    """

    kind: str
    pool: str
    workers: int
    slots: int
    busy: int
    free: int
    running: int
    resources: str = ""
    """What its jobs ask for, unless a submit says otherwise."""
    peak: Peak | None = None
    """What they really used at most, if they are programs."""


class Capacity(Struct, frozen=True, kw_only=True):
    """What the fleet can take now."""

    kinds: tuple[KindCapacity, ...]
    pools: tuple[PoolCapacity, ...]


class QueueView(Struct, frozen=True):
    """A queue: whether it is paused, and how many jobs it holds in each state.

    `waited` is for how many seconds its jobs waited, all together, by cause (`core.queue_waits`);
    `paused_at` since when it is paused.
    """

    name: str
    paused: bool
    counts: dict[str, int]
    waited: dict[str, float] = {}
    paused_at: datetime | None = None


class SessionKey(Struct, frozen=True, gc=False):
    """Names one session of a worker. Where slots are listed, each is named by its session."""

    worker: UUID
    session: int


class FreeWorker(Struct, frozen=True):
    """A session with free slots. `given` counts the attempts it ever got.

    If jobs take resources, `room` is how much of these is free: the fullest worker comes first.
    """

    slot: SessionKey
    free: int
    given: int
    room: float | None = None


class OpenSlots(Struct, frozen=True):
    """Free slots of workers that serve these lanes, for jobs that only now become ready."""

    lanes: Set[int]
    workers: Sequence[FreeWorker]


FileKey = UUID | str
"""Files that a worker may have at hand: those of a job, or a fileset (NAME or NAME@VERSION)."""


class FilesAtHand(Struct, frozen=True):
    """Which workers have which files at hand, as far as a dispatcher remembers: a hint.

    `kinds` says which files jobs need, of those kinds that have to do with files.
    """

    workers: Mapping[FileKey, Collection[UUID]]
    kinds: Mapping[str, KindInfo]


class Claim(Struct, frozen=True):
    """A claim: at most one job for each slot, from these lanes, best job first.

    With `ahead`, the worker holds the jobs until a slot comes free. Then the claim takes only the
    jobs before the first one that may not be held so (see `core.lookahead`): `ahead` has the lanes
    of jobs that may. If it `keeps`, turns of actors go to the workers that had these last, if those
    are among the slots (see `core.placement.kept_slots`). If it is told who has files `at_hand`,
    jobs go to the workers that have theirs, in the same way.
    """

    lanes: tuple[int, ...]
    slots: tuple[SessionKey, ...]
    ahead: frozenset[int] | None = None
    keeps: bool = False
    at_hand: FilesAtHand | None = None
