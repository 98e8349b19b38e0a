"""The service: everything that a client can ask of a dispatcher.

Each method takes a request and returns what OK carries in answer; how requests arrive is not known
here. `requests.py` calls the service for clients over ZeroMQ, the test kit calls it over a store in
memory. The `Runtime` is what the service needs beside the store: what only the running dispatcher
knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from math import isnan
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from msgspec import structs

from longshore._version import __version__
from longshore.config import DispatcherSettings
from longshore.core.access import (
    LOCAL,
    Asker,
    check_submit,
    check_watchers,
    submitted_by,
    with_submitter,
)
from longshore.core.additions import check_addition, naming_job
from longshore.core.capacity import capacity, declared, with_peaks
from longshore.core.group_limits import MAX_NODES_LISTED, MAX_PLACE, check_part, named
from longshore.core.keys import within_key
from longshore.core.lifecycle import TERMINAL
from longshore.core.limits import check_own_fields, check_submission
from longshore.core.retention import continued, requested
from longshore.core.why import why
from longshore.dispatcher.access_service import AccessService
from longshore.dispatcher.actor_service import ActorService, Caller
from longshore.dispatcher.bulk_service import BulkService
from longshore.dispatcher.changes import next_mark
from longshore.dispatcher.draining import drained
from longshore.dispatcher.file_service import FileService
from longshore.dispatcher.fleet_views import seen_dispatchers, seen_lanes
from longshore.dispatcher.limit_service import LimitService
from longshore.dispatcher.log_pages import log_page
from longshore.dispatcher.pruner import configured
from longshore.dispatcher.run_by import run_by, run_by_shapes
from longshore.dispatcher.runtime_protocol import Runtime as Runtime
from longshore.dispatcher.schedule_service import ScheduleService
from longshore.dispatcher.waiters import Waiter, Waiters
from longshore.errors import InvalidInput, LongshoreError, NotFound, UnknownKind, from_code
from longshore.model.access import AuditEntry
from longshore.model.actor import Reply
from longshore.model.depth import LaneView
from longshore.model.group import (
    NOT_RUN,
    GateVerdict,
    Group,
    GroupState,
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
    JobPage,
    Options,
    Refused,
    Submission,
    Submitted,
)
from longshore.model.log import LogPage
from longshore.model.program import FREE_KINDS
from longshore.model.retention import Pruned
from longshore.model.run_time import RunTime
from longshore.model.worker import (
    Capacity,
    KindInfo,
    QueueView,
    WorkerView,
)
from longshore.payload.callback_words import callback_ids, callback_view, purpose, words
from longshore.payload.described_programs import check_described
from longshore.payload.group_references import check_additions, check_dependencies
from longshore.payload.references import escaped_arguments, refuse_outside_a_group
from longshore.payload.schemas import check_arguments, nearest
from longshore.payload.values import check_packed, within
from longshore.ports import Store
from longshore.wire import messages as m

Answer = Submitted | Refused

_LIST_KEYS: Final = "`longshore group graph GROUP --no-fold` lists its keys"
_CANCELS: Final = (CancelVerdict.CANCELLED, CancelVerdict.CANCELLING)


class Service:
    """The use cases of clients, over one store."""

    def __init__(
        self,
        store: Store,
        settings: DispatcherSettings,
        dispatcher: UUID,
        utc: Callable[[], datetime],
        runtime: Runtime,
        waiters: Waiters[Ended],
        replies: Waiters[Reply],
    ) -> None:
        self.actors = ActorService(store, settings, runtime, replies)
        """What clients ask about actors."""
        self.access = AccessService(store, settings)
        """What clients ask about tokens and the audit."""
        self.limits = LimitService(store, runtime)
        self.files = FileService(store, settings, utc)
        """What clients and gateways ask about filesets."""
        self.schedules = ScheduleService(store, settings, runtime)
        self.bulks = BulkService(store, settings, runtime)
        self._asker = LOCAL
        self._store = store
        self._settings = settings
        self._dispatcher = dispatcher
        self._utc = utc
        self._runtime = runtime
        self._waiters = waiters
        self._long_requests: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    def asked_by(self, asker: Asker, entry: AuditEntry | None) -> Service:
        """The service for one who asks. What it changes leaves the entry, if one is given."""
        service = copy(self)
        service._asker = asker
        service._store = self._store if entry is None else self._store.audited(entry)
        service.actors = self.actors.asked_by(asker, service._store)
        service.access = self.access.asked_by(asker, service._store)
        service.limits = self.limits.asked_by(service._store)
        service.files = self.files.asked_by(asker, service._store)
        service.schedules = self.schedules.asked_by(asker, service._store)
        service.bulks = self.bulks.asked_by(asker, service._store)
        return service

    # submitting

    async def submit(self, request: m.Submit, caller: Caller) -> list[m.SubmitAnswer]:
        """Accepts jobs, or refuses some; `strict` refuses kinds that no live worker serves."""
        jobs = submitted_by(self._asker, request.jobs)
        self._runtime.check_room(len(jobs), sum(len(job.args) for job in jobs))
        kinds = await self._kinds(jobs, request.strict)
        refused = self._refused(request, caller, kinds)
        if not refused:
            return list(map(_submitted, await self._runtime.submit(jobs) if jobs else ()))
        good = [job for job in jobs if job.id not in refused]
        answers = iter(await self._runtime.submit(good) if good else [])
        return [refused.get(job.id) or _submitted(next(answers)) for job in jobs]

    async def _kinds(self, jobs: Sequence[Submission], strict: bool) -> Mapping[str, KindInfo]:
        """The known kinds; for a strict submit, those of other dispatchers' workers too."""
        kinds = self._runtime.kinds()
        if strict and any(job.kind not in kinds for job in jobs):
            for worker in await self._store.workers():
                if worker.alive:
                    kinds = {**worker.info.kinds, **kinds}
        return kinds

    def _refused(
        self, request: m.Submit, caller: Caller, kinds: Mapping[str, KindInfo]
    ) -> dict[UUID, m.SubmitAnswer]:
        """The answers to jobs that cannot be accepted. What neighbours share is checked once."""
        refused: dict[UUID, m.SubmitAnswer] = {}
        sound: Submission | None = None
        for job in request.jobs:
            try:
                if sound is not None and job.is_like(sound):
                    self._check_own(job, kinds)
                    continue
                refuse_outside_a_group(job)
                self._check(job, caller, request.strict, kinds)
                sound = None if job.kind in FREE_KINDS else job
            except LongshoreError as error:
                refused[job.id] = m.SubmitAnswer(job.id, code=error.code, message=str(error))
        return refused

    def _check(
        self, job: Submission, caller: Caller, strict: bool, kinds: Mapping[str, KindInfo]
    ) -> None:
        """Raises if this job cannot be accepted."""
        check_submission(job)
        check_submit(self._asker, job.queue, job.kind)
        check_watchers(self._asker, job.options.watchers)
        self._check_own(job, kinds)
        self._runtime.check_lane(job, caller)
        if strict and job.kind not in kinds:
            raise UnknownKind(
                f"no worker serves kind '{job.kind}'{nearest(job.kind, kinds)}; "
                "start one, or leave out strict (--strict) and it waits for one"
            )

    def _check_own(self, job: Submission, kinds: Mapping[str, KindInfo]) -> None:
        """Raises if a job cannot be accepted for what others that it `is_like` need not share."""
        check_own_fields(job)
        self._check_size(job)
        if job.kind in FREE_KINDS:
            check_described(job)
        elif (info := kinds.get(job.kind)) is not None:
            check_arguments(job, info)

    def _check_size(self, job: Submission) -> None:
        if len(job.args) > (limit := self._settings.max_value_bytes):
            within(job.args, f"the arguments of job '{job.kind}'", limit)

    async def submit_group(self, request: m.SubmitGroup, caller: Caller) -> GroupSubmitted:
        """Accepts some jobs of a group, all or none. With the last of them the group runs."""
        part, settings = request.part, self._settings
        jobs = [node.job for node in part.nodes]
        self._runtime.check_room(len(jobs), sum(len(job.args) for job in jobs))
        check_part(part, request.edges, settings.max_group_jobs, settings.max_group_edges)
        check_dependencies(part)
        run = run_by_shapes(part)
        kinds = await self._kinds([job for some in run.values() for job in some], request.strict)
        for place, node in enumerate(part.nodes):
            try:
                if (some := run.get(place)) is None:
                    self._check_own(node.job, kinds)
                    continue
                self._check_size(node.job)
                for job in some:
                    self._check(job, caller, request.strict, kinds)
            except LongshoreError as error:
                raise named(part.head, node.key, error) from None
        with self._runtime.storing(jobs):
            answer = await self._store.submit_group(part)
        if isinstance(answer, Refused):
            raise from_code(answer.code, answer.message)
        self._runtime.group_stored(part, answer)
        return answer

    async def add_to_group(self, request: m.AddToGroup, caller: Caller) -> GroupSubmitted:
        """Adds jobs to a group that runs or is paused, all or none. A repeat changes nothing."""
        nodes, settings = request.nodes, self._settings
        jobs = [node.job for node in nodes]
        self._runtime.check_room(len(jobs), sum(len(job.args) for job in jobs))
        check_addition(nodes)
        check_additions(nodes)
        run = {node.key: run_by(naming_job(node.key), node.job) for node in nodes}
        kinds = await self._kinds([job for some in run.values() for job in some], request.strict)
        for node in nodes:
            with naming_job(node.key):
                self._check_size(node.job)
                for job in run[node.key]:
                    self._check(job, caller, request.strict, kinds)
        with self._runtime.storing(jobs):
            answer = await self._store.add_to_group(
                request.group,
                request.id,
                nodes,
                max_group_jobs=settings.max_group_jobs,
                max_group_edges=settings.max_group_edges,
            )
        if answer is None:
            raise _no_group(request.group)
        if isinstance(answer, Refused):
            raise from_code(answer.code, answer.message)
        self._runtime.group_grew(jobs, answer.id)
        return answer

    # waiting

    async def wait(self, request: m.Wait) -> list[Ended]:
        """The outcomes of the jobs that ended: once any has, or `all`, or after `wait_s`."""
        jobs, wait_s = request.jobs, request.wait_s
        if isnan(wait_s):
            raise InvalidInput(f"wait_s is {wait_s}; give seconds, 0 or more")
        if request.all and len(jobs) > 1:
            # Often all of many jobs ended long ago: then there is nothing to wait for.
            found = await self._store.ended(jobs)
            if len(found) == len(jobs):
                return found
        waiter: Waiter[Ended] = Waiter(jobs, request.all)
        self._waiters.add(waiter)
        try:
            # The waiter hears of the end of a job that runs here: no need to ask the store.
            if len(jobs) != 1 or not self._runtime.runs_here(jobs[0]):
                added = self._waiters.added
                for ended in await self._store.ended(jobs):
                    self._waiters.tell_first(ended, added)
            if waiter.missing and not waiter.done.is_set():
                await self._runtime.wait(waiter, min(max(wait_s, 0.0), self._settings.max_wait_s))
        finally:
            self._waiters.remove(waiter, jobs)
        return list(waiter.ended.values())

    async def next_change(self, request: m.AwaitChange) -> m.ChangeMark:
        """The mark of now: once it is another than the one that was seen, or after `wait_s`."""
        most_s = self._settings.max_wait_s
        return await next_mark(request, self._dispatcher, self._runtime.changed_after, most_s)

    # showing

    async def job(self, ref: UUID | int) -> Job:
        """One job, whole, by its id or its number."""
        job = await self._store.job(ref)
        if job is None:
            raise NotFound(f"there is no job {ref}; `longshore jobs` lists those there are")
        [shown] = self._runtime.shown([job])
        return with_submitter(shown)

    async def jobs(self, request: m.ListJobs) -> JobPage:
        """Jobs, newest first."""
        for name, at in (("since", request.wanted.since), ("until", request.wanted.until)):
            if at is not None and at.utcoffset() is None:
                raise InvalidInput(
                    f"{name} {at.isoformat()} has no time zone; give a time with its zone"
                )
        page = await self._store.jobs(request.wanted)
        return JobPage(self._runtime.shown(page.jobs), page.stopped_at)

    async def why(self, request: m.Why) -> m.WhyAnswer:
        """Why a job is where it is, in words."""
        return await self.explain(await self.job(request.job))

    async def explain(self, job: Job) -> m.WhyAnswer:
        """Why this job is where it is, in words."""
        facts = self._runtime.explained(job, await self.limits.explain(job))
        key = "" if facts.node is None else facts.node.key
        text = "; ".join(filter(None, [why(job, facts), purpose(job), *await self._called(job)]))
        return m.WhyAnswer(job.id, job.number, job.state.value, text, key)

    async def _called(self, job: Job) -> list[str]:
        """What became of the callbacks of a job that has ended."""
        if job.state not in TERMINAL:
            return []
        ids = callback_ids(job.id, job.round, job.options.watchers)
        views = [callback_view(to, id, await self._store.job(id)) for to, id in ids]
        return [f"callback {words(one)}" for one in views]

    async def logs(self, request: m.ReadLogs) -> LogPage:
        """What a job's attempts said, in order, after a place in the log; of one if it is given."""
        return await log_page(self._store, await self.job(request.job), request)

    async def group(self, ref: UUID | int) -> Group:
        """One group, by its id or its number."""
        group = await self._store.group(ref)
        if group is None:
            raise _no_group(ref)
        return group

    async def groups(self, request: m.ListGroups) -> list[Group]:
        """Groups, newest first."""
        wanted = request.wanted
        if wanted.stalled:
            return await self._runtime.stalled_groups(wanted.limit)
        return await self._store.groups(structs.replace(wanted, limit=max(0, wanted.limit)))

    async def nodes(self, request: m.ListNodes) -> list[NodeView]:
        """The jobs of a group in its order, after a place in it; or those near some of its jobs."""
        if request.jobs:
            near = request.jobs, request.near, max(1, request.most)
            return await self._store.nodes_near(request.group, *near)
        after = min(max(-1, request.after), MAX_PLACE)
        nodes = await self._store.nodes(request.group, after, max(1, request.most))
        if not nodes and after < 0:
            await self.group(request.group)
        return nodes

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""
        return [self._runtime.seen(worker) for worker in await self._store.workers()]

    async def capacity(self) -> Capacity:
        """What the fleet can take."""
        return with_peaks(capacity(await self.workers()), await self._store.peaks())

    async def kind(self, kind: str) -> KindInfo | None:
        """What a worker advertises of a kind: of this dispatcher, or alive, or ended lately.

        So the dispatcher still knows a kind while its only worker restarts.
        """
        known = self._runtime.kinds().get(kind)
        if known is not None:
            return known
        return declared(kind, await self._store.workers())

    async def run_times(self, request: m.ListRunTimes) -> list[RunTime]:
        """How long jobs of these kinds run, where earlier runs tell."""
        return await self._store.run_times(request.kinds)

    async def dispatchers(self) -> list[m.DispatcherAnswer]:
        """Every dispatcher that has not retired."""
        lease_s = self._settings.dispatcher_lease_s
        return await seen_dispatchers(self._store, self._runtime.silent_s, lease_s)

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""
        return await self._store.queues()

    async def lanes(self) -> list[LaneView]:
        """Every lane that holds jobs, and what holds its ready ones back."""
        return await seen_lanes(self._store, await self.workers())

    async def hello(self) -> m.HelloAnswer:
        """Which dispatcher answers."""
        return m.HelloAnswer(m.PROTOCOL_VERSION, __version__, self._dispatcher, self._utc())

    # changing

    async def cancel(self, request: m.Cancel) -> list[m.CancelAnswer]:
        """Cancels what does not run, and has what runs stopped; answers in the order given."""
        verdicts = await self._store.cancel(request.jobs, by=self._asker.by)
        by_verdict = {
            wanted: [id for id, verdict in verdicts if id is not None and verdict is wanted]
            for wanted in (CancelVerdict.CANCELLED, CancelVerdict.CANCELLING)
        }
        self._runtime.cancels_made(*by_verdict.values())
        return [m.CancelAnswer(ref, *one) for ref, one in zip(request.jobs, verdicts, strict=True)]

    async def retry(self, request: m.Retry) -> list[m.RetryAnswer]:
        """Opens a new round for jobs that ended without success; answers in the order given.

        A repeated request gets the answer of the first, and opens no second round.
        """
        verdicts = await self._store.retry(request.jobs, self._asker.by, request.id)
        self._runtime.jobs_appeared()
        return [m.RetryAnswer(ref, *one) for ref, one in zip(request.jobs, verdicts, strict=True)]

    async def cancel_group(self, request: m.CancelGroup) -> GroupVerdict:
        """Cancels what has not ended of a group, or of a part. A repeat changes nothing."""
        if request.prefix:
            return await self._cancel_below(request.group, request.prefix)
        verdict = await self._store.cancel_group(request.group, by=self._asker.by)
        if verdict is GroupVerdict.CANCELLING:
            await self._runtime.group_taken(request.group)
        return verdict

    async def _cancel_below(self, ref: UUID | int, prefix: str) -> GroupVerdict:
        """Cancels the jobs of a group with this key, or below it.

        What these add meanwhile comes behind all others, so that this meets it too.
        """
        group = await self._store.group(ref)
        if group is None:
            return GroupVerdict.NOT_FOUND
        seen, met, cancelled = 0, False, False
        while nodes := await self._store.nodes(group.id, seen - 1, MAX_NODES_LISTED):
            seen += len(nodes)
            named = [node for node in nodes if within_key(prefix, node.key)]
            live = [node.job for node in named if node.state not in TERMINAL]
            met = met or bool(named)
            if live:
                cancelled = await self._cancel(live) or cancelled
        if not met:
            raise NotFound(
                f"group {ref} has no job '{prefix:.200}', and none below it; {_LIST_KEYS}"
            )
        return GroupVerdict.CANCELLING if cancelled else GroupVerdict.ALREADY_ENDED

    async def _cancel(self, jobs: Sequence[UUID | int]) -> bool:
        """Cancels jobs; whether that changed any."""
        answers = await self.cancel(m.Cancel(0, UUID(int=0), tuple(jobs)))
        return any(one.verdict in _CANCELS for one in answers)

    async def open_gate(self, request: m.OpenGate) -> GateVerdict:
        """Opens a gate of a group with a value. A repeat with the same value changes nothing."""
        value = request.value
        if value is not None:
            within(value, f"the value for gate '{request.key}'", self._settings.max_value_bytes)
            check_packed(value, f"the value for gate '{request.key}'")
        by = self._asker.by
        verdict = await self._store.open_gate(request.group, request.key, value, by=by)
        if verdict in (GateVerdict.OPENED, GateVerdict.ALREADY_OPEN):
            self._runtime.gate_opened()
        return verdict

    async def pause_group(self, request: m.PauseGroup) -> GroupVerdict:
        """Holds what has not begun of a group, or lets it go on. A repeat changes nothing."""
        verdict = await self._store.pause_group(request.group, request.paused)
        if verdict is GroupVerdict.PAUSED:
            await self._runtime.group_taken(request.group)
        else:
            self._runtime.groups_changed()
        return verdict

    async def retry_group(self, request: m.RetryGroup) -> RetryPlan:
        """Opens a new round of what did not succeed in a group, or of some jobs and all below.

        A repeated request gets the answer of the first, and opens no second round.
        """
        args = None if request.args is None else await self._new_arguments(request, request.args)
        # A client that waits asks again, and the retry of a large group takes seconds.
        async with self._long_requests.setdefault(request.id, asyncio.Lock()):
            plan = await self._store.retry_group(
                request.group,
                self._asker.by,
                request.id,
                keys=request.keys,
                args=args,
                dry_run=request.dry_run,
            )
        if plan is None:
            raise _no_group(request.group)
        if not request.dry_run:
            self._runtime.groups_changed()
        return plan.shortened()

    async def rerun_group(self, request: m.RerunGroup) -> RunPlan:
        """Takes a step towards a new run of a group. With the last step the new group runs.

        The new group has the id of the request, so that repeats make one group.
        """
        # A client that waits asks again, and the first look at a large group takes seconds.
        async with self._long_requests.setdefault(request.id, asyncio.Lock()):
            plan = await self._store.rerun_group(
                request.group,
                request.id,
                keys=request.keys,
                dry_run=request.dry_run,
                max_group_jobs=self._settings.max_group_jobs,
            )
        if plan is None:
            raise _no_group(request.group)
        if plan.run is not None and plan.run.state is not GroupState.STAGING:
            self._runtime.groups_changed([plan.run.id])
        return plan

    async def _new_arguments(self, request: m.RetryGroup, args: bytes) -> bytes:
        """The arguments with which a job of a group is run again, as they are stored."""
        if len(request.keys) != 1 or request.keys[0].endswith("/"):
            raise InvalidInput("other arguments are for one job: give its key, and no other")
        [key] = request.keys
        job = await self._job_of(await self.group(request.group), key)
        if job.kind in NOT_RUN:
            raise InvalidInput(f"no worker runs '{key}' ({job.kind}): it takes no arguments")
        check_submit(self._asker, job.queue, job.kind)
        given = Submission(job.id, job.kind, args, options=job.options)
        self._check_size(given)
        if job.kind in (kinds := self._runtime.kinds()):
            check_arguments(
                structs.replace(given, options=Options(raw=job.options.raw)), kinds[job.kind]
            )
        return escaped_arguments(given) if job.options.references else args

    async def _job_of(self, group: Group, key: str) -> Job:
        seen = 0
        while nodes := await self._store.nodes(group.id, seen - 1, MAX_NODES_LISTED):
            seen += len(nodes)
            for node in nodes:
                if node.key == key:
                    return await self.job(node.job)
        raise NotFound(f"group {group.number} has no job '{key:.200}'; {_LIST_KEYS}")

    async def drain(self, request: m.Drain) -> list[m.DrainAnswer]:
        """Has workers finish what they run and leave; answers in the order given."""
        workers = await self._store.workers()
        answers = [await drained(self._store, name, workers) for name in request.workers]
        self._runtime.drains_made()
        return answers

    async def pause(self, request: m.Pause) -> None:
        """Pauses a queue, or lets it go on."""
        await self._store.set_paused(request.queue, request.paused)
        self._runtime.jobs_appeared()

    async def prune(self, request: m.Prune) -> Pruned:
        """Removes ended jobs past their bounds, of the next thousand; after the last, groups."""
        bounds = configured(self._settings)
        kept = requested(bounds, request.states, request.older_than_s, request.keep)
        if request.dry_run:
            kept = continued(kept, request.counted)
        dry_run = request.dry_run
        step = await self._store.prune(kept, after=max(0, request.after), dry_run=dry_run)
        if not step.done:
            return step
        gone = await self._store.prune_groups(kept, dry_run=dry_run)
        return structs.replace(step, done=gone.done, groups=gone.groups, group_jobs=gone.jobs)


def _no_group(ref: UUID | int) -> NotFound:
    return NotFound(f"there is no group {ref}; `longshore groups` lists those there are")


def _submitted(answer: Answer) -> m.SubmitAnswer:
    if isinstance(answer, Refused):
        return m.SubmitAnswer(answer.id, code=answer.code, message=answer.message)
    return m.SubmitAnswer(answer.id, answer.number, answer.existing)
