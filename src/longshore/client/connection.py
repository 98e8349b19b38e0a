"""A client's conversation with the first dispatcher that answers.

Every request may be repeated: a submit is known by its jobs' ids, the others only read, or ask for
a state that asking again does not change. So the connection sends a request that gets no answer
within `try_s` again, with the same `rid`, to the next address, until `timeout_s` has passed. The
first answer counts. One socket, the current one, carries all requests at once. A socket that was
left stays open only while a request waits for its answer. Closing it drops what it could not send,
so that nothing is delivered after its sender has given up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import UUID

from longshore.client.actor_requests import ActorRequests
from longshore.client.adapters import Dialler
from longshore.client.ids import fresh_id
from longshore.client.run_times import KnownRunTimes
from longshore.core.group_limits import MAX_NODES_LISTED
from longshore.core.limits import MAX_DRAINED, MAX_REQUEST_JOBS
from longshore.errors import (
    ConfigError,
    DispatcherUnavailable,
    LongshoreError,
    ProtocolError,
    Unavailable,
    from_code,
)
from longshore.model.group import (
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import Ended, Job, JobFilter, JobPage, JobState, Submission
from longshore.model.log import LogPage
from longshore.model.retention import Pruned
from longshore.model.run_time import RunTime
from longshore.model.worker import Capacity, KindInfo, QueueView, WorkerView
from longshore.ports import Link, OnMessages
from longshore.wire import codec, messages
from longshore.wire.messages import (
    CancelAnswer,
    DispatcherAnswer,
    DrainAnswer,
    HelloAnswer,
    Request,
    RetryAnswer,
    SubmitAnswer,
    WhyAnswer,
)

Ref = UUID | int
"""What names a job: its id, or its number."""

Connect = Callable[[str, OnMessages], Link]
"""Opens a link to an address."""

DEFAULT_ADDRESS = "tcp://127.0.0.1:7702"
MAX_CHUNK_JOBS = 500
MAX_CHUNK_BYTES = 16 * 1024 * 1024
CHUNKS_IN_FLIGHT = 8
LOOK_AGAIN_S = 0.5
DECISION_S = 10.0
"""For so long a dispatcher may look at a large group before it begins to run it anew."""

P = ParamSpec("P")
T = TypeVar("T")


def parse_addresses(connect: str | Iterable[str]) -> tuple[str, ...]:
    """The addresses in a comma-separated text or a list, each like tcp://127.0.0.1:7702."""
    parts = connect.split(",") if isinstance(connect, str) else connect
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise ConfigError(f"no dispatcher to connect to: give an address like {DEFAULT_ADDRESS}")
    for address in addresses:
        if "://" not in address:
            raise ConfigError(f"'{address}' is not an address; it looks like {DEFAULT_ADDRESS}")
    return addresses


class _Line:
    """One socket, the requests that wait for its answer, and when it last sent a message."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard_at = float("-inf")
        self.owes: set[int] = set()
        self.link: Link


class _Exchange:
    """One request until it is answered."""

    def __init__(
        self, request: Request, answer: asyncio.Future[Any], patience_s: float, deadline: float
    ) -> None:
        self.request = request
        self.frames = codec.encode(request)
        self.answer = answer
        self.patience_s = patience_s
        self.deadline = deadline
        self.begun_at = answer.get_loop().time()
        self.sent_at = self.begun_at
        self.line: _Line | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.refusal: LongshoreError | None = None

    def fail(self, error: LongshoreError) -> None:
        """Ends the exchange without an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Connection:
    """Asks one dispatcher of several at a time, on the event loop of its first use."""

    def __init__(
        self,
        addresses: str | Iterable[str] = DEFAULT_ADDRESS,
        *,
        timeout_s: float = 10.0,
        try_s: float = 2.5,
        wait_slice_s: float = 5.0,
        pause_s: float = 0.25,
        connect: Connect | None = None,
        dialler: Dialler | None = None,
        new_id: Callable[[], UUID] = fresh_id,
    ) -> None:
        self.addresses = parse_addresses(addresses)
        self._new_id = new_id
        self.timeout_s = timeout_s
        self._try_s = min(try_s, timeout_s)
        self._wait_slice_s = wait_slice_s
        self._pause_s = pause_s
        self._dialler = dialler or Dialler()
        self._connect = connect or self._dialler.connect
        self._rids = itertools.count(1)
        self._turn = 0
        self._line: _Line | None = None
        self._lines: list[_Line] = []
        self._pending: dict[int, _Exchange] = {}
        self._noise = ""
        self._run_times = KnownRunTimes()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # what can be asked

    async def submit(
        self, jobs: tuple[Submission, ...], strict: bool = False
    ) -> tuple[SubmitAnswer, ...]:
        """Submits jobs that make one message; one answer for each, in order."""
        return _one_each(jobs, await self._ask(messages.Submit, jobs, strict))

    async def wait(
        self, ids: Sequence[UUID], wait_s: float, every: bool = False
    ) -> tuple[Ended, ...]:
        """The outcomes of jobs that ended: once any has, or `every` one, or `wait_s` passed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        missing = dict.fromkeys(ids)
        found: list[Ended] = []
        while missing:
            left_s = max(0.0, deadline - loop.time())
            ended = await self._wait_once(tuple(missing), min(left_s, self._wait_slice_s), every)
            found += ended
            for outcome in ended:
                missing.pop(outcome.id, None)
            if (ended and not every) or left_s <= self._wait_slice_s:
                break
        return tuple(found)

    async def _wait_once(
        self, jobs: tuple[UUID, ...], slice_s: float, every: bool
    ) -> tuple[Ended, ...]:
        parts = in_parts(jobs, MAX_REQUEST_JOBS)
        if len(parts) == 1:
            return await self._wait_for(jobs, slice_s, every)
        if not every:
            return await self._any(parts, slice_s)
        loop = asyncio.get_running_loop()
        until = loop.time() + slice_s
        found: list[Ended] = []
        for part in parts:
            found += await self._wait_for(part, max(0.0, until - loop.time()), True)
        return tuple(found)

    async def _any(self, parts: Sequence[tuple[UUID, ...]], slice_s: float) -> tuple[Ended, ...]:
        """Looks at all jobs again and again, and waits for the first thousand in between."""
        loop = asyncio.get_running_loop()
        until = loop.time() + slice_s
        while True:
            looks = [await self._wait_for(part, 0.0, False) for part in parts]
            found = tuple(itertools.chain.from_iterable(looks))
            left_s = until - loop.time()
            if not found and left_s > 0:
                found = await self._wait_for(parts[0], min(left_s, LOOK_AGAIN_S), False)
            if found or left_s <= 0:
                return found

    async def _wait_for(
        self, jobs: tuple[UUID, ...], slice_s: float, every: bool
    ) -> tuple[Ended, ...]:
        request = messages.Wait(next(self._rids), jobs, slice_s, every)
        answer: tuple[Ended, ...] = await self._exchange(request, within_s=slice_s)
        return answer

    async def job(self, ref: Ref) -> Job:
        """One whole job; raises `NotFound` if there is none."""
        answer: Job = await self._ask(messages.Show, ref)
        return answer

    async def why(self, ref: Ref) -> WhyAnswer:
        """Why a job is where it is, in words."""
        answer: WhyAnswer = await self._ask(messages.Why, ref)
        return answer

    async def logs(
        self, ref: Ref, *, attempt: int | None = None, after: tuple[int, int] = (0, 0)
    ) -> LogPage:
        """A page of a job's log; the next page is `after` the end of this one."""
        answer: LogPage = await self._ask(messages.ReadLogs, ref, attempt, after)
        return answer

    async def jobs(self, wanted: JobFilter | None = None) -> JobPage:
        """Jobs, newest first, without their arguments, results and history.

        Those that run have their progress and step.
        """
        answer: JobPage = await self._ask(messages.ListJobs, wanted or JobFilter())
        return answer

    async def cancel(self, refs: Sequence[Ref]) -> tuple[CancelAnswer, ...]:
        """Cancels jobs; each verdict says what that did."""
        return await self._ask_in_parts(messages.Cancel, refs, MAX_REQUEST_JOBS)

    async def retry(self, refs: Sequence[Ref]) -> tuple[RetryAnswer, ...]:
        """Runs jobs again that ended without success; each verdict says what that did."""
        return await self._ask_in_parts(messages.Retry, refs, MAX_REQUEST_JOBS)

    async def submit_group(
        self, part: GroupPart, edges: int, strict: bool = False
    ) -> GroupSubmitted:
        """Submits some jobs of a group that has so many dependencies in all."""
        answer: GroupSubmitted = await self._ask(messages.SubmitGroup, part, edges, strict)
        return answer

    async def group(self, ref: Ref) -> Group:
        """One group with its counts; raises `NotFound` if there is none."""
        answer: Group = await self._ask(messages.ShowGroup, ref)
        return answer

    async def groups(self, wanted: GroupFilter | None = None) -> tuple[Group, ...]:
        """Groups, newest first, without counts."""
        answer: tuple[Group, ...] = await self._ask(messages.ListGroups, wanted or GroupFilter())
        return answer

    async def all_nodes(self, group: UUID) -> AsyncGenerator[NodeView, None]:
        """The jobs of a group in its order, asked for some at a time."""
        seen, most = 0, MAX_NODES_LISTED
        while True:
            nodes = await self._ask(messages.ListNodes, group, seen - 1, most)
            for node in nodes:
                yield node
            seen += len(nodes)
            if len(nodes) < most:
                break

    async def cancel_group(self, ref: Ref, prefix: str = "") -> GroupVerdict:
        """Cancels what has not ended of a group, or of a key and all below it.

        The verdict says what that did.
        """
        answer: GroupVerdict = await self._ask(messages.CancelGroup, self._new_id(), ref, prefix)
        return answer

    async def open_gate(self, ref: Ref, key: str, value: bytes | None = None) -> GateVerdict:
        """Opens a gate of a group with a value; the verdict says what that did."""
        answer: GateVerdict = await self._ask(messages.OpenGate, self._new_id(), ref, key, value)
        return answer

    async def pause_group(self, ref: Ref, paused: bool = True) -> GroupVerdict:
        """Holds what has not begun of a group, or lets it go on; the verdict says what that did."""
        answer: GroupVerdict = await self._ask(messages.PauseGroup, self._new_id(), ref, paused)
        return answer

    async def retry_group(
        self,
        ref: Ref,
        keys: Sequence[str] = (),
        *,
        dry_run: bool = False,
        args: bytes | None = None,
    ) -> RetryPlan:
        """Runs again what did not succeed of a group, or these keys and all below them.

        With `args`, the one job in `keys` gets these arguments.
        """
        answer: RetryPlan = await self._ask(
            messages.RetryGroup, self._new_id(), ref, tuple(keys), dry_run, args
        )
        return answer

    async def rerun_group(
        self, ref: Ref, keys: Sequence[str] = (), *, dry_run: bool = False
    ) -> RunPlan:
        """Runs a group anew that has ended; what succeeded is taken over into the new group.

        The dispatcher copies a large group in steps, so this asks until all of it is there.
        """
        run = self._new_id()
        while True:
            request = messages.RerunGroup(next(self._rids), run, ref, tuple(keys), dry_run)
            plan: RunPlan = await self._exchange(request, within_s=DECISION_S)
            if plan.run is None or plan.run.state is not GroupState.STAGING:
                return plan

    @property
    def actors(self) -> ActorRequests:
        """The requests about actors."""
        next_rid = partial(next, self._rids)
        return ActorRequests(self._exchange, next_rid, self._new_id, self._wait_slice_s)

    async def workers(self) -> tuple[WorkerView, ...]:
        """The workers, and those that ended lately."""
        answer: tuple[WorkerView, ...] = await self._ask(messages.ListWorkers)
        return answer

    async def drain(self, workers: Sequence[str]) -> tuple[DrainAnswer, ...]:
        """Makes workers finish their jobs and leave; each verdict says what that did."""
        return await self._ask_in_parts(messages.Drain, workers, MAX_DRAINED)

    async def dispatchers(self) -> tuple[DispatcherAnswer, ...]:
        """The dispatchers."""
        answer: tuple[DispatcherAnswer, ...] = await self._ask(messages.ListDispatchers)
        return answer

    async def capacity(self) -> Capacity:
        """How many more jobs the workers can take."""
        answer: Capacity = await self._ask(messages.ShowCapacity)
        return answer

    async def kind(self, kind: str) -> KindInfo | None:
        """What live workers advertise of a kind, or else those that ended lately, or None."""
        answer: KindInfo | None = await self._ask(messages.ShowKind, kind)
        return answer

    async def run_times(self, kinds: Collection[str]) -> dict[str, RunTime]:
        """How long jobs of these kinds run, where earlier runs tell; at most a minute old."""
        now = asyncio.get_running_loop().time()
        if missing := self._run_times.missing(kinds, now):
            answer = await self._ask(messages.ListRunTimes, missing)
            self._run_times.learn(missing, answer, now)
        return self._run_times.of(kinds)

    async def queues(self) -> tuple[QueueView, ...]:
        """The queues, and how many jobs they hold."""
        answer: tuple[QueueView, ...] = await self._ask(messages.ListQueues)
        return answer

    async def pause(self, queue: str, paused: bool = True) -> None:
        """Pauses a queue, or lets it go on."""
        await self._ask(messages.Pause, self._new_id(), queue, paused)

    async def prune(
        self,
        states: Sequence[JobState] = (),
        *,
        older_than_s: float | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Removes ended jobs and groups past these bounds, or the dispatcher's own; counts them.

        A part whose answer got lost is removed too, but not counted.
        """
        removed: Counter[JobState] = Counter()
        groups = group_jobs = 0
        step = Pruned({}, 0, False)
        while not step.done:
            so_far = dict(removed) if dry_run else {}
            bounds = (tuple(states), older_than_s, keep)
            step = await self._ask(
                messages.Prune, self._new_id(), *bounds, step.up_to, dry_run, so_far
            )
            removed.update(step.removed)
            groups, group_jobs = groups + step.groups, group_jobs + step.group_jobs
        return Pruned(dict(removed), step.up_to, True, groups, group_jobs)

    async def hello(self) -> HelloAnswer:
        """The dispatcher that answers."""
        answer: HelloAnswer = await self._ask(messages.Hello)
        return answer

    def close(self) -> None:
        """Closes every socket; requests under way fail as unavailable."""
        self._closed = True
        for exchange in list(self._pending.values()):
            exchange.fail(DispatcherUnavailable("the connection was closed before an answer came"))
        for line in self._lines:
            line.link.close()
        self._lines.clear()
        self._line = None
        self._dialler.close()

    # how it is asked

    async def _ask_in_parts(
        self, make: Callable[[int, UUID, tuple[T, ...]], Request], items: Sequence[T], most: int
    ) -> tuple[Any, ...]:
        """The answers for all items, in as many requests as it takes."""
        answers: list[Any] = []
        for part in in_parts(items, most):
            answers += await self._ask(make, self._new_id(), part)
        return tuple(answers)

    async def _ask(
        self, make: Callable[Concatenate[int, P], Request], *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """The answer to a request of these fields."""
        return await self._exchange(make(next(self._rids), *args, **kwargs))

    async def _exchange(self, request: Request, within_s: float = 0.0) -> Any:
        """The answer to a request that may take the dispatcher `within_s` to give."""
        if self._closed:
            raise DispatcherUnavailable("the connection is closed; make a new one")
        loop = asyncio.get_running_loop()
        exchange = _Exchange(
            request,
            loop.create_future(),
            patience_s=self._try_s + within_s,
            deadline=loop.time() + self.timeout_s + within_s,
        )
        self._pending[request.rid] = exchange
        try:
            self._send(exchange)
            return codec.answer_to(request, await exchange.answer)
        finally:
            self._forget(exchange)

    def _send(self, exchange: _Exchange) -> None:
        """Sends a request on the current line, and again when its patience is at an end."""
        line = self._current()
        now = asyncio.get_running_loop().time()
        exchange.line, exchange.sent_at = line, now
        line.owes.add(exchange.request.rid)
        line.link.send(b"", exchange.frames)
        self._look_again(exchange, exchange.patience_s)

    def _look_again(self, exchange: _Exchange, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        if exchange.timer is not None:
            exchange.timer.cancel()
        due_s = max(0.0, min(after_s, exchange.deadline - loop.time()))
        exchange.timer = loop.call_later(due_s, self._again, exchange)

    def _again(self, exchange: _Exchange) -> None:
        """Repeats a request without an answer, elsewhere if its dispatcher is silent."""
        if exchange.answer.done():
            return
        if asyncio.get_running_loop().time() >= exchange.deadline:
            exchange.fail(exchange.refusal or self._unavailable(exchange))
            return
        line = exchange.line
        try:
            if line is not None and line.heard_at < exchange.sent_at and len(self.addresses) > 1:
                self._leave(line)
            else:
                self._send(exchange)
        except ConfigError as error:
            exchange.fail(error)

    def _leave(self, line: _Line) -> None:
        """Moves on to the next address, with every request that waits for this silent one."""
        self._turn_from(line)
        for exchange in list(self._pending.values()):
            if exchange.line is line and not exchange.answer.done():
                self._send(exchange)

    def _turn_from(self, line: _Line | None) -> None:
        if line is self._line and len(self.addresses) > 1:
            self._line = None
            self._turn += 1

    def _current(self) -> _Line:
        if self._line is None:
            line = _Line(self.addresses[self._turn % len(self.addresses)])
            line.link = self._connect(line.address, lambda arrived: self._heard(line, arrived))
            self._lines.append(line)
            self._line = line
        return self._line

    def _heard(self, line: _Line, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        line.heard_at = asyncio.get_running_loop().time()
        for _, frames in arrived:
            try:
                message = codec.to_client.decode(frames)
            except ProtocolError as error:
                self._noise = f"; what answers does not speak our protocol ({error})"
                continue
            exchange = self._pending.get(message.rid)
            if exchange is not None and not exchange.answer.done():
                self._answered(exchange, message)

    def _answered(self, exchange: _Exchange, message: messages.Answer) -> None:
        if isinstance(message, messages.Ok):
            exchange.answer.set_result(message)
            return
        error = from_code(message.code, message.message)
        if isinstance(error, Unavailable):
            self._postpone(exchange, error)
        else:
            exchange.fail(error)

    def _postpone(self, exchange: _Exchange, error: Unavailable) -> None:
        """Asks again after a pause, elsewhere: this dispatcher may be cut off from its store."""
        if exchange.refusal is None:
            until = asyncio.get_running_loop().time() + self.timeout_s
            exchange.deadline = min(exchange.deadline, until)
        exchange.refusal = error
        self._turn_from(exchange.line)
        self._look_again(exchange, self._pause_s)

    def _forget(self, exchange: _Exchange) -> None:
        """Closes lines that no request waits for, except the current one if it answers."""
        rid = exchange.request.rid
        self._pending.pop(rid, None)
        if exchange.timer is not None:
            exchange.timer.cancel()
        for line in list(self._lines):
            line.owes.discard(rid)
            if line.owes or (line is self._line and line.heard_at >= exchange.sent_at):
                continue
            line.link.close()
            self._lines.remove(line)
            if line is self._line:
                self._line = None

    def _unavailable(self, exchange: _Exchange) -> DispatcherUnavailable:
        if any(line.heard_at >= exchange.begun_at for line in self._lines):
            return DispatcherUnavailable(
                f"no answer within {self.timeout_s:g} s, although a dispatcher is there: it is "
                "overloaded, or waits for its store; try again"
            )
        advice = self._dialler.advice(self.addresses)
        return DispatcherUnavailable(
            f"no dispatcher answers at {', '.join(self.addresses)}{self._noise}; is `longshore up` "
            f"running? (gave up after {self.timeout_s:g} s; clients connect to the address that "
            f"its --frontend names){advice}"
        )


def in_parts(items: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """The items in order, at most `most` in a part; one empty part if there are none."""
    starts = range(0, max(len(items), 1), most)
    return [tuple(items[start : start + most]) for start in starts]


async def all_of(coroutines: Iterable[Any]) -> list[Any]:
    """All the answers, in order; the first error cancels the rest."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _one_each(
    jobs: Sequence[Submission], answers: tuple[SubmitAnswer, ...]
) -> tuple[SubmitAnswer, ...]:
    if len(answers) != len(jobs):
        raise ProtocolError(f"{len(jobs)} jobs were submitted, {len(answers)} were answered")
    return answers


def wire_size(job: Submission) -> int:
    """A little more than a job's bytes on the wire."""
    text = len(job.kind) + len(job.queue) + len(job.target) + len(job.unique_key or "")
    return 512 + len(job.args) + 4 * (text + sum(map(len, job.options.labels)))
