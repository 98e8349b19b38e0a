"""What a dispatcher and its store do for a test kit, in one process and without waiting.

The store is the model that the real ones are checked against, and what a report means for its job
is decided by the dispatcher's own code. Only time is different: it stands still until it is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from threading import RLock
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from msgspec import structs

from longshore.core.limits import check_submission
from longshore.core.logs import MOST_ENTRIES, page
from longshore.core.retention import asked, raised
from longshore.core.schemas import check_arguments, nearest
from longshore.core.values import within
from longshore.core.why import why
from longshore.dispatcher.ends import Decisions
from longshore.dispatcher.pruner import usual
from longshore.dispatcher.settings import DispatcherSettings
from longshore.errors import LongshoreError, NotFinished, NotFound, UnknownKind, WrongState
from longshore.model.ends import End
from longshore.model.job import (
    ANY_TARGET,
    CancelVerdict,
    Claimed,
    Ended,
    Job,
    JobState,
    LogEntry,
    Refused,
    Submission,
)
from longshore.model.log import LogPage
from longshore.model.retention import Pruned
from longshore.model.worker import Attended, Seat, Want, WorkerInfo
from longshore.ports import Batch, Handlers, Pumped
from longshore.testing.memory import MemoryStore
from longshore.wire import codec
from longshore.wire import messages as m

T = TypeVar("T")

WORKER: Final = "kit.drain()"
"""What runs jobs, as `why` names it."""


class StillClock:
    """Begins with the wall clock, and stands still until it is moved."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self.ahead = timedelta()
        """By how much it was moved."""

    def utc(self) -> datetime:
        """The time now."""
        return self._began + self.ahead

    def catch_up(self) -> None:
        """What was computed from the wall clock is not later here than it is there."""
        self._began = max(self._began, datetime.now(UTC))


class _NoLuck(Random):
    """Leaves a backoff as it is, without jitter."""

    def random(self) -> float:
        return 0.5


class Desk:
    """Answers clients and hands out attempts. `on_cancel` hears of running jobs to be stopped."""

    def __init__(self, handlers: Callable[[], Handlers], on_cancel: Callable[[UUID], None]) -> None:
        self.clock = StillClock()
        self.store = MemoryStore(self.clock.utc)
        self._handlers = handlers
        self._on_cancel = on_cancel
        self._settings = DispatcherSettings()
        self._decisions = Decisions(self._settings, _NoLuck())
        self._id, self._worker = uuid4(), uuid4()
        self._attended: tuple[frozenset[str], Seat] | None = None
        self._lock = RLock()

    # for clients

    def answer(self, frames: Sequence[bytes]) -> list[bytes]:
        """The frames that answer a client's request."""
        request = codec.from_client.decode(frames)
        try:
            with self._lock:
                self._seat()
                return codec.ok(request.rid, self._answer(request))
        except LongshoreError as error:
            return codec.encode(m.Err(request.rid, error.code, str(error)))

    def _answer(self, request: m.Request) -> object:
        match request:
            case m.Submit():
                return self._submit(request)
            case m.Wait():
                return self._wait(request)
            case m.Show():
                return self.job(request.job)
            case m.Why():
                job = self.job(request.job)
                return m.WhyAnswer(job.id, job.number, job.state.value, self._why(job))
            case m.Cancel():
                return [self._cancel(ref) for ref in request.jobs]
            case m.Retry():
                verdicts = _at_once(self.store.retry(request.jobs, by="a client"))
                pairs = zip(request.jobs, verdicts, strict=True)
                return [m.RetryAnswer(ref, id, verdict) for ref, (id, verdict) in pairs]
            case m.ReadLogs():
                return self._logs(request)
            case m.ListJobs():
                return _at_once(self.store.jobs(request.wanted))
            case m.ListQueues():
                return _at_once(self.store.queues())
            case m.Pause():
                return _at_once(self.store.set_paused(request.queue, request.paused))
            case m.Prune():
                return self._prune(request)
            case m.ShowKind():
                handler = self._handlers().get(request.kind)
                return handler.info if handler is not None else None
            case m.ListWorkers() | m.Drain() | m.ListDispatchers() | m.ShowCapacity() | m.Hello():
                wanted = type(request).__name__
                raise WrongState(f"a test kit has no fleet, and so no answer to {wanted}")

    def _submit(self, request: m.Submit) -> list[m.SubmitAnswer]:
        if any(job.run_at is not None for job in request.jobs):
            self.clock.catch_up()
        return [self._submit_one(job, request.strict) for job in request.jobs]

    def _submit_one(self, job: Submission, strict: bool) -> m.SubmitAnswer:
        try:
            self._check(job, strict)
        except LongshoreError as error:
            return m.SubmitAnswer(job.id, code=error.code, message=str(error))
        answer = self._pump(submits=[job]).submitted[0]
        if isinstance(answer, Refused):
            return m.SubmitAnswer(answer.id, code=answer.code, message=answer.message)
        return m.SubmitAnswer(answer.id, answer.number, answer.existing)

    def _check(self, job: Submission, strict: bool) -> None:
        check_submission(job)
        within(job.args, f"the arguments of job '{job.kind}'", self._settings.max_value_bytes)
        handlers = self._handlers()
        if job.kind in handlers:
            check_arguments(job, handlers[job.kind].info)
        elif strict:
            near = nearest(job.kind, handlers)
            raise UnknownKind(f"no app of this kit has a job '{job.kind}'{near}")

    def _wait(self, request: m.Wait) -> list[Ended]:
        """The outcomes there are. Waiting for others would be for ever, so it says why."""
        ended = _at_once(self.store.ended(request.jobs))
        known = {one.id for one in ended}
        missing = [id for id in request.jobs if id not in known]
        if not missing or request.wait_s <= 0 or (ended and not request.all):
            return ended
        job = self.job(missing[0])
        raise NotFinished(
            f"job {job.number} ({job.kind}) has not ended: {self._why(job)}. In a test kit jobs "
            "run only in kit.drain(), and time passes only in kit.advance(seconds)"
        )

    def _logs(self, request: m.ReadLogs) -> LogPage:
        job, most = self.job(request.job), max(1, min(request.most, MOST_ENTRIES))
        entries = _at_once(self.store.logs(job.id, after=request.after, most=most))
        return page(entries, most, job, request.after, request.attempt)

    def _prune(self, request: m.Prune) -> Pruned:
        kept = asked(usual(self._settings), request.states, request.older_than_s, request.keep)
        kept = raised(kept, request.counted) if request.dry_run else kept
        return _at_once(self.store.prune(kept, after=request.after, dry_run=request.dry_run))

    def _cancel(self, ref: UUID | int) -> m.CancelAnswer:
        [(id, verdict)] = _at_once(self.store.cancel([ref], by="a client"))
        if id is not None and verdict is CancelVerdict.CANCELLING:
            self._on_cancel(id)
        return m.CancelAnswer(ref, id, verdict)

    def _why(self, job: Job) -> str:
        # A kit runs jobs for any target.
        job = structs.replace(job, target=ANY_TARGET)
        return why(job, _at_once(self.store.explain(job)))

    # for the kit

    def job(self, ref: UUID | int) -> Job:
        """One job, whole."""
        job = _at_once(self.store.job(ref))
        if job is None:
            raise NotFound(f"there is no job {ref} in this test kit")
        return job

    def submissions(self) -> list[Submission]:
        """What was submitted, by clients and by jobs, in the order of the jobs' numbers."""
        return [row.submission for row in self.store._jobs.values()]

    def claim(self, queue: str | None) -> Claimed | None:
        """The next attempt, best first; None if nothing is ready."""
        with self._lock:
            _at_once(self.store.promote())
            seat = self._seat()
            handlers = self._handlers()
            lanes = tuple(
                lane.hash
                for lane in _at_once(self.store.lanes())
                if lane.kind in handlers and queue in (None, lane.queue)
            )
            claimed = self._pump(wants=[Want(lanes, (seat,))]).claimed
            return claimed[0] if claimed else None

    def end(self, report: m.Report, claimed: Claimed, said: Sequence[LogEntry]) -> Job:
        """Records how an attempt ended, as a dispatcher would; answers the job after it."""
        with self._lock:
            _at_once(self.store.log(said))
            finish = self._decisions.decide(report, claimed, WORKER)
            self._pump(finishes=[finish])
            return self.job(claimed.id)

    def next_retry_at(self, queue: str | None) -> datetime | None:
        """When the next job that was begun already, and failed or snoozed, is tried again."""
        jobs = [row.job for row in self.store._jobs.values()]
        return min(
            (
                job.run_at
                for job in jobs
                if job.state is JobState.DELAYED and job.attempt and job.run_at is not None
                if queue in (None, job.queue)
            ),
            default=None,
        )

    def _pump(
        self,
        finishes: Sequence[End] = (),
        submits: Sequence[Submission] = (),
        wants: Sequence[Want] = (),
    ) -> Pumped:
        return _at_once(self.store.pump(self._id, Batch(finishes, submits, wants)))

    def _seat(self) -> Seat:
        """A place on the one worker there is, which serves whatever the apps have by now."""
        handlers = self._handlers()
        kinds = frozenset(handlers)
        if self._attended is None or self._attended[0] != kinds:
            answer = _at_once(self.store.attend(self._id, self._info(handlers)))
            assert isinstance(answer, Attended), answer
            self._attended = kinds, Seat(self._worker, answer.session)
        return self._attended[1]

    def _info(self, handlers: Handlers) -> WorkerInfo:
        kinds = {kind: handler.info for kind, handler in handlers.items()}
        return WorkerInfo(
            id=self._worker, name=WORKER, host="test", kinds=kinds, slots=1000, processes=1000
        )


def _at_once(verb: Coroutine[Any, Any, T]) -> T:
    """What a verb of the store in memory answers: none of them ever waits."""
    try:
        verb.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise AssertionError("a verb of the store in memory waited")
