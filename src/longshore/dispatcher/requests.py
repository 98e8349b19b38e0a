"""What clients ask for, and the answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from math import isnan
from uuid import UUID

from msgspec import structs

from longshore import _version
from longshore.core.capacity import capacity
from longshore.core.lanes import lane_of
from longshore.core.limits import check_submission
from longshore.core.logs import MOST_ENTRIES, page
from longshore.core.naming import workers_named
from longshore.core.retention import asked, raised
from longshore.core.schemas import check_arguments, nearest
from longshore.core.values import within
from longshore.core.why import why
from longshore.dispatcher.bounds import Underway, check_room
from longshore.dispatcher.junk import Junk
from longshore.dispatcher.keeper import Keeper
from longshore.dispatcher.plain_clients import PlainClients
from longshore.dispatcher.pruner import usual
from longshore.dispatcher.pulse import Alarm, Pulse
from longshore.dispatcher.pump import Answer, Pump
from longshore.dispatcher.roster import Roster
from longshore.dispatcher.settings import DispatcherSettings
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.errors import (
    InvalidInput,
    LongshoreError,
    NotFound,
    ProtocolError,
    StoreUnavailable,
    TooLarge,
    UnknownKind,
)
from longshore.model.job import CancelVerdict, Ended, Job, JobFilter, JobPage, Refused, Submission
from longshore.model.log import LogPage
from longshore.model.retention import Pruned
from longshore.model.worker import KindInfo, WorkerView
from longshore.ports import Clock, Link, Store
from longshore.wire import messages as m
from longshore.wire.codec import encode, from_client, ok, request_number
from longshore.wire.portions import MAX_MESSAGE_BYTES
from longshore.wire.reports import error_bytes

log = logging.getLogger("longshore.dispatcher")

MAX_ANSWER_BYTES = 16 * 1024 * 1024


class Requests:
    """Everything that clients say comes here; each request is answered once, with OK or ERR."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        *,
        clock: Clock,
        roster: Roster,
        pump: Pump,
        pulse: Pulse,
        waiters: Waiters,
        keeper: Keeper,
        plain: PlainClients,
        due: Alarm,
    ) -> None:
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._clock = clock
        self._roster = roster
        self._scheduler = roster.scheduler
        self._pump = pump
        self._pulse = pulse
        self._waiters = waiters
        self._keeper = keeper
        self._plain = plain
        self._due = due
        self._junk = Junk(clock, "clients")
        self._tasks: set[asyncio.Task[None]] = set()
        self._underway = Underway(settings)
        self.link: Link
        self.crew_trouble = ""

    def receive(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        """Messages came from clients."""
        for peer, frames in arrived:
            # Each by itself: what one peer sends must not cost the others their answers.
            try:
                if len(frames) == 2:
                    self._plain.receive(peer, frames)
                else:
                    self._begin(peer, from_client.decode(frames))
            except ProtocolError as error:
                self._refuse_junk(peer, frames, error)
            except Exception:
                self._junk.failed(peer)

    def _begin(self, peer: bytes, request: m.Request) -> None:
        refusal = self._underway.begin(peer, request)
        if refusal is not None:
            self._send(peer, _error(request.rid, refusal))
            return
        task = asyncio.create_task(self._answer(peer, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse_junk(self, peer: bytes, frames: list[bytes], error: ProtocolError) -> None:
        # Somebody who numbers requests learns what was wrong; anybody else is ignored.
        self._junk.dropped(peer, error)
        rid = request_number(frames)
        if rid is not None:
            self._send(peer, _error(rid, error))

    async def _answer(self, peer: bytes, request: m.Request) -> None:
        try:
            frames = _within_the_limit(request, ok(request.rid, await self._do(peer, request)))
        except StoreUnavailable as error:
            self._pulse.saw_outage(error)
            frames = _error(request.rid, error)
        except LongshoreError as error:
            frames = _error(request.rid, error)
        except Exception:
            log.exception("a request failed in a way that nobody foresaw: %r", type(request))
            broken = LongshoreError("the dispatcher failed to answer; its log says why")
            frames = _error(request.rid, broken)
        finally:
            self._underway.end(peer, request)
        self._send(peer, frames)

    def _send(self, peer: bytes, frames: list[bytes]) -> None:
        # A client that is gone, or too slow to read, asks again when it is back.
        self.link.send(peer, frames)

    async def _do(self, peer: bytes, request: m.Request) -> object:
        match request:
            case m.Submit():
                return await self._submit(peer, request)
            case m.Wait():
                return await self._wait(request)
            case m.Show():
                return await self._job(request.job)
            case m.Why():
                return await self._why(request.job)
            case m.ReadLogs():
                return await self._logs(request)
            case m.ListJobs():
                return await self._jobs(request.wanted)
            case m.Cancel():
                return await self._cancel(request.jobs)
            case m.Retry():
                return await self._retry(request.jobs)
            case m.ListWorkers():
                return await self._workers()
            case m.Drain():
                return await self._drain(request.workers)
            case m.ListDispatchers():
                return await self._dispatchers()
            case m.ShowCapacity():
                return capacity(await self._workers())
            case m.ShowKind():
                return await self._kind(request.kind)
            case m.ListQueues():
                return await self._store.queues()
            case m.Pause():
                await self._pause(request)
                return None
            case m.Prune():
                return await self._prune(request)
            case m.Hello():
                return self._hello()

    # submitting

    async def _submit(self, peer: bytes, request: m.Submit) -> list[m.SubmitAnswer]:
        size = sum(len(job.args) for job in request.jobs)
        check_room(self._settings, self._pump, len(request.jobs), size)
        kinds = await self._kinds(request)
        refused = {
            job.id: error
            for job in request.jobs
            if (error := self._fault(peer, job, request.strict, kinds)) is not None
        }
        good = [job for job in request.jobs if job.id not in refused]
        answers = iter(await self._pump.submit(good) if good else [])
        self._due.set_for(good)
        return [
            _refusal(job.id, refused[job.id]) if job.id in refused else _submitted(next(answers))
            for job in request.jobs
        ]

    async def _kinds(self, request: m.Submit) -> dict[str, KindInfo]:
        """What is known of kinds; a strict submit asks what other dispatchers' workers serve."""
        kinds = self._roster.kinds()
        if request.strict and any(job.kind not in kinds for job in request.jobs):
            for worker in await self._store.workers():
                if worker.alive:
                    kinds = {**worker.info.kinds, **kinds}
        return kinds

    async def _kind(self, kind: str) -> KindInfo | None:
        """What a worker advertises of a kind: of this dispatcher, or alive, or ended lately.

        So what an app declares is not forgotten while its only worker is being restarted.
        """
        known = self._roster.kinds().get(kind)
        if known is not None:
            return known
        able = [worker for worker in await self._store.workers() if kind in worker.info.kinds]
        newest = max(able, key=lambda worker: (worker.alive, worker.attended_at), default=None)
        return newest.info.kinds[kind] if newest is not None else None

    def _fault(
        self, peer: bytes, job: Submission, strict: bool, kinds: dict[str, KindInfo]
    ) -> LongshoreError | None:
        try:
            check_submission(job)
            within(job.args, f"the arguments of job '{job.kind}'", self._settings.max_value_bytes)
            self._keeper.lane_limits.check(job, peer)
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

    async def _wait(self, request: m.Wait) -> list[Ended]:
        if isnan(request.wait_s):
            raise InvalidInput(f"wait_s is {request.wait_s}; give seconds, 0 or more")
        if request.all and len(request.jobs) > 1:
            # Of many jobs most have ended long ago: there is nothing to wait for.
            found = await self._store.ended(request.jobs)
            if len(found) == len(request.jobs):
                return _within_a_message(found)
        waiter = Waiter(request.jobs, request.all)
        self._waiters.add(waiter)
        try:
            for ended in await self._store.ended(request.jobs):
                self._waiters.tell(ended)
            wait_s = min(max(request.wait_s, 0.0), self._settings.max_wait_s)
            if waiter.missing and not waiter.done.is_set():
                await asyncio.wait_for(waiter.done.wait(), wait_s)
        except TimeoutError:
            pass
        finally:
            self._waiters.remove(waiter, request.jobs)
        return _within_a_message(list(waiter.ended.values()))

    # showing

    async def _job(self, ref: UUID | int) -> Job:
        job = await self._store.job(ref)
        if job is None:
            raise NotFound(f"there is no job {ref}; `longshore jobs` lists those there are")
        return job

    async def _jobs(self, wanted: JobFilter) -> JobPage:
        if wanted.since is not None and wanted.since.utcoffset() is None:
            raise InvalidInput(
                f"since {wanted.since.isoformat()} has no time zone; give a time with its zone"
            )
        return await self._store.jobs(wanted)

    async def _why(self, ref: UUID | int) -> m.WhyAnswer:
        job = await self._job(ref)
        facts = await self._store.explain(job)
        facts = structs.replace(
            facts,
            workers=tuple(map(self._keeper.seen, facts.workers)),
            lane_limit=self._keeper.lane_limits.limit_of(lane_of(job.queue, job.kind, job.target)),
            crew_trouble=self.crew_trouble,
        )
        return m.WhyAnswer(job.id, job.number, job.state.value, why(job, facts))

    async def _logs(self, request: m.ReadLogs) -> LogPage:
        # The job first: once it has ended, all that it said is there.
        job = await self._job(request.job)
        most = max(1, min(request.most, MOST_ENTRIES))
        token = job.token if request.attempt == job.attempt else None
        entries = await self._store.logs(job.id, token=token, after=request.after, most=most)
        return page(entries, most, job, request.after, request.attempt)

    async def _workers(self) -> list[WorkerView]:
        return [self._keeper.seen(worker) for worker in await self._store.workers()]

    async def _dispatchers(self) -> list[m.DispatcherAnswer]:
        workers = Counter(one.dispatcher for one in await self._store.workers() if one.alive)
        return [
            m.DispatcherAnswer(
                id=other.id,
                name=other.name,
                started_at=other.started_at,
                renewed_no=other.renewed_no,
                workers=workers[other.id],
                alive=self._keeper.silent_s(other) < self._settings.dispatcher_lease_s,
                silent_s=self._keeper.silent_s(other),
            )
            for other in await self._store.dispatchers()
        ]

    def _hello(self) -> m.HelloAnswer:
        return m.HelloAnswer(
            m.PROTOCOL_VERSION, _version.__version__, self._dispatcher, self._clock.utc()
        )

    # changing

    async def _cancel(self, refs: Sequence[UUID | int]) -> list[m.CancelAnswer]:
        verdicts = await self._store.cancel(refs, by="a client")
        self._keeper.cancels.set_in(0)
        ended = [id for id, verdict in verdicts if id and verdict is CancelVerdict.CANCELLED]
        if any(self._waiters.is_awaited(id) for id in ended):
            self._keeper.outcomes.set_in(0)
        return [
            m.CancelAnswer(ref, id, verdict)
            for ref, (id, verdict) in zip(refs, verdicts, strict=True)
        ]

    async def _retry(self, refs: Sequence[UUID | int]) -> list[m.RetryAnswer]:
        verdicts = await self._store.retry(refs, by="a client")
        self._stir()
        return [
            m.RetryAnswer(ref, id, verdict)
            for ref, (id, verdict) in zip(refs, verdicts, strict=True)
        ]

    async def _drain(self, texts: Sequence[str]) -> list[m.DrainAnswer]:
        workers = await self._store.workers()
        answers = [await self._drain_one(text, workers_named(text, workers)) for text in texts]
        self._keeper.cancels.set_in(0)
        return answers

    async def _drain_one(self, text: str, found: Sequence[WorkerView]) -> m.DrainAnswer:
        if len(found) != 1:
            verdict = m.DrainVerdict.AMBIGUOUS if found else m.DrainVerdict.NOT_FOUND
            return m.DrainAnswer(text, None, "", verdict)
        [worker] = found
        if not worker.alive or not await self._store.set_draining(worker.info.id, True):
            verdict = m.DrainVerdict.GONE
        elif worker.draining:
            verdict = m.DrainVerdict.ALREADY_DRAINING
        else:
            verdict = m.DrainVerdict.DRAINING
        return m.DrainAnswer(text, worker.info.id, worker.info.name, verdict)

    async def _pause(self, request: m.Pause) -> None:
        await self._store.set_paused(request.queue, request.paused)
        self._stir()

    async def _prune(self, request: m.Prune) -> Pruned:
        bounds = usual(self._settings)
        kept = asked(bounds, request.states, request.older_than_s, request.keep)
        if request.dry_run:
            kept = raised(kept, request.counted)
        after = max(0, request.after)
        return await self._store.prune(kept, after=after, dry_run=request.dry_run)

    def _stir(self) -> None:
        self._scheduler.lanes.mark_all()
        self._pump.wake()

    async def close(self) -> None:
        """Ends what still waits; clients ask another dispatcher."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _within_a_message(ended: list[Ended]) -> list[Ended]:
    """As many outcomes as one message can carry; the rest is asked for again."""
    total = 0
    for index, one in enumerate(ended):
        total += len(one.result or b"") + (error_bytes(one.error) if one.error else 0)
        if index and total > MAX_ANSWER_BYTES:
            return ended[:index]
    return ended


def _within_the_limit(request: m.Request, frames: list[bytes]) -> list[bytes]:
    """The answer, unless the client's end would drop the connection over it."""
    if (size := len(frames[-1])) > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"the answer to {type(request).__name__.upper()} takes {size:,} bytes, more than the "
            f"{MAX_MESSAGE_BYTES:,} of a message; ask for less at a time"
        )
    return frames


def _error(rid: int, error: LongshoreError) -> list[bytes]:
    return encode(m.Err(rid, error.code, str(error)))


def _refusal(job: UUID, error: LongshoreError) -> m.SubmitAnswer:
    return m.SubmitAnswer(job, code=error.code, message=str(error))


def _submitted(answer: Answer) -> m.SubmitAnswer:
    if isinstance(answer, Refused):
        return m.SubmitAnswer(answer.id, code=answer.code, message=answer.message)
    return m.SubmitAnswer(answer.id, answer.number, answer.existing)
