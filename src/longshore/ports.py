"""The ports: what the engine needs of a store, a link, an executor and a clock.

A store's verbs are coarse and batched. After `StoreUnavailable` the caller does not know whether
the store committed, so it repeats the verb. Every verb may be repeated, and nothing happens twice.
The caller passes durations, and the store adds them to its own clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable
from uuid import UUID

from longshore.core.why import Facts
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorVerdict,
    MailAction,
    MailView,
    NewActor,
    Reply,
    Started,
    TurnView,
)
from longshore.model.attempt import Assignment, Attempt
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.batch import Batch as Batch  # stores and dispatchers take them from here
from longshore.model.batch import BatchResult as BatchResult
from longshore.model.finding import Finding
from longshore.model.group import (
    MOST_COPIED,
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupProgress,
    GroupSubmitted,
    GroupVerdict,
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
    LogEntry,
    Refused,
    RetryVerdict,
)
from longshore.model.log import KeptEntry
from longshore.model.reports import Report
from longshore.model.retention import GroupsPruned, Pruned, Retention
from longshore.model.run_time import RunTime
from longshore.model.upkeep import Harvested as Harvested
from longshore.model.upkeep import Promoted as Promoted
from longshore.model.upkeep import Settled as Settled
from longshore.model.upkeep import Tended as Tended
from longshore.model.worker import (
    Attended,
    DispatcherView,
    Gone,
    KindInfo,
    Lane,
    Late,
    LostWorker,
    Pool,
    QueueView,
    SessionKey,
    Stats,
    WorkerInfo,
    WorkerView,
)


class Hint(StrEnum):
    """Something another process did. A hint may get lost, or come twice or late."""

    WORK = "work"
    CANCEL = "cancel"
    ENDED = "ended"


class Store(Protocol):
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
        worker held ahead (`core.lookahead.held_ahead`), or whose tokens are `undelivered`. Jobs
        that were being cancelled are cancelled.
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

    # groups
    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        """Stores some nodes of a group. With the last of them the group runs, all or nothing.

        A repeat changes nothing. What differs from what is stored is refused, and so is a unique
        key that a live job holds; then nothing of this part is stored.
        """

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        """Does some of what groups have to do, of at most so many jobs.

        Ends reach the jobs that depend on them. Maps become jobs; one that would bring its group
        past `max_group_jobs` fails. Jobs of cancelled groups end. Groups without a live job end;
        without `groups` it looks at every group, otherwise at these.
        """

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        """Ends a gate of a group, which has been reached, as succeeded with this result.

        Opened again with the same value, it stays as it is.
        """

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        """Marks a group as cancelling. `settle` ends its jobs; none of them becomes ready again."""

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        """Holds a group's jobs that have not begun, or lets them go on. `settle` does the rest."""

    async def retry_group(
        self,
        ref: UUID | int,
        by: str = "",
        request: UUID | None = None,
        *,
        keys: Sequence[str] = (),
        args: bytes | None = None,
        dry_run: bool = False,
    ) -> RetryPlan | None:
        """Opens a new round of all jobs of a group that did not succeed, one for each `request`.

        With `keys`, it opens one of these jobs and of all that depend on them, whatever they were;
        a key that ends in `/` names all below it. What a job added leaves the group when the job
        runs again. With `args`, the one job in `keys` gets these arguments. A dry run changes
        nothing. None if there is no such group.
        """

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
    ) -> RunPlan | None:
        """Takes a step towards a new run of a group that has ended: a new group with this id.

        A step copies at most so many jobs. Call it again until the new group is not staging any
        more; by then a repeat only answers what the run did. What succeeded, and depends on nothing
        that runs anew, is there as succeeded with its result. The jobs with these `keys` run anew
        in any case. A dry run changes nothing. None if there is no such group. Raises `Conflict` if
        another group has the id.
        """

    async def cancel_abandoned(self, older_than_s: float, most: int = 100) -> list[UUID]:
        """Cancels groups that are not complete and got no part for so long; answers which."""

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        """What is wrong with a group that runs; with `repair`, its counts are made right.

        Then `settle` does what they ask for.
        """

    async def group_progress(self, after: int = 0, most: int = 1000) -> list[GroupProgress]:
        """How far groups are that have not ended: the next `most` of them after a number.

        Its cost depends on neither the jobs nor the groups beyond these.
        """

    async def group(self, ref: UUID | int) -> Group | None:
        """One group, by its id or number."""

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        """Groups, newest first, without counts."""

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        """The nodes of a group in its order, after the one with this index, beginning with 0."""

    # actors: `pump` takes their turns and the messages to them
    async def start_actors(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> list[Started | Refused]:
        """Starts actors, each with its first turn; answers item by item.

        A key that an actor of that type has is refused, or with `reuse` answered with that actor.
        A repeat of an id changes nothing.
        """

    async def replies(self, ids: Sequence[UUID]) -> list[Reply]:
        """The replies to these asks from outside, as far as there are any; kept for an hour."""

    async def pause_actor(self, type: str, key: str, paused: bool) -> ActorVerdict:
        """Pauses an actor after the turn that runs, or resumes it; a failed one too."""

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        """Removes an actor with its mailbox and timers; who asked it something hears of that.

        A turn that runs is stopped first: then `tend_actors` removes the actor after it.
        """

    async def edit_actor(
        self,
        type: str,
        key: str,
        state: bytes,
        version: int,
        *,
        turn: int | None = None,
        restart: bool = False,
    ) -> ActorVerdict:
        """Replaces the state of an actor between two turns, as a turn of its own.

        With `turn`, only if that is its last one. With `restart`, the timers go too, and the actor
        gets the event of its start again. An actor whose turn failed goes on with the new state.
        """

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        """Parks a message, so that it is passed over, puts it back or drops it.

        Not while a turn runs, which may have read it. A message that is put back is due at once,
        as a delayed one is.
        """

    async def tend_actors(self, most: int = 1000) -> Tended:
        """Removes actors that were stopped while a turn ran, and forgets old ids of messages."""

    async def actor(self, type: str, key: str) -> Actor | None:
        """One actor, as its last turn left it. Takes no lock."""

    async def actors(self, wanted: ActorFilter) -> list[Actor]:
        """Actors by type and key, without their states."""

    async def turns(self, type: str, key: str) -> list[TurnView]:
        """The last turns of an actor, the newest first."""

    async def mail(self, type: str, key: str, most: int = 100) -> list[MailView]:
        """The first messages that an actor has not read, parked ones too."""

    # how long kinds run
    async def note_runs(self, times: Sequence[RunTime]) -> None:
        """Adds runs to the figures of these kinds, each named once (`core.run_times`).

        A repeat counts them again. So a caller that gets no answer drops them: a figure is an
        estimate, and a few runs more or less do not matter.
        """

    async def run_times(self, kinds: Sequence[str]) -> list[RunTime]:
        """How long jobs of these kinds run, by kind, where that is known."""

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


class Link(Protocol):
    """One socket of a dispatcher, or a worker's or client's connection to one."""

    def send(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """Sends a message to a peer; False if there is no such peer or no room."""

    def key_of(self, peer: bytes) -> str:
        """The key that opened the connection of a peer, while its message is being delivered.

        Empty if the socket asks for no keys.
        """

    def close(self) -> None:
        """Closes the socket at once, and drops what was not sent."""


OnMessages = Callable[[list[tuple[bytes, list[bytes]]]], None]
"""Called with all messages that have arrived, each with its peer (b"" if there is only one)."""


class Clock(Protocol):
    """Time. A simulation has its own."""

    def now(self) -> float:
        """Seconds on a clock that never jumps, and that counts while the machine sleeps."""

    def utc(self) -> datetime:
        """The wall clock, for people. No lease depends on it."""


class Handler(Protocol):
    """A kind's code, for the process that runs it."""

    @property
    def kind(self) -> str:
        """Its kind."""

    @property
    def info(self) -> KindInfo:
        """What a worker advertises of it."""

    @property
    def function(self) -> Callable[..., object]:
        """The job's body."""

    @property
    def is_async(self) -> bool:
        """Whether the caller must await what the body returns."""

    def bind(self, args: bytes) -> dict[str, object]:
        """The keyword arguments of the body; raises `InvalidArguments` naming the parameter."""

    def pack_result(self, value: object) -> bytes:
        """The result as the store keeps it; raises `NotSerialisable` or `TooLarge`."""

    def is_final(self, error: BaseException) -> bool:
        """Whether an attempt that raised this is not tried again, by what was declared."""


Handlers = Mapping[str, Handler]


class App(Protocol):
    """What `module:attribute` must lead to."""

    def handlers(self) -> Handlers:
        """The kinds it serves."""

    def lifespan(self, pool: Pool) -> AbstractAsyncContextManager[None] | None:
        """What runs around all jobs of a process of this pool, if anything."""


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


OnBegun = Callable[[int, float], None]
"""Called with an attempt's token, and how many seconds ago the attempt began."""


@runtime_checkable
class QueueingExecutor(Executor, Protocol):
    """An executor in which short attempts wait, close to where they run, until they begin.

    They may be started past `slots`. It calls `on_begun` when an attempt begins. If the attempt is
    taken back all the same, it had not begun.
    """

    on_begun: OnBegun

    def start_short(self, assignment: Assignment) -> None:
        """Begins an attempt, or puts it behind another short one that runs."""

    def take_back(self, tokens: Collection[int]) -> list[int]:
        """Gives up those of these attempts that have not begun; does not report them.

        Answers which they are.
        """


OnLost = Callable[[LostWorker], None]
"""Called once for a lost session, by the dispatcher that declared it lost; must return at once."""

HasEnded = Callable[[str], bool]
"""Whether a worker's `process` is known to have ended; never so of a process elsewhere."""


class OnReport(Protocol):
    """Called with the end of an attempt, and how long it took, if the executor measured that."""

    def __call__(self, report: Report, took_s: float | None = None, /) -> None:
        """An attempt ended."""


OnLog = Callable[[LogEntry], None]
