"""The half of `MemoryStore` that only looks: what is remembered, and how it is shown."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime
from itertools import count
from uuid import UUID

from msgspec import structs

from longshore.core.arg_terms import has_args, has_text
from longshore.core.dependencies import Waiting
from longshore.core.key_views import KeyWaits
from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.core.usage import Period
from longshore.core.waits import waited
from longshore.core.why import Facts, HeldBack
from longshore.model.batch import MAX_GROUP_JOBS
from longshore.model.bulk import BulkRun
from longshore.model.depth import LaneDepth
from longshore.model.fair import Account, FairKey
from longshore.model.group import ENDED_GROUPS
from longshore.model.job import Ended, Job, JobFilter, JobPage, JobState, LogKind
from longshore.model.limits import LimitRule
from longshore.model.log import KeptEntry
from longshore.model.notice import Notice
from longshore.model.run_time import RunTime
from longshore.model.schedule import Made, Schedule
from longshore.model.waited import MOST_PAUSES, Kept, Pause
from longshore.model.web_worker import WebWorker
from longshore.model.worker import DispatcherView, Lane, QueueView, WorkerView
from longshore.ports import Hint
from longshore.store.listing import most_looked_at, must_walk, page
from longshore.store.rows import unpack_progress, unpack_step, utc_now
from longshore.testing.memory_file_rows import FileRows
from longshore.testing.memory_rows import ActorRow, GroupRow, JobRow, NodeRow, Note, Receipt

MAX_AHEAD = 1000
SHOWN_ENDED_WORKERS = 20

_BAD = TERMINAL - {JobState.SUCCEEDED}


class MemoryReads:
    """Everything the store remembers, and the verbs that change none of it."""

    def __init__(
        self, utc: Callable[[], datetime] = utc_now, *, expiry_margin_s: float = 10.0
    ) -> None:
        self._utc = utc
        self._now = utc()
        self._expiry_margin_s = expiry_margin_s
        self._jobs: dict[UUID, JobRow] = {}
        self._workers: dict[UUID, WorkerView] = {}
        self._dispatchers: dict[UUID, DispatcherView] = {}
        self._logs: dict[tuple[UUID, int, int], KeptEntry] = {}
        self._paused: dict[str, bool] = {}
        self._limit_rules: dict[str, LimitRule] = {}
        self._even_at: dict[str, int] = {}
        """For keys with a rate, when all that began would have begun at an even pace."""
        self._accounts: dict[FairKey, Account] = {}
        self._with_turns: set[UUID] = set()
        """The jobs with fair keys that got their turns."""
        self._key_waits: dict[str, KeyWaits] = {}
        self._pauses: defaultdict[str | UUID, list[Pause]] = defaultdict(list)
        """The pauses of queues and of groups."""
        self._queue_waits: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._emptied: dict[int, Lane] = {}
        self._last_number = 0
        self._tokens = count(1)
        self._watchers: list[_Watcher] = []
        self._run_times: dict[str, tuple[RunTime, datetime]] = {}
        self._peaks: dict[str, tuple[Period, Period, datetime]] = {}
        self._groups: dict[UUID, GroupRow] = {}
        self._actors: dict[tuple[str, str], ActorRow] = {}
        self._receipts: dict[UUID, Receipt] = {}
        self._touched: set[tuple[str, str]] = set()
        """The actors whose next turn is to be looked at."""
        self._heard: Counter[int] = Counter()
        """The jobs that hear of commits of actors, by lane."""
        self._stopped: set[tuple[str, str]] = set()
        """Those of them that stopped themselves."""
        self._max_group_jobs = MAX_GROUP_JOBS
        self._unsettled: list[Note] = []
        self._notices: list[Notice] = []
        self._secret = b"secret"
        self._web: dict[UUID, WebWorker] = {}
        self._web_gateways: set[UUID] = set()
        self._files = FileRows()
        self._schedules: dict[UUID, Schedule] = {}
        self._fires: dict[UUID, dict[datetime, Made]] = {}
        self._bulks: dict[int, BulkRun] = {}
        self._sent_groups: set[UUID] = set()
        """The groups that turns submit in this batch."""
        """Nodes of which those that depend on them have not heard."""
        self._woken: list[JobRow] = []
        self._made_bytes: dict[UUID, int] = {}
        """The jobs of groups that became ready since the pump last began."""
        self._made: list[tuple[JobRow, Counter[int]]] = []
        """The turns that were made ready since then, and where each was counted."""

    def _find(self, ref: UUID | int) -> JobRow | None:
        if isinstance(ref, UUID):
            return self._jobs.get(ref)
        return next((row for row in self._jobs.values() if row.job.number == ref), None)

    def _node(self, job: UUID) -> NodeRow:
        """The node of a job that is in a group."""
        node = self._jobs[job].node
        assert node is not None, f"job {job} is in no group"
        return node

    def _waiting(self, row: JobRow) -> Waiting:
        return self._node(row.job.id).waiting(row.job.run_at, self._now)

    def _find_group(self, ref: UUID | int) -> GroupRow | None:
        shown = (one for one in self._groups.values() if not one.is_gone)
        return next((one for one in shown if ref in (one.head.id, one.number)), None)

    def _where(self, wanted: Callable[[JobRow], bool]) -> list[JobRow]:
        """The jobs that are so, in the order of their numbers."""
        return [row for row in self._jobs.values() if wanted(row)]

    def _owned_by(self, worker: UUID) -> list[JobRow]:
        return self._where(lambda row: row.state in OWNED and row.job.worker == worker)

    def _attended_by(self, dispatcher: UUID) -> list[WorkerView]:
        """The live workers of a dispatcher."""
        rows = self._workers.values()
        return [row for row in rows if row.alive and row.dispatcher == dispatcher]

    async def job(self, ref: UUID | int) -> Job | None:
        row = self._find(ref)
        if row is None:
            return None
        behind = () if row.behind is None else (row.behind,)
        group = () if row.node is None else self._pauses[row.node.group]
        pauses = sorted((*self._pauses[row.job.queue], *group), key=lambda one: one.since)
        job, kept = self._shown(row), Kept((*row.stays, *behind), tuple(pauses))
        return structs.replace(job, waited=waited(job, kept, self._utc()))

    def _note_pause(self, of: str | UUID, paused: bool, now: datetime) -> None:
        """A queue or a group is paused from now on, or no more."""
        known = self._pauses[of]
        is_open = bool(known) and known[-1].until is None
        if paused and not is_open:
            self._pauses[of] = [*known, Pause(isinstance(of, UUID), now)][-MOST_PAUSES:]
        elif is_open and not paused:
            known[-1] = known[-1]._replace(until=now)

    def _shown(self, row: JobRow) -> Job:
        """With the newest progress and step of its last attempt."""
        progress = unpack_progress(self._said(row, LogKind.PROGRESS))
        step = unpack_step(self._said(row, LogKind.STEP))
        return structs.replace(row.shown, progress=progress, step=step)

    def _listed(self, row: JobRow) -> Job:
        """Without what may be large, and without words unless it runs."""
        job = self._shown(row) if row.state in OWNED else row.shown
        return structs.replace(job, args=b"", result=None, history=())

    def _said(self, row: JobRow, kind: LogKind) -> bytes | None:
        """The newest entry of a kind that the job's last token wrote."""
        entries = sorted((key, one) for key, one in self._logs.items() if one.kind is kind)
        said = [one.data for key, one in entries if key[:2] == (row.job.id, row.job.token)]
        return said[-1] if said else None

    async def jobs(self, wanted: JobFilter) -> JobPage:
        before, most = wanted.before, most_looked_at(wanted)
        below = self._where(lambda row: before is None or row.job.number < before)[::-1]
        if wanted.until is not None:
            below = [row for row in below if row.job.created_at < wanted.until]
        states = [None] if must_walk(wanted) else _BAD & {*wanted.states}
        ways = [[row for row in below if state in (None, row.state)] for state in states]
        stops = [way[most - 1].job.number for way in ways if len(way) >= most]
        stopped_at = max(stops, default=None)
        reached = [row for row in below if row.job.number >= (stopped_at or 0)]
        now = self._now
        matching = [row for row in reached if _matches(row.job, wanted, now)][: wanted.limit]
        listed = [self._listed(row) for row in matching]
        if wanted.args:
            listed = [
                structs.replace(job, args=row.job.args)
                for job, row in zip(listed, matching, strict=True)
            ]
        return page(listed, wanted, stopped_at)

    async def logs(
        self,
        ref: UUID | int,
        *,
        token: int | None = None,
        after: tuple[int, int] = (0, 0),
        most: int = 1000,
    ) -> list[KeptEntry]:
        row = self._find(ref)
        own = sorted(key for key in self._logs if row is not None and key[0] == row.job.id)
        found = [key for key in own if key[1:] > after and token in (None, key[1])]
        return [self._logs[key] for key in found[: max(most, 0)]]

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        rows = (self._jobs.get(one) for one in ids)
        jobs = (row.job for row in rows if row is not None and row.state in TERMINAL)
        found = [Ended(job.id, job.state, job.result, job.error) for job in jobs]
        groups = (self._groups.get(one) for one in ids)
        over = [one for one in groups if one and one.state in ENDED_GROUPS and not one.is_gone]
        return found + [Ended(one.head.id, JobState(one.state.value)) for one in over]

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        lanes = {row.lane.hash: row.lane for row in self._jobs.values()}
        return list((self._emptied | lanes).values())

    async def queues(self) -> list[QueueView]:
        found = [(row.lane.queue, row.state.value) for row in self._jobs.values()]
        names = {*self._paused, *(lane.queue for lane in await self.lanes())}
        counts = {name: Counter(state for queue, state in found if queue == name) for name in names}
        return [
            QueueView(
                one,
                self._paused.get(one, False),
                counts[one],
                {**self._queue_waits[one]},
                self._pauses[one][-1].since if self._paused.get(one) else None,
            )
            for one in sorted(names)
        ]

    async def depths(self) -> list[LaneDepth]:
        counts: defaultdict[Lane, Counter[JobState]] = defaultdict(Counter)
        since: defaultdict[Lane, list[datetime]] = defaultdict(list)
        behind = Counter(row.lane for row in self._jobs.values() if row.behind is not None)
        for row in self._jobs.values():
            counts[row.lane][row.state] += 1
            if row.state is JobState.READY:
                since[row.lane].append(
                    max(row.job.created_at, row.job.run_at or row.job.created_at)
                )
        return [
            LaneDepth(
                lane,
                of,
                self._paused.get(lane.queue, False),
                min(since[lane], default=None),
                behind[lane],
            )
            for lane, of in counts.items()
        ]

    async def workers(self) -> list[WorkerView]:
        alive = [row for row in self._workers.values() if row.alive]
        ended = [row for row in self._workers.values() if not row.alive]
        ended.sort(key=lambda row: row.ended_at or row.started_at, reverse=True)
        return [self._view(row) for row in [*alive, *ended[:SHOWN_ENDED_WORKERS]]]

    def _view(self, row: WorkerView) -> WorkerView:
        owned = list(self._owned_by(row.info.id))
        shapes = Counter(one.job.target for one in owned if one.job.options.resources)
        running = Counter(one.job.kind for one in owned)
        return structs.replace(row, running=running, shapes=shapes)

    async def dispatchers(self) -> list[DispatcherView]:
        return list(self._dispatchers.values())

    async def run_times(self, kinds: Sequence[str]) -> list[RunTime]:
        return [self._run_times[kind][0] for kind in sorted(set(kinds)) if kind in self._run_times]

    async def explain(self, job: Job) -> Facts:
        own = self._jobs[job.id]
        ready = self._where(lambda row: row.state is JobState.READY and row.lane == own.lane)
        ahead = sum(row.order < own.order for row in ready)
        return Facts(
            held_back=self._held_back(own),
            workers=tuple(self._view(row) for row in self._workers.values() if row.alive),
            ahead=min(ahead, MAX_AHEAD),
            now=self._utc(),
        )

    def _held_back(self, row: JobRow) -> HeldBack | None:
        """What holds a job back although slots are free."""
        return HeldBack.PAUSED_QUEUE if self._paused.get(row.lane.queue) else None

    async def watch(self) -> AsyncIterator[Hint]:
        """Hints of what happened since the first of them was asked for."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        try:
            while True:
                await watcher.wait()
                while watcher.pending:
                    hint = next(iter(watcher.pending))
                    del watcher.pending[hint]
                    yield hint
                watcher.clear()
        finally:
            self._watchers.remove(watcher)

    def tell_others(self) -> None:
        """Hints to all who watch that something changed."""
        self._hint(Hint.CHANGE)

    def _drop_job(self, row: JobRow) -> None:
        """Removes a job with its logs."""
        self._emptied[row.lane.hash] = row.lane
        del self._jobs[row.job.id]
        self._logs = {key: said for key, said in self._logs.items() if key[0] != row.job.id}
        self._files.forget_logs([row.job.id])

    def _hint(self, *hints: Hint) -> None:
        for watcher in self._watchers:
            watcher.pending.update(dict.fromkeys(hints))
            watcher.set()


class _Watcher(asyncio.Event):
    """Wakes one listener; the same hint twice before it listens is one."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[Hint, None] = {}


def _matches(job: Job, wanted: JobFilter, now: datetime) -> bool:
    ran = None if job.started_at is None else (job.ended_at or now) - job.started_at
    return (
        (not wanted.states or job.state in wanted.states)
        and wanted.kind in (None, job.kind)
        and wanted.queue in (None, job.queue)
        and wanted.worker in (None, job.worker)
        and wanted.group in (None, job.group)
        and (not wanted.ids or job.id in wanted.ids)
        and set(wanted.labels) <= set(job.options.labels)
        and (wanted.since is None or job.created_at >= wanted.since)
        and (wanted.until is None or job.created_at < wanted.until)
        and (
            wanted.slower_s is None or (ran is not None and ran.total_seconds() >= wanted.slower_s)
        )
        and (wanted.error is None or has_text(job.error, wanted.error))
        and (not wanted.args or (not job.options.raw and has_args(job.args, wanted.args)))
    )
