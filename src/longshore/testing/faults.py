"""A store that fails when told to: before a call, or after it was committed.

    store = FaultyStore(real, scripted(("pump", Fault.AFTER), ("harvest", Fault.BEFORE)))

A fault before the call changes nothing; one after it loses only the answer. The caller sees the
same `StoreUnavailable` for both, as with a real database.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import partial
from random import Random
from typing import TypeVar
from uuid import UUID

from longshore.core.why import Facts
from longshore.errors import StoreUnavailable
from longshore.model.actor import (
    Actor,
    ActorFilter,
    ActorPage,
    ActorVerdict,
    Delivered,
    MailAction,
    MailView,
    NewActor,
    Reply,
    Started,
    TurnView,
    UndeliveredSend,
)
from longshore.model.attempt import Attempt
from longshore.model.batch import MAX_GROUP_EDGES, MAX_GROUP_JOBS
from longshore.model.callback import USUAL_TERMS, CallbackTerms
from longshore.model.depth import LaneDepth
from longshore.model.fair import FairUse
from longshore.model.finding import Finding
from longshore.model.group import (
    MOST_COPIED,
    AddedNode,
    GateVerdict,
    Group,
    GroupFilter,
    GroupPart,
    GroupProgress,
    GroupSubmitted,
    GroupVerdict,
    Near,
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
from longshore.model.limits import KeyView, LimitRule, LimitsOpened
from longshore.model.log import KeptEntry
from longshore.model.retention import GroupsPruned, Pruned, Retention
from longshore.model.run_time import RunTime
from longshore.model.usage import Peak
from longshore.model.web_worker import (
    WebAttendance,
    WebNote,
    WebRegistered,
    WebRegistration,
    WebWorker,
)
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
from longshore.ports import (
    Batch,
    BatchResult,
    Harvested,
    Hint,
    Promoted,
    Settled,
    Store,
    Tended,
    Told,
)
from longshore.testing.faulty_access import FaultyAccess
from longshore.testing.faulty_bulks import FaultyBulks
from longshore.testing.faulty_files import FaultyFiles
from longshore.testing.faulty_schedules import FaultySchedules

Answer = TypeVar("Answer")


class Fault(StrEnum):
    """When a call fails: with nothing done, or with everything done and the answer lost."""

    BEFORE = "before"
    AFTER = "after"


Plan = Callable[[str], Fault | None]
"""Asked once for every call, by the verb's name."""


def healthy(verb: str) -> Fault | None:
    """Nothing ever fails."""
    return None


def scripted(*steps: tuple[str, Fault | None]) -> Plan:
    """Each step is for the next call of its verb; a verb whose steps are used up is healthy."""
    by_verb: defaultdict[str, deque[Fault | None]] = defaultdict(deque)
    for verb, fault in steps:
        by_verb[verb].append(fault)

    def plan(verb: str) -> Fault | None:
        left = by_verb[verb]
        return left.popleft() if left else None

    return plan


def seeded(seed: int, rate: float, verbs: Collection[str] | None = None) -> Plan:
    """A share of the calls fails, half of them before and half after; the same for a seed."""
    random = Random(seed)

    def plan(verb: str) -> Fault | None:
        if verbs is not None and verb not in verbs:
            return None
        if random.random() >= rate:
            return None
        return random.choice((Fault.BEFORE, Fault.AFTER))

    return plan


class FaultyStore(FaultyAccess, FaultyBulks, FaultyFiles, FaultySchedules):
    """Any store, with the faults of a plan. `plan` may be exchanged while it is in use."""

    def __init__(self, store: Store, plan: Plan = healthy) -> None:
        self.store = store
        self.plan = plan

    @property
    def is_serial(self) -> bool:
        return self.store.is_serial

    async def _call(self, verb: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        fault = self.plan(verb)
        if fault is Fault.BEFORE:
            raise StoreUnavailable(f"the store was away before {verb}; try again")
        answer = await call()
        if fault is Fault.AFTER:
            raise StoreUnavailable(f"the answer to {verb} was lost; try again")
        return answer

    async def open(self) -> None:
        await self._call("open", self.store.open)

    async def close(self) -> None:
        """Never fails: whoever closes has no use for an error."""
        await self.store.close()

    async def migrate(self) -> tuple[int, int]:
        return await self._call("migrate", self.store.migrate)

    async def pump(self, dispatcher: UUID, batch: Batch) -> BatchResult:
        return await self._call("pump", lambda: self.store.pump(dispatcher, batch))

    async def renew(self, dispatcher: UUID, name: str) -> None:
        await self._call("renew", lambda: self.store.renew(dispatcher, name))

    async def retire(self, dispatcher: UUID) -> None:
        await self._call("retire", lambda: self.store.retire(dispatcher))

    async def attend(
        self,
        dispatcher: UUID,
        info: WorkerInfo,
        *,
        draining: bool = False,
        session: int | None = None,
    ) -> Attended | Gone | Late:
        return await self._call(
            "attend",
            lambda: self.store.attend(dispatcher, info, draining=draining, session=session),
        )

    async def placed(self, slots: Sequence[SessionKey]) -> list[Attempt]:
        return await self._call("placed", lambda: self.store.placed(slots))

    async def set_draining(self, worker: UUID, draining: bool) -> bool:
        return await self._call("set_draining", lambda: self.store.set_draining(worker, draining))

    async def draining(self, dispatcher: UUID) -> list[UUID]:
        return await self._call("draining", lambda: self.store.draining(dispatcher))

    async def beat(self, dispatcher: UUID, beats: Mapping[UUID, Stats]) -> None:
        await self._call("beat", lambda: self.store.beat(dispatcher, beats))

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
        return await self._call(
            "harvest",
            lambda: self.store.harvest(
                worker,
                session,
                why,
                crash=crash,
                crash_limit=crash_limit,
                undelivered=undelivered,
            ),
        )

    async def sweep(self, crash_limit: int) -> Harvested:
        return await self._call("sweep", lambda: self.store.sweep(crash_limit))

    async def promote(self, most: int = 1000) -> Promoted:
        return await self._call("promote", lambda: self.store.promote(most))

    async def expire(self, most: int = 1000) -> list[Ended]:
        return await self._call("expire", lambda: self.store.expire(most))

    async def overdue(self, most: int = 1000) -> list[Attempt]:
        return await self._call("overdue", lambda: self.store.overdue(most))

    async def cancel(
        self, refs: Sequence[UUID | int], by: str = ""
    ) -> list[tuple[UUID | None, CancelVerdict]]:
        return await self._call("cancel", lambda: self.store.cancel(refs, by))

    async def cancelling(self, dispatcher: UUID) -> list[Attempt]:
        return await self._call("cancelling", lambda: self.store.cancelling(dispatcher))

    async def retry(
        self, refs: Sequence[UUID | int], by: str = "", request: UUID | None = None
    ) -> list[tuple[UUID | None, RetryVerdict]]:
        return await self._call("retry", lambda: self.store.retry(refs, by, request))

    async def log(self, entries: Sequence[LogEntry]) -> None:
        await self._call("log", lambda: self.store.log(entries))

    async def set_paused(self, queue: str, paused: bool) -> None:
        await self._call("set_paused", lambda: self.store.set_paused(queue, paused))

    async def add_queue_waits(self, waits: Mapping[tuple[str, str], float]) -> None:
        await self._call("add_queue_waits", lambda: self.store.add_queue_waits(waits))

    async def set_limit(self, rule: LimitRule) -> None:
        await self._call("set_limit", lambda: self.store.set_limit(rule))

    async def remove_limit(self, pattern: str) -> bool:
        return await self._call("remove_limit", lambda: self.store.remove_limit(pattern))

    async def limit_rules(self) -> list[LimitRule]:
        return await self._call("limit_rules", self.store.limit_rules)

    async def limit_key(self, key: str) -> KeyView:
        return await self._call("limit_key", lambda: self.store.limit_key(key))

    async def limit_keys(
        self, after: str = "", most: int = 25, *, waited_for: bool = False
    ) -> list[str]:
        return await self._call(
            "limit_keys", lambda: self.store.limit_keys(after, most, waited_for=waited_for)
        )

    async def open_limits(self, after: str = "", most: int = 1000) -> LimitsOpened:
        return await self._call("open_limits", lambda: self.store.open_limits(after, most))

    async def note_use(self, uses: Sequence[FairUse]) -> None:
        await self._call("note_use", lambda: self.store.note_use(uses))

    async def fair_place(self, job: UUID) -> tuple[int, bool]:
        return await self._call("fair_place", lambda: self.store.fair_place(job))

    async def submit_group(self, part: GroupPart) -> GroupSubmitted | Refused:
        return await self._call("submit_group", lambda: self.store.submit_group(part))

    async def settle(
        self,
        groups: Collection[UUID] = (),
        most: int = 1000,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> Settled:
        return await self._call("settle", lambda: self.store.settle(groups, most, max_group_jobs))

    async def open_gate(
        self, ref: UUID | int, key: str, value: bytes | None = None, by: str = ""
    ) -> GateVerdict:
        return await self._call("open_gate", lambda: self.store.open_gate(ref, key, value, by))

    async def cancel_group(self, ref: UUID | int, by: str = "") -> GroupVerdict:
        return await self._call("cancel_group", lambda: self.store.cancel_group(ref, by))

    async def add_to_group(
        self,
        ref: UUID | int,
        request: UUID,
        nodes: Sequence[AddedNode],
        *,
        max_group_jobs: int = MAX_GROUP_JOBS,
        max_group_edges: int = MAX_GROUP_EDGES,
    ) -> GroupSubmitted | Refused | None:
        return await self._call(
            "add_to_group",
            lambda: self.store.add_to_group(
                ref,
                request,
                nodes,
                max_group_jobs=max_group_jobs,
                max_group_edges=max_group_edges,
            ),
        )

    async def pause_group(self, ref: UUID | int, paused: bool) -> GroupVerdict:
        return await self._call("pause_group", lambda: self.store.pause_group(ref, paused))

    async def is_sweeping(self, ref: UUID | int) -> bool:
        return await self._call("is_sweeping", lambda: self.store.is_sweeping(ref))

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
        return await self._call(
            "retry_group",
            lambda: self.store.retry_group(ref, by, request, keys=keys, args=args, dry_run=dry_run),
        )

    async def rerun_group(
        self,
        ref: UUID | int,
        run: UUID,
        *,
        keys: Sequence[str] = (),
        dry_run: bool = False,
        most: int = MOST_COPIED,
        max_group_jobs: int = MAX_GROUP_JOBS,
    ) -> RunPlan | None:
        return await self._call(
            "rerun_group",
            lambda: self.store.rerun_group(
                ref, run, keys=keys, dry_run=dry_run, most=most, max_group_jobs=max_group_jobs
            ),
        )

    async def cancel_abandoned(self, older_than_s: float, most: int = 100) -> list[UUID]:
        return await self._call(
            "cancel_abandoned", lambda: self.store.cancel_abandoned(older_than_s, most)
        )

    async def examine_group(self, group: UUID, *, repair: bool = False) -> list[Finding]:
        return await self._call(
            "examine_group", lambda: self.store.examine_group(group, repair=repair)
        )

    async def group_progress(self, after: int = 0, most: int = 1000) -> list[GroupProgress]:
        return await self._call("group_progress", lambda: self.store.group_progress(after, most))

    async def group(self, ref: UUID | int) -> Group | None:
        return await self._call("group", lambda: self.store.group(ref))

    async def groups(self, wanted: GroupFilter) -> list[Group]:
        return await self._call("groups", lambda: self.store.groups(wanted))

    async def nodes(self, group: UUID, after: int = -1, most: int = 1000) -> list[NodeView]:
        return await self._call("nodes", lambda: self.store.nodes(group, after, most))

    async def nodes_near(
        self, group: UUID, jobs: Sequence[UUID], near: Near, most: int = 1000
    ) -> list[NodeView]:
        return await self._call(
            "nodes_near", lambda: self.store.nodes_near(group, jobs, near, most)
        )

    async def start_actors(
        self, actors: Sequence[NewActor], *, reuse: bool = False
    ) -> list[Started | Refused]:
        return await self._call(
            "start_actors", lambda: self.store.start_actors(actors, reuse=reuse)
        )

    async def replies(self, ids: Sequence[UUID]) -> list[Reply]:
        return await self._call("replies", lambda: self.store.replies(ids))

    async def pause_actor(self, type: str, key: str, paused: bool) -> ActorVerdict:
        return await self._call("pause_actor", lambda: self.store.pause_actor(type, key, paused))

    async def stop_actor(self, type: str, key: str, by: str = "") -> ActorVerdict:
        return await self._call("stop_actor", lambda: self.store.stop_actor(type, key, by))

    async def edit_actor(
        self,
        type: str,
        key: str,
        state: bytes,
        version: int,
        *,
        turn: int | None = None,
        restart: bool = False,
        listed: Mapping[str, str] | None = None,
    ) -> ActorVerdict:
        return await self._call(
            "edit_actor",
            lambda: self.store.edit_actor(
                type, key, state, version, turn=turn, restart=restart, listed=listed
            ),
        )

    async def sort_mail(self, type: str, key: str, number: int, action: MailAction) -> ActorVerdict:
        return await self._call(
            "sort_mail", lambda: self.store.sort_mail(type, key, number, action)
        )

    async def callback_secret(self) -> bytes:
        return await self._call("callback_secret", self.store.callback_secret)

    async def tell_watchers(self, most: int = 100, callbacks: CallbackTerms = USUAL_TERMS) -> Told:
        telling = partial(self.store.tell_watchers, most, callbacks)
        return await self._call("tell_watchers", telling)

    async def tend_actors(self, most: int = 1000) -> Tended:
        return await self._call("tend_actors", lambda: self.store.tend_actors(most))

    async def deliver_sends(self, most: int = 1000) -> Delivered:
        return await self._call("deliver_sends", lambda: self.store.deliver_sends(most))

    async def undelivered_sends(self, most: int = 100) -> list[UndeliveredSend]:
        return await self._call("undelivered_sends", lambda: self.store.undelivered_sends(most))

    async def sort_undelivered(self, id: UUID, *, again: bool) -> bool:
        return await self._call(
            "sort_undelivered", lambda: self.store.sort_undelivered(id, again=again)
        )

    async def actor(self, type: str, key: str) -> Actor | None:
        return await self._call("actor", lambda: self.store.actor(type, key))

    async def actors(self, wanted: ActorFilter) -> ActorPage:
        return await self._call("actors", lambda: self.store.actors(wanted))

    async def turns(self, type: str, key: str) -> list[TurnView]:
        return await self._call("turns", lambda: self.store.turns(type, key))

    async def mail(self, type: str, key: str, most: int = 100) -> list[MailView]:
        return await self._call("mail", lambda: self.store.mail(type, key, most))

    async def note_runs(self, times: Sequence[RunTime]) -> None:
        return await self._call("note_runs", lambda: self.store.note_runs(times))

    async def note_peaks(self, peaks: Sequence[Peak]) -> None:
        await self._call("note_peaks", lambda: self.store.note_peaks(peaks))

    async def peaks(self) -> list[Peak]:
        return await self._call("peaks", self.store.peaks)

    async def run_times(self, kinds: Sequence[str]) -> list[RunTime]:
        return await self._call("run_times", lambda: self.store.run_times(kinds))

    async def prune(
        self, kept: Retention, *, after: int = 0, most: int = 1000, dry_run: bool = False
    ) -> Pruned:
        return await self._call(
            "prune", lambda: self.store.prune(kept, after=after, most=most, dry_run=dry_run)
        )

    async def prune_groups(
        self, kept: Retention, *, most: int = 1000, dry_run: bool = False
    ) -> GroupsPruned:
        return await self._call(
            "prune_groups", lambda: self.store.prune_groups(kept, most=most, dry_run=dry_run)
        )

    async def forget_workers(self, older_than_s: float, most: int = 1000) -> int:
        return await self._call(
            "forget_workers", lambda: self.store.forget_workers(older_than_s, most)
        )

    async def job(self, ref: UUID | int) -> Job | None:
        return await self._call("job", lambda: self.store.job(ref))

    async def jobs(self, wanted: JobFilter) -> JobPage:
        return await self._call("jobs", lambda: self.store.jobs(wanted))

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        return await self._call(
            "logs", lambda: self.store.logs(ref, token=token, after=after, most=most)
        )

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        return await self._call("ended", lambda: self.store.ended(ids))

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        return await self._call("lanes", lambda: self.store.lanes(most, served))

    async def forget_lanes(self, most: int = 1000) -> int:
        return await self._call("forget_lanes", lambda: self.store.forget_lanes(most))

    async def queues(self) -> list[QueueView]:
        return await self._call("queues", self.store.queues)

    async def depths(self) -> list[LaneDepth]:
        return await self._call("depths", self.store.depths)

    async def workers(self) -> list[WorkerView]:
        return await self._call("workers", self.store.workers)

    async def dispatchers(self) -> list[DispatcherView]:
        return await self._call("dispatchers", self.store.dispatchers)

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        await self._call("forget_dispatcher", lambda: self.store.forget_dispatcher(dispatcher))

    async def explain(self, job: Job) -> Facts:
        return await self._call("explain", lambda: self.store.explain(job))

    def tell_others(self) -> None:
        self.store.tell_others()

    def watch(self) -> AsyncIterator[Hint]:
        """Passed on: hints may be lost anyway."""
        return self.store.watch()

    async def register_web_worker(
        self, id: UUID, said: WebRegistration, most: int, crash_limit: int | None = None
    ) -> WebRegistered | Refused:
        return await self._call(
            "register_web_worker",
            lambda: self.store.register_web_worker(id, said, most, crash_limit),
        )

    async def resign_web_worker(self, id: UUID) -> Harvested | None:
        return await self._call("resign_web_worker", lambda: self.store.resign_web_worker(id))

    async def adopt_web_workers(self, gateway: UUID, most: int = 100) -> list[WebWorker]:
        return await self._call(
            "adopt_web_workers", lambda: self.store.adopt_web_workers(gateway, most)
        )

    async def note_web_workers(self, gateway: UUID, notes: Sequence[WebNote]) -> None:
        await self._call("note_web_workers", lambda: self.store.note_web_workers(gateway, notes))

    async def web_attendance(self, gateway: UUID) -> WebAttendance:
        return await self._call("web_attendance", lambda: self.store.web_attendance(gateway))

    async def web_workers(self, ids: Sequence[UUID] | None = None) -> list[WebWorker]:
        return await self._call("web_workers", lambda: self.store.web_workers(ids))
