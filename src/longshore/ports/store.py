"""What the engine needs of a store.

A store's verbs are coarse and batched. After `StoreUnavailable` the caller does not know whether
the store committed, so it repeats the verb. Every verb may be repeated, and nothing happens twice.
The caller passes durations, and the store adds them to its own clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from longshore.core.why import Facts
from longshore.model.attempt import Attempt
from longshore.model.batch import Batch as Batch  # stores and dispatchers take them from here
from longshore.model.batch import BatchResult as BatchResult
from longshore.model.callback import USUAL_TERMS, CallbackTerms
from longshore.model.depth import LaneDepth
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Job,
    JobFilter,
    JobPage,
    LogEntry,
    RetryVerdict,
)
from longshore.model.log import KeptEntry
from longshore.model.retention import GroupsPruned, Pruned, Retention
from longshore.model.run_time import RunTime
from longshore.model.upkeep import Harvested as Harvested
from longshore.model.upkeep import Promoted as Promoted
from longshore.model.upkeep import Settled as Settled
from longshore.model.upkeep import Tended as Tended
from longshore.model.upkeep import Told as Told
from longshore.model.usage import Peak
from longshore.model.worker import (
    Attended,
    DispatcherView,
    Gone,
    Lane,
    Late,
    QueueView,
    SessionKey,
    Stats,
    WorkerInfo,
    WorkerView,
)
from longshore.ports.access_store import AccessStore
from longshore.ports.actor_store import ActorStore
from longshore.ports.bulk_store import BulkStore
from longshore.ports.file_store import FileStore
from longshore.ports.group_store import GroupStore
from longshore.ports.limit_store import LimitStore
from longshore.ports.schedule_store import ScheduleStore
from longshore.ports.web_store import WebStore


class Hint(StrEnum):
    """Something another process did. A hint may get lost, or come twice or late."""

    WORK = "work"
    CANCEL = "cancel"
    ENDED = "ended"
    SENDS = "sends"
    """An application sent messages to actors in its own transaction."""
    CHANGE = "change"
    """Something changed that people may be looking at."""


class Store(
    GroupStore,
    ActorStore,
    AccessStore,
    WebStore,
    FileStore,
    ScheduleStore,
    LimitStore,
    BulkStore,
    Protocol,
):
    """What all processes share. All methods raise `StoreUnavailable` when the database is away."""

    @property
    def is_serial(self) -> bool:
        """Whether it can commit only one transaction at a time."""

    async def open(self) -> None:
        """Connects; raises `SchemaMismatch` if the schema is of another version."""

    async def close(self) -> None:
        """Finishes what is under way, and closes the database."""

    async def migrate(self) -> tuple[int, int]:
        """Brings the schema forward; answers the version before and after."""

    # the pump: the hot path, one transaction
    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        """Records finishes, accepts submits and claims jobs, all in one commit.

        A slot gets a job only if its worker is alive, in that session and attended by `dispatcher`.
        An item that the database refuses gets its own error; the rest is committed.
        """

    async def tell_watchers(self, most: int = 100, callbacks: CallbackTerms = USUAL_TERMS) -> Told:
        """Tells those who watch jobs and groups of at most so many that ended.

        It stops with the end whose result brings them to `BATCH_BYTES`. Each end of a round is told
        once. An actor gets a message; if it is gone, the history of the job says so. For a web
        address the store submits a callback, on these terms (`model.callback`).
        """

    # the keeper: leases, losses, cancels, clocks
    async def renew(self, dispatcher: UUID, name: str) -> None:
        """Renews a dispatcher's lease: changes its `renewed_no`."""

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
        """Registers or adopts a worker: begins a session, and answers the attempts it owns.

        The worker numbers its sessions, so that a late request cannot end a newer session; without
        a number the store takes the next. A worker that was draining still is, whatever it says.
        """

    async def placed(self, slots: Sequence[SessionKey]) -> list[Attempt]:
        """The attempts that these sessions own, whether or not their workers know.

        Transactions that were giving them jobs at the time of the call have ended before it reads.
        """

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        """A draining worker gets no more jobs; answers whether there is such a live worker."""

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        """The live workers of this dispatcher that are draining."""

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        """Marks these workers as seen now, if they are alive and this dispatcher's.

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

        With `crash`, each running job has crashed once more, and at `crash_limit` it fails as
        poisonous. Without (a goodbye), the loss costs nothing; nor does it cost attempts that the
        worker held ahead (`core.lookahead.not_blamed`), or whose tokens are `undelivered`. Jobs
        that were being cancelled are cancelled. The services that a gateway attended have none
        afterwards, and a loss of a service that has none costs nothing either.
        """

    async def sweep(self, crash_limit: int) -> Harvested:
        """Frees jobs whose worker is not alive, as a harvest that counts as a crash does."""

    async def promote(self, most: int = 1000) -> Promoted:
        """Makes delayed jobs ready that are due."""

    async def expire(self, most: int = 1000) -> list[Ended]:
        """Fails ready jobs that did not begin before their deadline; answers their outcomes."""

    async def overdue(self, most: int = 1000) -> list[Attempt]:
        """Running attempts that are past their timeout and the margin after it."""

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

        A job's history keeps the request that opened a round: a repeat gets the same answer.
        """

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """Keeps log entries whose token is still the job's last. Repeats are dropped."""

    async def set_paused(self, queue: str, paused: bool) -> None:
        """Pauses or resumes a queue. The next claim heeds it."""

    async def add_queue_waits(self, waits: Mapping[tuple[str, str], float]) -> None:
        """Adds so many seconds to what the jobs of queues waited, by queue and cause.

        A repeat adds them again: whoever does not know whether it was heard lets it be.
        """

    # how long kinds run
    async def note_runs(self, times: Sequence[RunTime]) -> None:
        """Adds runs to the figures of these kinds, each named once (`core.run_times`).

        A repeat counts them again. So a caller that gets no answer drops them: a figure is an
        estimate, and a few runs more or less do not matter.
        """

    async def run_times(self, kinds: Sequence[str]) -> list[RunTime]:
        """How long jobs of these kinds run, by kind, where that is known."""

    async def note_peaks(self, peaks: Sequence[Peak]) -> None:
        """Attempts of these kinds, each named once, used so much (`core.usage`).

        If it is repeated, only their number is wrong. Kinds without a measured attempt for
        `core.usage.KEPT_S` are forgotten.
        """

    async def peaks(self) -> list[Peak]:
        """The most that attempts of each kind used lately."""

    # what is over
    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next `most` jobs after a number.

        Removes all that belongs to them too. Call it again from `up_to` until it is done. No claim
        waits for it, and it waits for none. A dry run only counts.
        """

    async def prune_groups(
        self, kept: Retention, *, most: int = 1000, dry_run: bool = False
    ) -> GroupsPruned:
        """Does one step of the removal of ended groups past their bounds, of `most` jobs.

        A group goes whole, with all that belongs to it: from its first step on nobody sees it. Call
        it again until it is done; it goes on with what another process began. A dry run only
        counts, and is done at once.
        """

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        """Removes workers that ended `older_than_s` ago and own no job; answers how many."""

    # reading
    async def job(self, ref: UUID | int) -> Job | None:
        """One job, whole."""

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first, without their arguments, results, history and logs.

        Reads a bounded number of jobs, whatever is wanted; a page that is not full by then says
        where it stopped. Running jobs have their newest progress and step: two lookups each.
        """

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        """A job's log entries after `after`, by token and number; those of one `token` if given.

        None if there is no such job.
        """

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        """The outcomes of these jobs, as far as they have ended."""

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten.

        It also adds lanes of jobs that an application enqueued in its own transaction. Past `most`
        lanes in all, it adds only those that are `served`.
        """

    async def forget_lanes(self, most: int = 1000) -> int:
        """Removes lanes that hold no job, not even an ended one; answers how many.

        If a job comes at the same moment, `lanes` has its lane again soon.
        """

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""

    async def depths(self) -> list[LaneDepth]:
        """Every lane that holds jobs: how many in each state, and how long the oldest waits.

        It costs the same however many jobs there are.
        """

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""

    async def dispatchers(self) -> list[DispatcherView]:
        """Every dispatcher that has not retired."""

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stopped renewing and attends no workers."""

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""

    def watch(self) -> AsyncIterator[Hint]:
        """Hints of what other processes did."""

    def tell_others(self) -> None:
        """Hints to other processes, soon, that something changed (`Hint.CHANGE`)."""
