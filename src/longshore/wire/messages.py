"""The messages between processes. The verb of each is its struct's name in capitals.

Between a worker and the dispatcher that attends it:

    worker                                   dispatcher
    READY  here I am, this is what I hold →
                                           ← WELCOME  your session
                                           ← GONE     you were declared lost: start anew
    PING   I live, this is what I hold    →
                                           ← PONG     the lease, if I can give one
                                           ← JOBS     numbered within the session
                                           ← ABORT    stop these attempts
    DONE   attempts that ended            →
                                           ← ACK      recorded (or refused): forget them
                                           ← RESEND   you list these, I never got them
    LOGS   what attempts said             →
                                           ← EXIT     finish what you run, then leave
    BYE    I leave, I hold nothing        →

Each of them names its worker, so that one connection can carry many workers.

A client sends one of the requests below, and gets OK or ERR with the same `rid`. A request that
changes something has an `id` that the client made. If the client repeats the request, it repeats
the `id`, and the effect happens once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Raw, Struct, field

from longshore.model.attempt import Assignment as Assignment
from longshore.model.attempt import AttemptKey as AttemptKey
from longshore.model.depth import LaneView
from longshore.model.group import (
    AddedNode,
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupSubmitted,
    GroupVerdict,
    Near,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Job,
    JobFilter,
    JobPage,
    JobState,
    LogEntry,
    RetryVerdict,
    Submission,
)
from longshore.model.log import LogPage
from longshore.model.reports import Report as Report
from longshore.model.retention import Pruned
from longshore.model.run_time import RunTime
from longshore.model.worker import (
    Ahead,
    Capacity,
    DrainVerdict,
    KindInfo,
    QueueView,
    Run,
    WorkerView,
)
from longshore.model.worker import MachineInfo as MachineInfo
from longshore.model.worker import Stats as Stats
from longshore.wire.actor_messages import Numbered as Numbered
from longshore.wire.change_messages import AwaitChange as AwaitChange
from longshore.wire.change_messages import ChangeMark as ChangeMark
from longshore.wire.file_messages import BlobRequest
from longshore.wire.greeting import HelloAnswer as HelloAnswer
from longshore.wire.lane_messages import ListLanes as ListLanes
from longshore.wire.subjects import SUBJECT_ANSWERS, SubjectRequest
from longshore.wire.web_messages import WebRequest

PROTOCOL_VERSION = 2

LogPlace = tuple[int, int]
"""A place in a job's log: a token, and the number of an entry under it."""


class _OfWorker(Struct, frozen=True):
    worker: UUID


# worker to dispatcher


class Ready(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A worker asks to be attended: what it is, what it can do, which attempts it holds.

    It numbers the sessions it asks for, so that an old READY cannot end a newer session. A worker
    of a gateway says so: only those may serve kinds of Longshore's own. A gateway that speaks for a
    web service names its registration as `service`, and the lease that it needs.
    """

    v: int
    worker: UUID
    session: Annotated[int, Meta(ge=1, le=2**63 - 1)] = 1
    name: str = ""
    host: str = ""
    pid: int = 0
    kinds: dict[str, KindInfo] = {}
    queues: tuple[str, ...] = ()
    target: str = ""
    pools: dict[str, int] = {}
    process: str = ""
    gateway: bool = False
    service: UUID | None = None
    lease_s: float = 0.0
    machine: MachineInfo = MachineInfo()
    resources: dict[str, float] = {}
    draining: bool = False
    held: tuple[AttemptKey, ...] = ()
    unacknowledged: tuple[AttemptKey, ...] = ()


class Ping(_OfWorker, frozen=True, omit_defaults=True):
    """A worker lives: the last JOBS it has seen, what it holds, which reports wait for an ACK.

    `begun` says, by pool, which of those that it holds run, and for how long. Without it, all do.
    """

    no: int
    seen: int = 0
    held: tuple[AttemptKey, ...] = ()
    unacknowledged: tuple[AttemptKey, ...] = ()
    draining: bool = False
    stats: Stats = Stats()
    ahead: Ahead = Ahead()
    begun: dict[str, tuple[Run, ...]] | None = None


class Done(_OfWorker, frozen=True, omit_defaults=True):
    """Attempts that ended, and what the worker holds ahead from now on."""

    reports: tuple[Report, ...]
    ahead: Ahead = Ahead()


class Logs(_OfWorker, frozen=True):
    """Log entries of attempts."""

    entries: tuple[LogEntry, ...]


class Bye(_OfWorker, frozen=True, omit_defaults=True):
    """A worker leaves, and holds nothing; or it is `lost`, says the gateway that speaks for it."""

    reason: str = ""
    lost: bool = False


# dispatcher to worker


class Welcome(_OfWorker, frozen=True):
    """The worker's session begins. Its lease counts from when it sent READY."""

    session: int
    ping_s: float
    lease_s: float


class Pong(_OfWorker, frozen=True, omit_defaults=True):
    """The answer to PING `no`. Without `lease_s` the dispatcher cannot reach its store."""

    no: int
    ping_s: float
    lease_s: float | None = None


class Jobs(_OfWorker, frozen=True):
    """Attempts to start. A worker ignores those it has had before."""

    seq: int
    jobs: tuple[Assignment, ...]


class Abort(_OfWorker, frozen=True):
    """Attempts to stop, and why."""

    attempts: tuple[AttemptKey, ...]
    reason: str


class Ack(_OfWorker, frozen=True):
    """Attempts whose end is recorded, or refused as `stale`. The worker may forget both."""

    attempts: tuple[AttemptKey, ...]
    stale: tuple[AttemptKey, ...] = ()


class Resend(_OfWorker, frozen=True):
    """Attempts that PING lists as unacknowledged, but whose DONE never came: send it again."""

    attempts: tuple[AttemptKey, ...]


class Exit(_OfWorker, frozen=True):
    """Finish what you run, then leave."""

    reason: str = ""


class Gone(_OfWorker, frozen=True):
    """The worker was declared lost, and owns none of the attempts it holds."""

    reason: str


# client to dispatcher


class Submit(Numbered, frozen=True):
    """Accept these jobs. With `strict`, refuse kinds that no live worker serves."""

    jobs: tuple[Submission, ...]
    strict: bool = False


class Wait(Numbered, frozen=True):
    """Answer with the outcomes of jobs that ended: once any has, or `all`, or after `wait_s`."""

    jobs: tuple[UUID, ...]
    wait_s: float
    all: bool = False


class Show(Numbered, frozen=True):
    """One job, whole."""

    job: UUID | int


class Why(Numbered, frozen=True):
    """Why a job is where it is, in words."""

    job: UUID | int


class ReadLogs(Numbered, frozen=True):
    """A job's log in order, after a place in it; that of one attempt, if given."""

    job: UUID | int
    attempt: int | None = None
    after: LogPlace = (0, 0)
    most: int = 1000


class ListJobs(Numbered, frozen=True):
    """Jobs, newest first."""

    wanted: JobFilter = JobFilter()


class Cancel(Numbered, frozen=True):
    """Cancel these jobs."""

    id: UUID
    jobs: tuple[UUID | int, ...]


class Retry(Numbered, frozen=True):
    """Run jobs again that ended without success; each once for one `id`."""

    id: UUID
    jobs: tuple[UUID | int, ...]


class SubmitGroup(Numbered, frozen=True):
    """Accept some jobs of a group, all or none; the group runs once all of its jobs are there.

    `edges` is how many dependencies its jobs have in all. With `strict`, refuse kinds that no live
    worker serves.
    """

    part: GroupPart
    edges: int = 0
    strict: bool = False


class AddToGroup(Numbered, frozen=True):
    """Add jobs to a group that runs or is paused, all or none, once for one `id`.

    The id of each job follows from `id` and its index. With `strict`, refuse kinds that no live
    worker serves.
    """

    id: UUID
    group: UUID | int
    nodes: tuple[AddedNode, ...]
    strict: bool = False


class ShowGroup(Numbered, frozen=True):
    """One group, and how many of its jobs are in each state."""

    group: UUID | int


class ListGroups(Numbered, frozen=True):
    """Groups, newest first."""

    wanted: GroupFilter = GroupFilter()


class ListNodes(Numbered, frozen=True):
    """The jobs of a group in its order, after a place in it.

    With `jobs`, it is the first of those that are `near` them, whatever the place.
    """

    group: UUID
    after: int = -1
    most: int = 1000
    jobs: tuple[UUID, ...] = ()
    near: Near = Near.THESE


class CancelGroup(Numbered, frozen=True):
    """Cancel what has not ended of a group; with a `prefix`, of the key that it is and all below.

    If the prefix ends in `/`, only what is below.
    """

    id: UUID
    group: UUID | int
    prefix: str = ""


class PauseGroup(Numbered, frozen=True):
    """Hold what has not begun of a group, or let it go on."""

    id: UUID
    group: UUID | int
    paused: bool


class RetryGroup(Numbered, frozen=True):
    """Run again what did not succeed of a group, or these keys and all below them.

    Once for one `id`. A key that ends in `/` means all below it. With `args`, the one job in `keys`
    gets these arguments. A dry run only answers what would run.
    """

    id: UUID
    group: UUID | int
    keys: tuple[str, ...] = ()
    dry_run: bool = False
    args: bytes | None = None


class RerunGroup(Numbered, frozen=True):
    """Take a step towards a new run of a group that has ended. The new group has this `id`.

    Repeat it until the new group is not staging any more. What succeeded is taken over, unless it
    depends on what runs anew; the jobs with these `keys` run anew in any case. A dry run only
    answers what would run.
    """

    id: UUID
    group: UUID | int
    keys: tuple[str, ...] = ()
    dry_run: bool = False


class OpenGate(Numbered, frozen=True):
    """Open a gate of a group: it succeeds with this value. A repeat with the same changes nothing.

    `value` is msgpack.
    """

    id: UUID
    group: UUID | int
    key: str
    value: bytes | None = None


class ListWorkers(Numbered, frozen=True):
    """Which workers there are."""


class Drain(Numbered, frozen=True):
    """Let these workers finish what they run and leave; each by id, its beginning, or name."""

    id: UUID
    workers: tuple[str, ...]


class ListDispatchers(Numbered, frozen=True):
    """Which dispatchers there are."""


class ShowCapacity(Numbered, frozen=True):
    """What the fleet can take."""


class ShowKind(Numbered, frozen=True):
    """What workers advertise of a kind: live ones, or those that ended lately."""

    kind: str


class ListRunTimes(Numbered, frozen=True):
    """How long jobs of these kinds run, by earlier runs."""

    kinds: tuple[str, ...]


class ListQueues(Numbered, frozen=True):
    """Which queues there are."""


class Pause(Numbered, frozen=True):
    """Pause a queue, or let it go on."""

    id: UUID
    queue: str
    paused: bool


class Prune(Numbered, frozen=True):
    """Remove ended jobs past their bounds, of the next thousand jobs after a number.

    Without `older_than_s` and `keep` the dispatcher's own bounds hold. A dry run only counts; its
    client passes on how many were `counted` so far.
    """

    id: UUID
    states: tuple[JobState, ...] = ()
    older_than_s: float | None = None
    keep: int | None = None
    after: int = 0
    dry_run: bool = False
    counted: dict[JobState, int] = field(default_factory=dict)


class Hello(Numbered, frozen=True):
    """Which dispatcher is there?"""

    v: int = PROTOCOL_VERSION


class Ok(Numbered, frozen=True):
    """The answer to a request; `ANSWERS` has its type."""

    answer: Raw = Raw(b"\xc0")


class Err(Numbered, frozen=True):
    """The request was refused; `code` names an error in `longshore.errors`."""

    code: str
    message: str


# answers


class SubmitAnswer(Struct, frozen=True, gc=False):
    """What became of one submitted job: a number, or an error."""

    id: UUID
    number: int = 0
    existing: bool = False
    code: str = ""
    message: str = ""


class CancelAnswer(Struct, frozen=True):
    """What became of one cancel; `id` is None if there is no such job."""

    job: UUID | int
    id: UUID | None
    verdict: CancelVerdict


class RetryAnswer(Struct, frozen=True):
    """What became of one retry; `id` is None if there is no such job."""

    job: UUID | int
    id: UUID | None
    verdict: RetryVerdict


class DrainAnswer(Struct, frozen=True):
    """What became of one drain; `id` is None unless the text meant one worker."""

    worker: str
    id: UUID | None
    name: str
    verdict: DrainVerdict


class DispatcherAnswer(Struct, frozen=True, kw_only=True):
    """A dispatcher. `silent_s` is for how long `renewed_no` has not changed, as another sees it."""

    id: UUID
    name: str
    started_at: datetime
    renewed_no: int
    workers: int
    alive: bool
    silent_s: float


class WhyAnswer(Struct, frozen=True):
    """Why a job is where it is."""

    id: UUID
    number: int
    state: str
    why: str
    key: str = ""
    """Its key, if it belongs to a group."""


WorkerMessage = Ready | Ping | Done | Logs | Bye
DispatcherMessage = Welcome | Pong | Jobs | Abort | Ack | Resend | Exit | Gone
ClientRequest = (
    Submit
    | Wait
    | Show
    | Why
    | ReadLogs
    | ListJobs
    | Cancel
    | Retry
    | SubmitGroup
    | AddToGroup
    | ShowGroup
    | ListGroups
    | ListNodes
    | CancelGroup
    | PauseGroup
    | RetryGroup
    | RerunGroup
    | OpenGate
    | ListWorkers
    | Drain
    | ListDispatchers
    | ShowCapacity
    | ShowKind
    | ListRunTimes
    | ListQueues
    | ListLanes
    | AwaitChange
    | Pause
    | Prune
    | Hello
    | SubjectRequest
)
Request = ClientRequest | WebRequest | BlobRequest
Answer = Ok | Err

ANSWERS: Final[dict[type, Any]] = {
    Submit: tuple[SubmitAnswer, ...],
    Wait: tuple[Ended, ...],
    Show: Job,
    Why: WhyAnswer,
    ReadLogs: LogPage,
    ListJobs: JobPage,
    Cancel: tuple[CancelAnswer, ...],
    Retry: tuple[RetryAnswer, ...],
    SubmitGroup: GroupSubmitted,
    AddToGroup: GroupSubmitted,
    ShowGroup: Group,
    ListGroups: tuple[Group, ...],
    ListNodes: tuple[NodeView, ...],
    CancelGroup: GroupVerdict,
    PauseGroup: GroupVerdict,
    RetryGroup: RetryPlan,
    RerunGroup: RunPlan,
    OpenGate: GateVerdict,
    ListWorkers: tuple[WorkerView, ...],
    Drain: tuple[DrainAnswer, ...],
    ListDispatchers: tuple[DispatcherAnswer, ...],
    ShowCapacity: Capacity,
    ShowKind: KindInfo | None,
    ListRunTimes: tuple[RunTime, ...],
    ListQueues: tuple[QueueView, ...],
    ListLanes: tuple[LaneView, ...],
    AwaitChange: ChangeMark,
    Pause: None,
    Prune: Pruned,
    Hello: HelloAnswer,
    **SUBJECT_ANSWERS,
}
"""What OK carries in answer to each request."""
