"""What requests bring and answers hold, beside the models that all of Longshore shares."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_type_hints
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, structs

from longshore.core.access import MAX_SCOPE_NAMES, MAX_TOKEN_NAME_CHARS
from longshore.core.actor_limits import MAX_VERSION
from longshore.core.addresses import MAX_URL_CHARS
from longshore.core.callback_limits import MAX_HEADERS
from longshore.core.key_limits import MOST_KEY_CHARS, MOST_KEYS
from longshore.core.limits import (
    MAX_ATTEMPTS,
    MAX_BACKOFF_FACTOR,
    MAX_DURATION_S,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_NAME_CHARS,
    MAX_PRIORITY,
    MAX_REQUEST_JOBS,
    MAX_UNIQUE_KEY_CHARS,
    MIN_PRIORITY,
    RESERVED_PREFIX,
)
from longshore.core.limits import MAX_KEY_CHARS as MAX_ACTOR_KEY_CHARS
from longshore.gateway.web_models import ShownWebWorker
from longshore.model.access import Role
from longshore.model.actor import Actor, ActorTerms
from longshore.model.depth import LaneView
from longshore.model.group import Group, GroupState, NodeView
from longshore.model.job import HistoryEntry, Job, JobError, JobState, Options
from longshore.model.limits import Full
from longshore.model.log import LogLine
from longshore.model.program import FREE_KINDS
from longshore.model.usage import Usage
from longshore.model.worker import QueueView, WorkerInfo, WorkerView
from longshore.payload.callback_words import CallbackView
from longshore.wire.messages import DispatcherAnswer

_NAME: Final = r"^(?!longshore\.)[\w.:/@+-]+$"
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS, pattern=_NAME)]
_FREE: Final = "|".join(sorted(kind.removeprefix(RESERVED_PREFIX) for kind in FREE_KINDS))
_KIND: Final = rf"^(?!longshore\.(?!(?:{_FREE})$))[\w.:/@+-]+$"
Kind = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS, pattern=_KIND)]
"""A kind: of Longshore's own, only those of programs that submitters describe."""
Label = Annotated[
    str, Meta(min_length=1, max_length=MAX_LABEL_CHARS, pattern=r"^(?!longshore\.)[ -~]+$")
]
Seconds = Annotated[float, Meta(ge=0, le=MAX_DURATION_S)]
Limit = Annotated[float, Meta(gt=0, le=MAX_DURATION_S)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1)]
ActorKey = Annotated[str, Meta(min_length=1, max_length=MAX_ACTOR_KEY_CHARS, pattern="^[ -~]+$")]
Handler = Annotated[str, Meta(max_length=MAX_NAME_CHARS, pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


# what requests bring


class CallbackParts(Struct, frozen=True, forbid_unknown_fields=True):
    """What to call: a `url`, or a `hostname` with `port` and `path`."""

    url: Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARS)] | UnsetType = UNSET
    hostname: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    port: Annotated[int, Meta(ge=1, le=65_535)] | UnsetType = UNSET
    path: str | UnsetType = UNSET
    method: Literal["POST", "PUT", "GET", "DELETE"] = "POST"
    headers: Annotated[dict[str, str], Meta(max_length=MAX_HEADERS)] = {}


NewCallback = Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARS)] | CallbackParts
"""A URL, or more about what to call."""


class NewTokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make. Without queues or kinds, it reaches to all of them."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN_NAME_CHARS, pattern=_NAME)]
    role: Role
    queues: Annotated[list[Name], Meta(max_length=MAX_SCOPE_NAMES)] = []
    kinds: Annotated[list[Kind], Meta(max_length=MAX_SCOPE_NAMES)] = []
    payloads: bool = True
    """Whether its holder sees arguments, results, logs and states."""
    expires_s: Limit | UnsetType | None = UNSET


KeyGiven = Annotated[str, Meta(min_length=1, max_length=MOST_KEY_CHARS)]
"""The name of an argument, whose value completes the key, or a whole key, `name=value`."""


class NewLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """A key that a job counts for, and what limits it; without a key, all jobs of the kind."""

    key: KeyGiven | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    rate: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)] | UnsetType = UNSET
    """Like `100/min`."""
    burst: Count | UnsetType = UNSET
    units: Count | UnsetType = UNSET
    full: Full | UnsetType = UNSET


class NewDebounce(Struct, frozen=True, forbid_unknown_fields=True):
    """Of the jobs of a kind with a key only the last runs; without a key, of all of the kind."""

    wait_s: Limit
    max_wait_s: Limit | UnsetType = UNSET
    key: KeyGiven | UnsetType = UNSET


class NewJob(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to submit. What is left out is as the app declares it for the kind."""

    kind: Kind
    args: dict[str, Any] = {}
    data: bytes | UnsetType = UNSET
    """The bytes of a raw job, in base64. It has no `args`."""
    id: UUID | UnsetType = UNSET
    """Submitted again with the same id, it is the same job."""
    queue: Name | UnsetType = UNSET
    target: Name | UnsetType = UNSET
    resources: dict[str, float | str] | UnsetType = UNSET
    """What it takes of its worker, like `{"cpu": 2, "memory": "4g", "gpu": 1}`."""
    priority: Annotated[int, Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)] | UnsetType = UNSET
    run_at: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET
    delay_s: Seconds | UnsetType = UNSET
    timeout_s: Limit | UnsetType | None = UNSET
    expires_s: Limit | UnsetType | None = UNSET
    retries: Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS - 1)] | UnsetType = UNSET
    backoff_s: Seconds | UnsetType = UNSET
    backoff_factor: Annotated[float, Meta(ge=1, le=MAX_BACKOFF_FACTOR)] | UnsetType = UNSET
    max_backoff_s: Seconds | UnsetType = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    unique_key: (
        Annotated[str, Meta(min_length=1, max_length=MAX_UNIQUE_KEY_CHARS, pattern="^[ -~]+$")]
        | UnsetType
    ) = UNSET
    labels: Annotated[list[Label], Meta(max_length=MAX_LABELS)] | UnsetType = UNSET
    callback: NewCallback | UnsetType = UNSET
    """What is called when it has ended."""
    limit: Annotated[list[NewLimit], Meta(max_length=MOST_KEYS)] | UnsetType | None = UNSET
    """All that limits it, in place of what its app declares; null or `[]` if nothing does."""
    debounce: NewDebounce | UnsetType | None = UNSET
    fair_by: KeyGiven | UnsetType | None = UNSET
    """What makes its fair key."""


class NewJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to submit at once."""

    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=10 * MAX_REQUEST_JOBS)]


class EtcdqJob(Struct, frozen=True, rename="pascal"):
    """A job of the Etcd Job Queue, to submit or as it is shown (`format=etcdq`)."""

    container: dict[str, Any]
    """`Config` has the `Image`, and what else is asked for; then the engine's description."""
    fileset: dict[str, Any] | None = None
    """`Input` and `Output`, each with a `Name` and `Patterns`."""
    owner: str | None = None
    states: list[dict[str, Any]] | None = None
    """Each a `State`, a `Step` and a `Date`."""
    result: dict[str, Any] | None = None
    """A `Status` and an `Info`, once it has ended."""


class EtcdqWorker(Struct, frozen=True, rename="pascal"):
    """A worker of the Etcd Job Queue."""

    name: str
    instance_id: str
    private_ip: str
    public_ip: str
    job: str
    """The number of a job that it runs; empty if it is idle."""
    heartbeat: str
    stats: dict[str, float]
    status: Literal["ALIVE", "DEAD"]


class EtcdqWorkers(Struct, frozen=True):
    """The workers as documents of the Etcd Job Queue."""

    workers: list[EtcdqWorker]


class NewGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """A group to submit, all or nothing; the words are those of a group file."""

    name: Annotated[str, Meta(min_length=1)]
    jobs: list[dict[str, Any]]
    fail_fast: bool = False
    labels: list[str] = []
    callback: NewCallback | None = None
    """What is called when it has ended."""
    limit: dict[str, Any] | int | None = None
    """What limits its jobs together, like `{"concurrency": 5}`; it has no key."""


class GroupRetry(Struct, frozen=True, forbid_unknown_fields=True):
    """What to run again: all that did not succeed, or these keys and all below them."""

    keys: Annotated[list[str], Meta(max_length=MAX_REQUEST_JOBS)] = []
    dry_run: bool = False
    args: dict[str, Any] | UnsetType = UNSET
    """Other arguments, for the one job in `keys`."""


class GroupRerun(Struct, frozen=True, forbid_unknown_fields=True):
    """What a new run of a group runs anew, beside what did not succeed."""

    keys: Annotated[list[str], Meta(max_length=MAX_REQUEST_JOBS)] = []
    dry_run: bool = False


class GateValue(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a gate."""

    value: Any = None


class NewActorBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An actor to start. Its fields are those of its class."""

    type: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS, pattern=r"^[\w.:/+-]+$")]
    key: ActorKey
    fields: dict[str, Any] = {}
    reuse: bool = False
    """Whether one that is there already is as good as a new one."""


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message to an actor."""

    name: Handler
    args: dict[str, Any] = {}
    id: UUID | UnsetType = UNSET
    delay_s: Seconds | UnsetType = UNSET


class NewAsk(Struct, frozen=True, forbid_unknown_fields=True):
    """A message to an actor whose reply is waited for."""

    name: Handler
    args: dict[str, Any] = {}
    id: UUID | UnsetType = UNSET


class NewState(Struct, frozen=True, forbid_unknown_fields=True):
    """A state for an actor, whole."""

    state: dict[str, Any]
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)] | UnsetType = UNSET
    restart: bool = False


# what answers hold


class SubmittedJob(Struct, frozen=True):
    """A job that was accepted; `existing` if its unique key belongs to an earlier one."""

    id: UUID
    number: int
    existing: bool


class JobOutcome(Struct, frozen=True):
    """What became of one job of many: its number, or why it was refused."""

    id: UUID
    number: int | UnsetType = UNSET
    existing: bool | UnsetType = UNSET
    code: str | UnsetType = UNSET
    message: str | UnsetType = UNSET


class SubmittedJobs(Struct, frozen=True):
    """What became of each job, in order."""

    jobs: list[JobOutcome]


def _fields(kind: type[Struct], *left_out: str) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(one.name, hints[one.name]) for one in structs.fields(kind) if one.name not in left_out]


JobBrief = defstruct(
    "JobBrief",
    [*_fields(Job, "args", "result", "history", "options"), *_fields(Options)],
    namespace={"__doc__": "A job as a list shows it."},
)
ShownJob = defstruct(
    "Job",
    [
        *_fields(Job, "args", "result", "history", "options"),
        *_fields(Options),
        ("args", Any),
        ("result", Any),
        ("history", list[HistoryEntry]),
        ("used", Usage | None),
        ("callbacks", list[CallbackView]),
    ],
    namespace={"__doc__": "A whole job."},
)
ShownGroup = defstruct(
    "Group",
    [*_fields(Group), ("callbacks", list[CallbackView])],
    namespace={"__doc__": "A group, with the number of its jobs in each state."},
)
GroupBrief = defstruct(
    "GroupBrief",
    _fields(Group, "counts"),
    namespace={"__doc__": "A group as a list shows it: without counts."},
)
ShownWorker = defstruct(
    "Worker",
    [*_fields(WorkerInfo), ("state", str), *_fields(WorkerView, "info")],
    namespace={"__doc__": "A worker."},
)
ShownDispatcher = defstruct(
    "Dispatcher",
    [*_fields(DispatcherAnswer), ("state", str)],
    namespace={"__doc__": "A dispatcher."},
)


class JobList(Struct, frozen=True):
    """A page of jobs, newest first; `next` is the cursor of the page after it."""

    jobs: list[JobBrief]  # type: ignore[valid-type]
    next: int | None


class JobHistory(Struct, frozen=True):
    """The changes of a job's state; if `is_cut`, some after the first five may be missing."""

    id: UUID
    number: int
    state: JobState
    history: list[HistoryEntry]
    is_cut: bool


class JobResult(Struct, frozen=True):
    """How a job ended."""

    id: UUID
    number: int
    state: JobState
    result: Any
    error: JobError | None


class NotEnded(Struct, frozen=True):
    """A job that has not ended."""

    id: UUID
    number: int
    state: JobState


class Cancelled(Struct, frozen=True):
    """What a cancel did: the job is cancelled, or its worker stops it now, or it had ended."""

    id: UUID
    verdict: str


class Retried(Struct, frozen=True):
    """A job that is ready again."""

    id: UUID
    verdict: str


class LogLines(Struct, frozen=True):
    """A page of a job's log; `next` is the cursor behind it, where `more` may come."""

    lines: list[LogLine]
    next: str
    more: bool
    state: JobState
    attempt: int


class GroupCreated(Struct, frozen=True):
    """A group that was accepted."""

    id: UUID
    number: int
    name: str
    jobs: int
    state: GroupState


class GroupList(Struct, frozen=True):
    """A page of groups, newest first; `next` is the cursor of the page after it."""

    groups: list[GroupBrief]  # type: ignore[valid-type]
    next: int | None


class Edge(Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """One job depends on another, each named by its key."""

    source: str
    target: str


class Graph(Struct, frozen=True):
    """Jobs of a group in its order, and what they depend on; `next` is the cursor behind them."""

    id: UUID
    number: int
    nodes: list[NodeView]
    edges: list[Edge]
    next: int | None


class GroupChanged(Struct, frozen=True):
    """What a change did to a group."""

    id: str
    verdict: str


class GateOpened(Struct, frozen=True):
    """A gate that is open."""

    key: str
    verdict: str


class ActorCreated(Struct, frozen=True):
    """An actor that was started, or was there."""

    id: UUID
    type: str
    key: str
    existing: bool


ShownTimer = defstruct(
    "Timer",
    [("name", str), ("at", datetime | None), ("every_s", float | None), ("args", Any)],
    namespace={"__doc__": "A timer of an actor."},
)
_ACTOR: Final = [
    *_fields(Actor, "state", "timers", "terms"),
    ("terms", ActorTerms),
    ("timers", list[ShownTimer]),  # type: ignore[valid-type]
]
ActorBrief = defstruct(
    "ActorBrief", _ACTOR, namespace={"__doc__": "An actor as a list shows it: without its state."}
)
ShownActor = defstruct("Actor", [*_ACTOR, ("state", Any)], namespace={"__doc__": "A whole actor."})


class ActorList(Struct, frozen=True):
    """A page of actors by type and key; `next` is the cursor of the page after it."""

    actors: list[ActorBrief]  # type: ignore[valid-type]
    next: str | None


class Delivered(Struct, frozen=True):
    """A message that is in its mailbox."""

    id: UUID


class Replied(Struct, frozen=True):
    """What an actor answered."""

    id: UUID
    result: Any


class ActorChanged(Struct, frozen=True):
    """What a change did to an actor."""

    type: str
    key: str
    verdict: str


class QueuePaused(Struct, frozen=True):
    """A queue, and whether it is paused."""

    name: str
    paused: bool


class QueueList(Struct, frozen=True):
    """The queues."""

    queues: list[QueueView]


class LaneList(Struct, frozen=True):
    """The lanes that hold jobs."""

    lanes: list[LaneView]


class WorkerList(Struct, frozen=True):
    """The workers, and those that ended lately."""

    workers: list[ShownWorker]  # type: ignore[valid-type]
    web_workers: list[ShownWebWorker]


class Drained(Struct, frozen=True):
    """What a drain did."""

    id: UUID
    name: str
    verdict: str


class DispatcherList(Struct, frozen=True):
    """The dispatchers."""

    dispatchers: list[ShownDispatcher]  # type: ignore[valid-type]


class ShownScope(Struct, frozen=True):
    """To which jobs a token reaches: all, or those of some queues and kinds."""

    queues: list[str]
    kinds: list[str]
    payloads: bool


class ShownToken(Struct, frozen=True):
    """A token, without its secret."""

    id: UUID
    name: str
    prefix: str
    role: Role
    scope: ShownScope
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokenMade(ShownToken, frozen=True):
    """A new token, with its secret."""

    token: str


class TokenList(Struct, frozen=True):
    """The tokens, the oldest first."""

    tokens: list[ShownToken]


class ShownEntry(Struct, frozen=True):
    """An entry of the audit."""

    number: int
    at: datetime
    request: UUID
    principal: str
    action: str
    subject: str
    fingerprint: str
    detail: str


class AuditList(Struct, frozen=True):
    """Some entries of the audit, newest first."""

    entries: list[ShownEntry]
    next: int | None


class Health(Struct, frozen=True):
    """A gateway that answers."""

    status: str
    version: str


class Readiness(Struct, frozen=True):
    """Whether jobs can be claimed: a dispatcher answers from its store."""

    status: str
    dispatcher: UUID
