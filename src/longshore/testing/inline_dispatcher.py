"""What a dispatcher and its store do for a test kit, in one process and without waiting.

The store is the model that the real ones are checked against. The dispatcher's own service answers
clients, and its own code decides what a report means for its job. Only time is different: it stands
still until it is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from random import Random
from threading import RLock
from typing import Any, Final, TypeVar, cast
from uuid import UUID, uuid4

from msgspec import structs

from longshore.client.group_handle import check_opened
from longshore.config import DispatcherSettings
from longshore.core.group_words import in_states
from longshore.core.why import Facts
from longshore.dispatcher.actor_service import Caller
from longshore.dispatcher.bulk_service import Turn
from longshore.dispatcher.changes import Changes
from longshore.dispatcher.ends import Decisions
from longshore.dispatcher.noticed_store import noticed
from longshore.dispatcher.requests import failed, perform
from longshore.dispatcher.service import Answer, Service
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.errors import LongshoreError, NotFinished, WrongState
from longshore.model.actor import Message, NewActor, Reply, Sent
from longshore.model.attempt import Attempt
from longshore.model.bulk import BulkAdvance
from longshore.model.ends import End, PutAside
from longshore.model.group import Group, GroupPart, GroupState, GroupSubmitted
from longshore.model.job import ANY_TARGET, Ended, Job, JobState, LogEntry, Refused, Submission
from longshore.model.reports import Report
from longshore.model.worker import (
    Attended,
    Claim,
    DispatcherView,
    KindInfo,
    SessionKey,
    WorkerInfo,
    WorkerView,
)
from longshore.payload.values import pack
from longshore.ports import Batch, BatchResult, Handlers
from longshore.testing.memory import MemoryStore
from longshore.wire import codec
from longshore.wire import messages as m
from longshore.wire.file_messages import BlobRequest
from longshore.wire.web_messages import WebRequest

T = TypeVar("T")

WORKER: Final = "kit.drain()"
"""What runs jobs, as `why` names it."""

_CALLER: Final = Caller(b"")
_FLEET: Final = m.ListWorkers | m.Drain | m.ListDispatchers | m.ShowCapacity | m.Hello


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


class InlineService(Service):
    """The dispatcher's own service, for jobs that any process may run."""

    async def explain(self, job: Job) -> m.WhyAnswer:
        """Why a job is where it is. A kit runs jobs for any target."""
        return await super().explain(structs.replace(job, target=ANY_TARGET))


class InlineDispatcher:
    """Answers clients and hands out attempts. `on_cancel` hears of running jobs to be stopped."""

    def __init__(self, handlers: Callable[[], Handlers], on_cancel: Callable[[UUID], None]) -> None:
        self.clock = StillClock()
        self._changes = Changes()
        self.store = cast(MemoryStore, noticed(MemoryStore(self.clock.utc), self._changes))
        self._handlers = handlers
        self._on_cancel = on_cancel
        self._settings = DispatcherSettings()
        self._decisions = Decisions(self._settings, _NoLuck())
        self._id, self._worker = uuid4(), uuid4()
        self._service = InlineService(
            self.store, self._settings, self._id, self.clock.utc, self, Waiters(), Waiters()
        )
        self._attended: tuple[frozenset[str], SessionKey] | None = None
        self._lock = RLock()

    # for clients

    def answer(self, frames: Sequence[bytes]) -> list[bytes]:
        """The frames that answer a client's request."""
        request = codec.from_client.decode(frames)
        try:
            if isinstance(request, _FLEET | WebRequest | BlobRequest):
                wanted = type(request).__name__
                raise WrongState(f"a test kit has no fleet, and so no answer to {wanted}")
            with self._lock:
                self._slot()
                return codec.ok(request.rid, _at_once(perform(self._service, request, _CALLER)))
        except LongshoreError as error:
            return failed(request.rid, error)

    def at_once(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb of the store answers."""
        with self._lock:
            return _at_once(work)

    # for the service (see `service.Runtime`)

    def check_room(self, jobs: int, size: int) -> None:
        """There is always room."""

    def check_lane(self, job: Submission, caller: Caller) -> None:
        """There may be any number of lanes."""

    async def changed_after(self, number: int, wait_s: float) -> int:
        """How many changes there were by now: a kit never waits."""
        return self._changes.number

    async def stalled_groups(self, most: int) -> list[Group]:
        """None: a kit has no duty that looks for them."""
        return []

    def kinds(self) -> dict[str, KindInfo]:
        """What the apps have by now."""
        return {kind: handler.info for kind, handler in self._handlers().items()}

    async def submit(self, jobs: Sequence[Submission]) -> list[Answer]:
        """Has jobs accepted at once."""
        if any(job.run_at is not None for job in jobs):
            self.clock.catch_up()
        pumped = await self.store.pump(self._id, Batch(submits=jobs))
        for job in pumped.stopping:
            self._on_cancel(job)
        return pumped.submitted

    async def send(self, messages: Sequence[Message]) -> list[Sent | Refused]:
        """Has messages put into their mailboxes at once."""
        return (await self.store.pump(self._id, Batch(sends=messages))).sent

    def actors_started(self, actors: Sequence[NewActor]) -> None:
        """Nothing: the next drain takes their first turns."""

    def actor_changed(self) -> None:
        """Nothing: the next drain finds its turn."""

    def limits_changed(self) -> None:
        """Nothing: the next drain claims by the new rules."""

    def sends_appeared(self) -> None:
        """No application has a transaction here."""

    def actor_stopped(self) -> None:
        """A turn that runs is stopped; then the actor goes."""
        for attempt in _at_once(self.store.cancelling(self._id)):
            self._on_cancel(attempt.id)
        _at_once(self.store.tend_actors())

    async def wait_reply_soon(self, waiter: Waiter[Reply], wait_s: float) -> None:
        """Nothing: what is ready has run."""

    async def wait_reply(self, waiter: Waiter[Reply], wait_s: float) -> None:
        """Waiting would be for ever: what is ready has run."""
        if wait_s > 0:
            raise NotFinished(
                "the actor has not replied: its turn failed, or it is paused, or it waits for a "
                "time. In a test kit time passes only in kit.advance(seconds)"
            )

    def storing(self, jobs: Sequence[Submission]) -> AbstractContextManager[None]:
        """There is always room."""
        return nullcontext()

    def group_stored(self, part: GroupPart, answer: GroupSubmitted) -> None:
        """Expands what is ready of it at once. The next drain finds its jobs."""
        if answer.state is not GroupState.STAGING:
            self.groups_changed()

    def group_grew(self, jobs: Sequence[Submission], group: UUID) -> None:
        """Expands what is ready of it at once. The next drain finds its jobs."""
        self.groups_changed()

    def gate_opened(self) -> None:
        """What depends on it can go on."""
        self.groups_changed()

    def groups_changed(self, groups: Collection[UUID] = ()) -> None:
        """Does all that groups have to do, and stops what runs of those that are cancelled."""
        while _at_once(self.store.settle()).groups:
            pass
        self._tell_watchers()
        for attempt in _at_once(self.store.cancelling(self._id)):
            self._on_cancel(attempt.id)

    async def group_taken(self, ref: UUID | int) -> None:
        """Does at once what a pause or a cancel asks for."""
        self.groups_changed()

    def schedules_changed(self) -> None:
        """`claim` looks at all that are due."""

    def bulks_changed(self) -> None:
        """Does all of it at once."""
        while Turn.AGAIN in _at_once(self._service.bulks.look()):
            pass

    def bulk_advanced(self, advance: BulkAdvance) -> None:
        """Those that run are stopped. The next drain finds what is ready."""
        if advance.cancelled or advance.cancelling:
            self.cancels_made(advance.cancelled, advance.cancelling)

    def runs_here(self, job: UUID) -> bool:
        """The store in memory answers at once."""
        return False

    async def wait(self, waiter: Waiter[Ended], wait_s: float) -> None:
        """Waiting would be for ever, so it says why the job has not ended."""
        if wait_s > 0:
            raise NotFinished(
                f"{await self._told(min(waiter.missing))}. In a test kit jobs run only in "
                "kit.drain(), and time passes only in kit.advance(seconds)"
            )

    async def _told(self, waited: UUID) -> str:
        group = await self.store.group(waited)
        if group is not None:
            return f"group {group.number} ({group.name}) has not ended: {in_states(group)}"
        job = await self._service.job(waited)
        why = (await self._service.explain(job)).why
        return f"job {job.number} ({job.kind}) has not ended: {why}"

    def cancels_made(self, cancelled: Sequence[UUID], cancelling: Sequence[UUID]) -> None:
        """Those that run are stopped."""
        for job in cancelling:
            self._on_cancel(job)
        self.groups_changed()

    def drains_made(self) -> None:
        """Nothing: there is no fleet."""

    def jobs_appeared(self) -> None:
        """Nothing: the next drain finds them."""

    def seen(self, worker: WorkerView) -> WorkerView:
        """As the store knows it."""
        return worker

    def silent_s(self, other: DispatcherView) -> float:
        """None ever is."""
        return 0.0

    def shown(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """As they are: nothing is held ahead."""
        return tuple(jobs)

    def explained(self, job: Job, facts: Facts) -> Facts:
        """As the store knows them."""
        return facts

    # for the kit

    def job(self, ref: UUID | int) -> Job:
        """One job, whole."""
        return _at_once(self._service.job(ref))

    def open_gate(self, group: UUID, key: str, value: object) -> None:
        """Opens a gate of a group with a value; raises if it cannot be opened."""
        packed = pack(value, f"the value for gate '{key}'")
        request = m.OpenGate(0, uuid4(), group, key, packed)
        with self._lock:
            verdict = _at_once(self._service.open_gate(request))
        check_opened(f"group {group}", key, verdict)

    def submissions(self) -> list[Submission]:
        """What was submitted, by clients and by jobs, in the order of the jobs' numbers."""
        found = [row.submission for row in self.store._jobs.values()]
        return [job for job in found if not (job.options.turn or job.options.reads)]

    def claim(self, queue: str | None, kind: str | None = None) -> Attempt | None:
        """The next attempt, best first, of any kind or of one; None if nothing is ready."""
        with self._lock:
            while _at_once(self._service.schedules.look()) == 0:
                pass
            if _at_once(self.store.promote()).count or _at_once(self.store.expire()):
                self.groups_changed()
            slot = self._slot()
            handlers = self._handlers()
            lanes = tuple(
                lane.hash
                for lane in _at_once(self.store.lanes())
                if lane.kind in handlers
                and queue in (None, lane.queue)
                and kind in (None, lane.kind)
            )
            while claimed := self._pump(claims=[Claim(lanes, (slot,))]).claimed:
                if not claimed[0].paused:
                    return claimed[0]
                self._pump(finishes=[PutAside(*claimed[0].key)])
            return None

    def end(self, report: Report, claimed: Attempt, said: Sequence[LogEntry]) -> Job | None:
        """Records how an attempt ended, as a dispatcher would; answers the job after it.

        None if it was a turn of an actor, which leaves no job.
        """
        with self._lock:
            _at_once(self.store.log(said))
            kind = self.kinds().get(claimed.kind)
            recovers = kind is not None and kind.recovers
            finish = self._decisions.decide(report, claimed, WORKER, recovers=recovers)
            ended = self._pump(finishes=[finish])
            if ended.groups:
                self.groups_changed()
            if ended.watched:
                self._tell_watchers()
            if claimed.options.turn:
                _at_once(self.store.tend_actors())
            return _at_once(self.store.job(claimed.id))

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
        claims: Sequence[Claim] = (),
    ) -> BatchResult:
        pumped = _at_once(self.store.pump(self._id, Batch(finishes, claims=claims)))
        for job in pumped.stopping:
            self._on_cancel(job)
        return pumped

    def _tell_watchers(self) -> None:
        while _at_once(self.store.tell_watchers()).more:
            pass

    def _slot(self) -> SessionKey:
        """A place on the one worker there is, which serves whatever the apps have by now."""
        kinds = frozenset(self._handlers())
        if self._attended is None or self._attended[0] != kinds:
            answer = _at_once(self.store.attend(self._id, self._info()))
            assert isinstance(answer, Attended), answer
            self._attended = kinds, SessionKey(self._worker, answer.session)
        return self._attended[1]

    def _info(self) -> WorkerInfo:
        kinds = self.kinds()
        pools = dict.fromkeys((info.pool for info in kinds.values()), 1000)
        return WorkerInfo(id=self._worker, name=WORKER, host="test", kinds=kinds, pools=pools)


def _at_once(verb: Coroutine[Any, Any, T]) -> T:
    """What a verb of the store in memory answers: none of them ever waits."""
    try:
        verb.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise AssertionError("a verb of the store in memory waited")
