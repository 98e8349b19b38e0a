"""The service: everything that a client can ask of a dispatcher, apart from how it asks.

Plain arguments and values of the model go in and out; no frame, no peer, no message. The requests
over ZeroMQ call it, and the test kit calls it over a store in memory. What it needs beside the
store, which is what only the running dispatcher knows, is its `Runtime`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import NewType, Protocol
from uuid import UUID

from msgspec import Struct

from longshore import _version
from longshore.config import DispatcherSettings
from longshore.core.capacity import capacity
from longshore.core.limits import check_submission
from longshore.core.logs import MOST_ENTRIES, page
from longshore.core.naming import workers_named
from longshore.core.retention import continued, requested
from longshore.core.why import why
from longshore.dispatcher.pruner import configured
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.errors import InvalidInput, LongshoreError, NotFound, UnknownKind
from longshore.model.job import (
    CancelVerdict,
    Ended,
    Job,
    JobFilter,
    JobPage,
    JobState,
    Refused,
    RetryVerdict,
    Submission,
    Submitted,
)
from longshore.model.log import LogPage
from longshore.model.retention import Pruned
from longshore.model.worker import (
    Capacity,
    DispatcherView,
    DrainVerdict,
    Facts,
    KindInfo,
    QueueView,
    WorkerView,
)
from longshore.payload.schemas import check_arguments, nearest
from longshore.payload.values import within
from longshore.ports import Store

Caller = NewType("Caller", bytes)
"""Who asks; what one client may have is counted by it."""

Ref = UUID | int
"""What names a job: its id, or its number."""

Answer = Submitted | Refused


class DispatcherSeen(Struct, frozen=True):
    """A dispatcher, as the one that answers sees it."""

    view: DispatcherView
    workers: int
    silent_s: float
    """How long it has not been seen to renew."""
    alive: bool


class About(Struct, frozen=True):
    """Who answers."""

    version: str
    dispatcher: UUID
    now: datetime


class Runtime(Protocol):
    """What the service needs of the process around it. All of it is memory."""

    def check_room(self, jobs: int, size: int) -> None:
        """Raises `Unavailable` if so many submits more, of so many bytes, are too many for now."""

    def check_lane(self, job: Submission, caller: Caller) -> None:
        """Raises `TooLarge` if this caller's job would need a lane past a limit."""

    def kinds(self) -> Mapping[str, KindInfo]:
        """What its own workers advertise."""

    def submit(self, jobs: Sequence[Submission]) -> Awaitable[list[Answer]]:
        """Has jobs committed; answers one by one, in the order given."""

    async def wait(self, waiter: Waiter, wait_s: float) -> None:
        """Returns when the waiter has what it waits for, or after `wait_s`."""

    def cancels_made(self, cancelled: Sequence[UUID], cancelling: Sequence[UUID]) -> None:
        """Jobs were cancelled: these have ended, those run and must be stopped."""

    def drains_made(self) -> None:
        """Workers are to drain."""

    def jobs_appeared(self) -> None:
        """Jobs may be ready that were not, in any lane."""

    def seen(self, worker: WorkerView) -> WorkerView:
        """A worker of the store's, with what is known here of the dispatcher that attends it."""

    def silent_s(self, other: DispatcherView) -> float:
        """For how long another dispatcher was not seen to renew; 0 if it was just now."""

    def explained(self, job: Job, facts: Facts) -> Facts:
        """What keeps a job where it is, with what only this process knows of it."""


class Service:
    """The use cases of clients, over one store."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        utc: Callable[[], datetime],
        runtime: Runtime,
        waiters: Waiters,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._utc = utc
        self._runtime = runtime
        self._waiters = waiters

    # submitting

    async def submit(
        self, jobs: Sequence[Submission], caller: Caller, *, strict: bool = False
    ) -> list[Answer]:
        """Accepts jobs, or refuses some; `strict` refuses kinds that no live worker serves."""
        self._runtime.check_room(len(jobs), sum(len(job.args) for job in jobs))
        kinds = await self._kinds(jobs, strict)
        refused = {
            job.id: error
            for job in jobs
            if (error := self._fault(job, caller, strict, kinds)) is not None
        }
        good = [job for job in jobs if job.id not in refused]
        answers = iter(await self._runtime.submit(good) if good else [])
        return [
            _refusal(job.id, refused[job.id]) if job.id in refused else next(answers)
            for job in jobs
        ]

    async def _kinds(self, jobs: Sequence[Submission], strict: bool) -> Mapping[str, KindInfo]:
        """What is known of kinds; a strict submit asks what other dispatchers' workers serve."""
        kinds = self._runtime.kinds()
        if strict and any(job.kind not in kinds for job in jobs):
            for worker in await self._store.workers():
                if worker.alive:
                    kinds = {**worker.info.kinds, **kinds}
        return kinds

    def _fault(
        self, job: Submission, caller: Caller, strict: bool, kinds: Mapping[str, KindInfo]
    ) -> LongshoreError | None:
        try:
            check_submission(job)
            within(job.args, f"the arguments of job '{job.kind}'", self._settings.max_value_bytes)
            self._runtime.check_lane(job, caller)
            if job.kind in kinds:
                check_arguments(job, kinds[job.kind])
            elif strict:
                raise UnknownKind(
                    f"no worker serves kind '{job.kind}'{nearest(job.kind, kinds)}; "
                    "start one, or leave out strict (--strict) and it waits for one"
                )
        except LongshoreError as error:
            return error
        return None

    # waiting

    async def wait(self, jobs: Sequence[UUID], wait_s: float, *, every: bool) -> list[Ended]:
        """The outcomes of those that ended: once any has, or every one, or after `wait_s`."""
        if isnan(wait_s):
            raise InvalidInput(f"wait_s is {wait_s}; give seconds, 0 or more")
        if every and len(jobs) > 1:
            # Of many jobs most have ended long ago: there is nothing to wait for.
            found = await self._store.ended(jobs)
            if len(found) == len(jobs):
                return found
        waiter = Waiter(jobs, every)
        self._waiters.add(waiter)
        try:
            for ended in await self._store.ended(jobs):
                self._waiters.tell(ended)
            if waiter.missing and not waiter.done.is_set():
                await self._runtime.wait(waiter, min(max(wait_s, 0.0), self._settings.max_wait_s))
        finally:
            self._waiters.remove(waiter, jobs)
        return list(waiter.ended.values())

    # showing

    async def job(self, ref: Ref) -> Job:
        """One job, whole."""
        job = await self._store.job(ref)
        if job is None:
            raise NotFound(f"there is no job {ref}; `longshore jobs` lists those there are")
        return job

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first."""
        if wanted.since is not None and wanted.since.utcoffset() is None:
            raise InvalidInput(
                f"since {wanted.since.isoformat()} has no time zone; give a time with its zone"
            )
        return await self._store.jobs(wanted)

    async def why(self, ref: Ref) -> tuple[Job, str]:
        """A job, and why it is where it is, in words."""
        job = await self.job(ref)
        return job, await self.explain(job)

    async def explain(self, job: Job) -> str:
        """Why this job is where it is, in words."""
        return why(job, self._runtime.explained(job, await self._store.explain(job)))

    async def logs(
        self, ref: Ref, *, attempt: int | None, after: tuple[int, int], most: int
    ) -> LogPage:
        """What a job's attempts said, in order, behind a place in it; of one if it is given."""
        # The job first: once it has ended, all that it said is there.
        job = await self.job(ref)
        most = max(1, min(most, MOST_ENTRIES))
        token = job.token if attempt == job.attempt else None
        entries = await self._store.logs(job.id, token=token, after=after, most=most)
        return page(entries, most, job, after, attempt)

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""
        return [self._runtime.seen(worker) for worker in await self._store.workers()]

    async def capacity(self) -> Capacity:
        """What the fleet can take."""
        return capacity(await self.workers())

    async def kind(self, kind: str) -> KindInfo | None:
        """What a worker advertises of a kind: of this dispatcher, or alive, or ended lately.

        So what an app declares is not forgotten while its only worker is being restarted.
        """
        known = self._runtime.kinds().get(kind)
        if known is not None:
            return known
        able = [worker for worker in await self._store.workers() if kind in worker.info.kinds]
        newest = max(able, key=lambda worker: (worker.alive, worker.attended_at), default=None)
        return newest.info.kinds[kind] if newest is not None else None

    async def dispatchers(self) -> list[DispatcherSeen]:
        """Every dispatcher that has not retired."""
        workers = Counter(one.dispatcher for one in await self._store.workers() if one.alive)
        return [self._seen(view, workers[view.id]) for view in await self._store.dispatchers()]

    def _seen(self, view: DispatcherView, workers: int) -> DispatcherSeen:
        silent_s = self._runtime.silent_s(view)
        alive = silent_s < self._settings.dispatcher_lease_s
        return DispatcherSeen(view, workers, silent_s, alive)

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""
        return await self._store.queues()

    async def hello(self) -> About:
        """Who answers, and that somebody does."""
        return About(_version.__version__, self._dispatcher, self._utc())

    # changing

    async def cancel(self, refs: Sequence[Ref]) -> list[tuple[UUID | None, CancelVerdict]]:
        """Cancels what does not run, and has what runs stopped; answers in the order given."""
        verdicts = await self._store.cancel(refs, by="a client")
        by_verdict = {
            wanted: [id for id, verdict in verdicts if id is not None and verdict is wanted]
            for wanted in (CancelVerdict.CANCELLED, CancelVerdict.CANCELLING)
        }
        self._runtime.cancels_made(*by_verdict.values())
        return verdicts

    async def retry(
        self, refs: Sequence[Ref], request: UUID
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        """Opens a new round for jobs that ended without success; answers in the order given.

        A request that comes again is answered as the first time, and opens no second round.
        """
        verdicts = await self._store.retry(refs, "a client", request)
        self._runtime.jobs_appeared()
        return verdicts

    async def drain(self, names: Sequence[str]) -> list[tuple[WorkerView | None, DrainVerdict]]:
        """Has workers finish what they run and leave; each by id, its beginning, or name.

        Answers in the order given, with the worker if the name meant exactly one.
        """
        workers = await self._store.workers()
        answers = [await self._drain(workers_named(name, workers)) for name in names]
        self._runtime.drains_made()
        return answers

    async def _drain(self, found: Sequence[WorkerView]) -> tuple[WorkerView | None, DrainVerdict]:
        if len(found) != 1:
            return None, DrainVerdict.AMBIGUOUS if found else DrainVerdict.NOT_FOUND
        [worker] = found
        if not worker.alive or not await self._store.set_draining(worker.info.id, True):
            return worker, DrainVerdict.GONE
        if worker.draining:
            return worker, DrainVerdict.ALREADY_DRAINING
        return worker, DrainVerdict.DRAINING

    async def pause(self, queue: str, paused: bool) -> None:
        """Pauses a queue, or lets it go on."""
        await self._store.set_paused(queue, paused)
        self._runtime.jobs_appeared()

    async def prune(
        self,
        states: Sequence[JobState],
        older_than_s: float | None,
        keep: int | None,
        *,
        after: int,
        dry_run: bool,
        counted: Mapping[JobState, int],
    ) -> Pruned:
        """Removes ended jobs past their bounds, of the next thousand jobs after a number.

        Without `older_than_s` and `keep` the dispatcher's own bounds hold. A dry run only counts,
        and is told how many were `counted` before.
        """
        kept = requested(configured(self._settings), states, older_than_s, keep)
        if dry_run:
            kept = continued(kept, counted)
        return await self._store.prune(kept, after=max(0, after), dry_run=dry_run)


def _refusal(job: UUID, error: LongshoreError) -> Refused:
    return Refused(job, error.code, str(error))
