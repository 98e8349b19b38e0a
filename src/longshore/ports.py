"""The seams on one screen: what the engine needs of a store, a link, an executor and a clock.

A store's verbs are coarse and batched, and every one may be repeated: after `StoreUnavailable` the
caller does not know whether it was committed, does it again, and nothing happens twice. Durations
go in, the store's own clock makes times of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from longshore.core.limits import BATCH_BYTES
from longshore.model.attempt import Assignment, Attempt
from longshore.model.ends import End
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Finished,
    Job,
    JobFilter,
    JobPage,
    LogEntry,
    Refused,
    RetryVerdict,
    Submission,
    Submitted,
)
from longshore.model.log import KeptEntry
from longshore.model.reports import Report
from longshore.model.retention import Pruned, Retention
from longshore.model.worker import (
    Attended,
    DispatcherView,
    Facts,
    Gone,
    KindInfo,
    Lane,
    Late,
    LostWorker,
    Pool,
    QueueView,
    Slot,
    Stats,
    Want,
    WorkerInfo,
    WorkerView,
)


class Batch(Struct, frozen=True):
    """What goes to the store in one transaction: finishes first, then submits, then claims.

    `slots`, if there are any, are one for each submit: a job that is new and can run now starts
    there at once, if that worker may have it, and is ready for anybody if not. Claims stop with the
    job whose arguments bring them to `max_bytes`.
    """

    finishes: Sequence[End] = ()
    submits: Sequence[Submission] = ()
    wants: Sequence[Want] = ()
    slots: Sequence[Slot | None] = ()
    max_bytes: int = BATCH_BYTES


class BatchResult(Struct, frozen=True):
    """What a batch did. Finishes and submits are answered item by item, in the order given.

    `started` are the submits that began on their slots, `claimed` the ready jobs that began on
    wanted ones, and `taken` is from which lanes how many of the latter. `ready` is in which lanes
    how many jobs became ready, before claims took some; `ready_by_ends` are those among them that
    finishes made so, as their workers gave them back or a job that succeeded sent them. `ended` are
    all jobs that ended, with their outcomes. `contested` are lanes of which less came than may be
    there: somebody else claimed there at the same moment, or the batch had no room for more bytes.
    """

    finished: list[Finished] = []
    submitted: list[Submitted | Refused] = []
    started: list[Attempt] = []
    claimed: list[Attempt] = []
    taken: Mapping[int, int] = {}
    ready: Mapping[int, int] = {}
    ready_by_ends: Mapping[int, int] = {}
    ended: list[Ended] = []
    contested: frozenset[int] = frozenset()


class Promoted(Struct, frozen=True):
    """Jobs whose time came: the lanes they are ready in, and how long until the next ones."""

    count: int
    lanes: frozenset[int]
    next_s: float | None


class Harvested(Struct, frozen=True):
    """What a lost worker left: how many jobs are ready again and in which lanes, and what ended."""

    lost: bool
    requeued: int = 0
    lanes: frozenset[int] = frozenset()
    ended: tuple[Ended, ...] = ()


class Hint(StrEnum):
    """Something another process did. Hints may be lost, doubled or late."""

    WORK = "work"
    CANCEL = "cancel"
    ENDED = "ended"


class Store(Protocol):
    """The one shared thing. All methods raise `StoreUnavailable` when the database is away."""

    @property
    def is_serial(self) -> bool:
        """Whether it commits one transaction after the other anyway."""

    async def open(self) -> None:
        """Connects; raises `SchemaMismatch` unless the schema is this version's."""

    async def close(self) -> None:
        """Lets go of the database. What is under way is finished first."""

    async def migrate(self) -> tuple[int, int]:
        """Brings the schema forward; answers the version before and after."""

    # the pump: the hot path, one transaction
    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        """Records finishes, accepts submits and claims jobs, all in one commit.

        A want is served only for slots whose worker is alive, in that session and attended by
        `dispatcher`. An item that the database refuses gets its own error; the rest is committed.
        """

    # the keeper: leases, losses, cancels, clocks
    async def renew(self, dispatcher: UUID, name: str) -> None:
        """Says that a dispatcher lives, by changing its `renewed_no`."""

    async def retire(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stops in good order."""

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        """Registers or adopts a worker: raises its session and says what is placed on it.

        The worker numbers its sessions, so that one it asked for long ago and has left since cannot
        end the one it is in; without a number it is simply the next one.

        One that was draining still is, whatever it says of itself.
        """

    async def placed(self, slots: Sequence[Slot]) -> list[Attempt]:
        """The attempts these sessions own, whether or not anybody told the workers.

        What was giving them jobs when it was asked has ended by then.
        """

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        """A draining worker is given nothing more; answers whether there is such a live worker."""

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        """The live workers of this dispatcher that are to be given nothing more."""

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        """These workers were heard of: shown as seen now, if alive and this dispatcher's.

        Touches nothing that a claim locks.
        """

    async def harvest(
        self,
        worker: UUID,
        session: int,
        why: str,
        *,
        crash: bool,
        crash_limit: int,
        undelivered: Collection[int] = (),
    ) -> Harvested:
        """Declares a worker lost, if it is still in that session, and frees its jobs.

        With `crash` each running job's crashes grow by one, and at `crash_limit` it fails as
        poisonous; without, the loss costs nothing (a goodbye), and neither does it for attempts
        whose tokens are `undelivered`. Cancelling jobs are cancelled.
        """

    async def sweep(self, crash_limit: int) -> Harvested:
        """Frees jobs that are owned by a worker that is not alive: a harvest that died half-way."""

    async def promote(self, most: int = 1000) -> Promoted:
        """Makes delayed jobs ready whose time has come."""

    async def overdue(self, most: int = 1000) -> list[Attempt]:
        """Running attempts past their timeout and the backstop's margin after it."""

    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        """Cancels what is not running, marks what is `cancelling`; answers in the order given."""

    async def cancelling(self, dispatcher: UUID) -> list[Attempt]:
        """Attempts being cancelled on this dispatcher's live workers."""

    async def retry(
        self, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        """Opens a new round for jobs that ended without success, one for each `request`.

        A job's history remembers the request that opened a round: its repeat is answered alike.
        """

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Keeps what attempts said, if their token is still the job's last; a repeat is dropped."""

    async def set_paused(self, queue: str, paused: bool) -> None:
        """Pauses or resumes a queue. Claims see it at once."""

    # what is over
    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next `most` jobs after a number.

        With everything that belongs to them; to be called again from `up_to` until it is done.
        Waits for no claim and lets none wait. A dry run only counts.
        """

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        """Removes workers that ended so long ago and own no job; answers how many."""

    # reading
    async def job(self, ref: UUID | int) -> Job | None:
        """One job, whole."""

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first, without their arguments, results, history and logs.

        How many are looked at is bounded, whatever is wanted; a page that was not full by then
        says where it stopped.

        Those that run have their newest progress and step: two lookups each, however much they
        said.
        """

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        """What a job's attempts said, by token and number, behind `after`; of one if `token` is
        given. Nothing if there is no such job.
        """

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        """The outcomes of those of these jobs that have one."""

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten.

        Those that an application brought by itself, in its own transaction, are among them once
        they are taken note of; that is not done past `most` lanes in all, except for those that are
        `served`.
        """

    async def forget_lanes(self, most: int = 1000) -> int:
        """Removes lanes that hold no job any more, ended ones included; answers how many.

        Should a job come at the same moment, `lanes` has its lane again soon.
        """

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""

    async def dispatchers(self) -> list[DispatcherView]:
        """Every dispatcher that has not retired."""

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stopped renewing and attends no worker any more."""

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""

    def watch(self) -> AsyncIterator[Hint]:
        """Hints of what other processes did."""


class Link(Protocol):
    """One socket of a dispatcher, or a worker's or client's connection to one."""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Hands a message to a peer; False if there is no such peer or no room."""

    def key_of(self, peer: bytes) -> str:
        """The key that opened the connection of a peer whose message is being delivered.

        Empty where no keys are asked for.
        """

    def close(self) -> None:
        """Lets go of the socket at once; what was not sent is dropped."""


OnMessages = Callable[[list[tuple[bytes, list[bytes]]]], None]
"""Called with all messages that have arrived, each with its peer (b"" where there is only one)."""


class Clock(Protocol):
    """Time, so that a simulation can have its own."""

    def now(self) -> float:
        """Seconds on a clock that never jumps and counts suspended time too."""

    def utc(self) -> datetime:
        """The wall clock, for showing; never for deciding a lease."""


class Handler(Protocol):
    """A kind's code, as the process that runs it needs it."""

    @property
    def kind(self) -> str:
        """Which kind it is for."""

    @property
    def info(self) -> KindInfo:
        """What a worker advertises of it."""

    @property
    def function(self) -> Callable[..., object]:
        """The job's body."""

    @property
    def is_async(self) -> bool:
        """Whether what the body returns must be awaited."""

    def bind(self, args: bytes) -> dict[str, object]:
        """The keyword arguments for the body; raises `InvalidArguments` naming the parameter."""

    def pack_result(self, value: object) -> bytes:
        """The result as it is stored; raises `NotSerialisable` or `TooLarge` naming the place."""


Handlers = Mapping[str, Handler]


class App(Protocol):
    """What `module:attribute` must lead to."""

    def handlers(self) -> Handlers:
        """The kinds it serves."""

    def lifespan(self, pool: Pool) -> AbstractAsyncContextManager[None] | None:
        """What to do around all jobs of a process of this pool; None if it is nothing."""


class Executor(Protocol):
    """Runs attempts in a pool of its own. Events come back through the callbacks it was made with.

    Every attempt that was started is reported exactly once, whatever happens to it: `on_report` is
    called on the worker's event loop, never from within one of these methods. `start` is never
    called past `slots` running attempts.
    """

    slots: int
    kinds: dict[str, KindInfo]

    async def open(self) -> None:
        """Starts what must run before the first attempt can, and learns the app's kinds.

        Raises `AppError` if the app cannot be loaded.
        """

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt."""

    def abort(self, report: Report) -> None:
        """Stops the attempt that `report` names, and reports it so once it has stopped.

        The executor asks it first (cancellation, SIGTERM) and kills it after the abort grace. An
        attempt that ended by itself meanwhile is reported as it ended.
        """

    def kill(self) -> None:
        """Kills everything at once; each attempt is reported as handed back."""

    async def close(self) -> None:
        """Kills whatever is left, without reporting it."""


OnLost = Callable[[LostWorker], None]
"""Called once for a lost session, by the dispatcher that declared it lost; must return at once."""

HasEnded = Callable[[str], bool]
"""Whether a worker's `process` is known to have ended; never so of a process elsewhere."""

OnReport = Callable[[Report], None]
OnLog = Callable[[LogEntry], None]
