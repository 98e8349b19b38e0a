"""What a client asks of dispatchers."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from longshore.client.actor_requests import ActorRequests
from longshore.client.adapters import Dialler
from longshore.client.bulk_requests import BulkRequests
from longshore.client.conversation import DEFAULT_ADDRESS as DEFAULT_ADDRESS
from longshore.client.conversation import Connect, Conversation
from longshore.client.conversation import parse_addresses as parse_addresses
from longshore.client.file_requests import FileRequests
from longshore.client.ids import fresh_id
from longshore.client.limit_requests import LimitRequests
from longshore.client.run_times import KnownRunTimes
from longshore.client.schedule_requests import ScheduleRequests
from longshore.client.web_requests import WebRequests
from longshore.core.group_limits import MAX_NODES_LISTED
from longshore.core.limits import MAX_DRAINED, MAX_REQUEST_JOBS
from longshore.errors import (
    ProtocolError,
    StoreUnavailable,
    Unavailable,
)
from longshore.model.access import AskerView, Audited, AuditFilter, NewToken, Token
from longshore.model.depth import LaneView
from longshore.model.group import (
    AddedNode,
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupState,
    GroupSubmitted,
    GroupVerdict,
    Near,
    NodeView,
    RetryPlan,
    RunPlan,
)
from longshore.model.job import Ended, Job, JobFilter, JobPage, JobState, Submission
from longshore.model.log import LogPage
from longshore.model.retention import Pruned
from longshore.model.run_time import RunTime
from longshore.model.worker import Capacity, KindInfo, QueueView, WorkerView
from longshore.wire import access_messages, messages
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


MAX_CHUNK_JOBS = 500
MAX_CHUNK_BYTES = 16 * 1024 * 1024
CHUNKS_IN_FLIGHT = 8
LOOK_AGAIN_S = 0.5
DECISION_S = 10.0
"""For so long a dispatcher may look at a large group before it begins to run it anew."""
REOPENING_S = 30.0
"""For so long a dispatcher may take to open a large group again: it answers when all is done."""

T = TypeVar("T")

_LATER = frozenset({Unavailable.code, StoreUnavailable.code})
"""What is said of a job that is sound, and may be accepted later."""


class Connection(Conversation):
    """The requests of a client, each a method."""

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
        token: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        super().__init__(
            addresses,
            timeout_s=timeout_s,
            try_s=try_s,
            pause_s=pause_s,
            connect=connect,
            dialler=dialler,
            token=token,
        )
        self._new_id = new_id
        self._wait_slice_s = wait_slice_s
        self._run_times = KnownRunTimes()

    async def submit(
        self, jobs: tuple[Submission, ...], strict: bool = False
    ) -> tuple[SubmitAnswer, ...]:
        """Submits jobs that make one message; one answer for each, in order.

        It submits jobs again that may be accepted later, until `timeout_s` has passed.
        """
        answers = _one_each(jobs, await self._ask(messages.Submit, jobs, strict))
        if any(answer.code in _LATER for answer in answers):
            return await self._submit_again(jobs, answers, strict)
        return answers

    async def _submit_again(
        self, jobs: tuple[Submission, ...], answers: Sequence[SubmitAnswer], strict: bool
    ) -> tuple[SubmitAnswer, ...]:
        """Submits the jobs again whose answers say that it may help; answers for all of them."""
        latest = list(answers)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.timeout_s
        while loop.time() < until:
            places = [at for at, answer in enumerate(latest) if answer.code in _LATER]
            if not places:
                break
            await asyncio.sleep(self._pause_s)
            some = tuple(jobs[at] for at in places)
            found = _one_each(some, await self._ask(messages.Submit, some, strict))
            for at, answer in zip(places, found, strict=True):
                latest[at] = answer
        return tuple(latest)

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

    async def next_change(
        self, seen: messages.ChangeMark | None, wait_s: float
    ) -> messages.ChangeMark:
        """How many changes a dispatcher knows of: once it is not as seen, or after `wait_s`."""
        request = messages.AwaitChange(next(self._rids), seen, wait_s)
        answer: messages.ChangeMark = await self._exchange(request, wait_s)
        return answer

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

    async def add_to_group(
        self, id: UUID, ref: Ref, nodes: Sequence[AddedNode], strict: bool = False
    ) -> GroupSubmitted:
        """Adds jobs to a group that runs, all or none, once for this id."""
        request = messages.AddToGroup
        answer: GroupSubmitted = await self._ask(request, id, ref, tuple(nodes), strict)
        return answer

    async def group(self, ref: Ref) -> Group:
        """One group with its counts; raises `NotFound` if there is none."""
        answer: Group = await self._ask(messages.ShowGroup, ref)
        return answer

    async def groups(self, wanted: GroupFilter | None = None) -> tuple[Group, ...]:
        """Groups, newest first, without counts."""
        answer: tuple[Group, ...] = await self._ask(messages.ListGroups, wanted or GroupFilter())
        return answer

    async def nodes(
        self, group: UUID, after: int = -1, most: int = MAX_NODES_LISTED
    ) -> tuple[NodeView, ...]:
        """Some jobs of a group in its order, after a place in it."""
        answer: tuple[NodeView, ...] = await self._ask(messages.ListNodes, group, after, most)
        return answer

    async def nodes_near(
        self, group: UUID, jobs: Sequence[UUID], near: Near = Near.THESE
    ) -> tuple[NodeView, ...]:
        """The first thousand jobs of a group that are near these, which may be as many."""
        listed = -1, MAX_NODES_LISTED, tuple(jobs), near
        answer: tuple[NodeView, ...] = await self._ask(messages.ListNodes, group, *listed)
        return answer

    async def all_nodes(self, group: UUID) -> AsyncGenerator[NodeView, None]:
        """The jobs of a group in its order, asked for some at a time."""
        seen, most = 0, MAX_NODES_LISTED
        while True:
            nodes = await self.nodes(group, seen - 1, most)
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
        ids = next(self._rids), self._new_id()
        request = messages.RetryGroup(*ids, ref, tuple(keys), dry_run, args)
        answer: RetryPlan = await self._exchange(request, within_s=REOPENING_S)
        return answer

    async def rerun_group(
        self,
        ref: Ref,
        keys: Sequence[str] = (),
        *,
        dry_run: bool = False,
        run: UUID | None = None,
    ) -> RunPlan:
        """Runs a group anew that has ended; what succeeded is taken over into the new group.

        The dispatcher copies a large group in steps, so this asks until all of it is there. `run`
        is the id of the new group: whoever gives it can ask again.
        """
        run = run or self._new_id()
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

    @property
    def web(self) -> WebRequests:
        """The requests of a gateway about web workers."""
        return WebRequests(self._exchange, partial(next, self._rids), self._new_id)

    @property
    def limits(self) -> LimitRequests:
        """The requests about limits."""
        return LimitRequests(self._exchange, partial(next, self._rids), self._new_id)

    @property
    def bulks(self) -> BulkRequests:
        """The requests about bulks."""
        return BulkRequests(self._exchange, partial(next, self._rids), self._new_id)

    @property
    def files(self) -> FileRequests:
        """The requests about filesets; those about blobs are a gateway's."""
        return FileRequests(self._exchange, partial(next, self._rids), self._new_id)

    @property
    def schedules(self) -> ScheduleRequests:
        """The requests about schedules."""
        return ScheduleRequests(self._exchange, partial(next, self._rids), self._new_id)

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

    async def lanes(self) -> tuple[LaneView, ...]:
        """The lanes that hold jobs, and what holds their ready ones back."""
        answer: tuple[LaneView, ...] = await self._ask(messages.ListLanes)
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
        step, id = Pruned({}, 0, False), self._new_id()
        while not step.done:
            so_far = dict(removed) if dry_run else {}
            bounds = (tuple(states), older_than_s, keep)
            step = await self._ask(messages.Prune, id, *bounds, step.up_to, dry_run, so_far)
            removed.update(step.removed)
            groups, group_jobs = groups + step.groups, group_jobs + step.group_jobs
        return Pruned(dict(removed), step.up_to, True, groups, group_jobs)

    async def create_token(self, new: NewToken) -> Token:
        """Has a token kept, of which the dispatcher gets the hash alone."""
        answer: Token = await self._ask(access_messages.CreateToken, new)
        return answer

    async def revoke_token(self, token: str) -> Token:
        """Makes a token worthless, by its name or its id."""
        answer: Token = await self._ask(access_messages.RevokeToken, self._new_id(), token)
        return answer

    async def tokens(self) -> tuple[Token, ...]:
        """All tokens, those too that are worth nothing any more."""
        answer: tuple[Token, ...] = await self._ask(access_messages.ListTokens)
        return answer

    async def asker(self) -> AskerView:
        """Who asks over this connection, as a dispatcher knows it."""
        answer: AskerView = await self._ask(access_messages.ShowAsker)
        return answer

    async def audit(self, wanted: AuditFilter) -> tuple[Audited, ...]:
        """Who asked for which changes, newest first."""
        answer: tuple[Audited, ...] = await self._ask(access_messages.ListAudit, wanted)
        return answer

    async def hello(self) -> HelloAnswer:
        """The dispatcher that answers."""
        answer: HelloAnswer = await self._ask(messages.Hello)
        return answer

    async def _ask_in_parts(
        self, make: Callable[[int, UUID, tuple[T, ...]], Request], items: Sequence[T], most: int
    ) -> tuple[Any, ...]:
        """The answers for all items, in as many requests as it takes."""
        answers: list[Any] = []
        for part in in_parts(items, most):
            answers += await self._ask(make, self._new_id(), part)
        return tuple(answers)


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
    if job.options.labels:
        text += sum(map(len, job.options.labels))
    return 512 + len(job.args) + 4 * text
