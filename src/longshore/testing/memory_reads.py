"""The half of `MemoryStore` that only looks: what is remembered, and how it is shown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec import msgpack

from longshore.core.lifecycle import OWNED, TERMINAL
from longshore.model.job import (
    Ended,
    Job,
    JobFilter,
    JobPage,
    JobState,
    LogEntry,
    LogKind,
    Progress,
)
from longshore.model.log import KeptEntry
from longshore.model.worker import DispatcherView, Facts, Lane, QueueView, WorkerView
from longshore.ports import Hint
from longshore.store.listing import most_looked_at, must_walk, page
from longshore.testing.memory_rows import DispatcherRow, JobRow, WorkerRow

MAX_AHEAD = 1000
SHOWN_ENDED_WORKERS = 20

_BAD = TERMINAL - {JobState.SUCCEEDED}
_progress = msgpack.Decoder(Progress)


def _utc() -> datetime:
    return datetime.now(UTC)


class MemoryReads:
    """Everything the store remembers, and the verbs that change none of it."""

    def __init__(
        self, utc: Callable[[], datetime] = _utc, *, expiry_margin_s: float = 10.0
    ) -> None:
        self._utc = utc
        self._expiry_margin_s = expiry_margin_s
        self._jobs: dict[UUID, JobRow] = {}
        self._workers: dict[UUID, WorkerRow] = {}
        self._dispatchers: dict[UUID, DispatcherRow] = {}
        self._logs: dict[tuple[UUID, int, int], LogEntry] = {}
        self._logged_at: dict[tuple[UUID, int, int], datetime] = {}
        self._paused: dict[str, bool] = {}
        self._emptied: dict[int, Lane] = {}
        self._last_number = 0
        self._last_token = 0
        self._watchers: list[_Watcher] = []

    def _find(self, ref: UUID | int) -> JobRow | None:
        if isinstance(ref, UUID):
            return self._jobs.get(ref)
        return next((row for row in self._jobs.values() if row.number == ref), None)

    async def job(self, ref: UUID | int) -> Job | None:
        """One job, whole."""
        row = self._find(ref)
        if row is None:
            return None
        return row.whole(*self._words(row))

    def _words(self, row: JobRow) -> tuple[Progress | None, str | None]:
        """The newest progress and step of the job's last attempt."""
        progress, step = self._said(row, LogKind.PROGRESS), self._said(row, LogKind.STEP)
        return (
            _progress.decode(progress) if progress is not None else None,
            step.decode() if step is not None else None,
        )

    def _said(self, row: JobRow, kind: LogKind) -> bytes | None:
        """The newest entry of a kind that the job's last token wrote."""
        said = [
            entry
            for entry in self._logs.values()
            if (entry.job, entry.token, entry.kind) == (row.id, row.token, kind)
        ]
        return max(said, key=lambda entry: entry.seq).data if said else None

    async def jobs(self, wanted: JobFilter) -> JobPage:
        """Jobs, newest first, without their arguments, results, history and logs."""
        below = [
            row
            for row in reversed(self._jobs.values())
            if wanted.before is None or row.number < wanted.before
        ]
        stops = [_stop(way, most_looked_at(wanted)) for way in _ways(below, wanted)]
        stopped_at = max(stops, default=0) or None
        matching = [
            row for row in below if row.number >= (stopped_at or 0) and _matches(row, wanted)
        ]
        listed = [
            row.listed(*self._words(row)) if row.state in OWNED else row.listed()
            for row in matching[: wanted.limit]
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
        """What a job's attempts said, in order."""
        row = self._find(ref)
        found = sorted(
            key
            for key in self._logs
            if row is not None and key[0] == row.id and key[1:] > after and token in (None, key[1])
        )
        return [self._kept(key) for key in found[: max(most, 0)]]

    def _kept(self, key: tuple[UUID, int, int]) -> KeptEntry:
        entry = self._logs[key]
        return KeptEntry(entry.token, entry.seq, entry.kind, self._logged_at[key], entry.data)

    async def ended(self, ids: Sequence[UUID]) -> list[Ended]:
        """The outcomes of those of these jobs that have one."""
        rows = (self._jobs.get(one) for one in ids)
        return [row.ended() for row in rows if row is not None and row.state in TERMINAL]

    async def resolve(self, refs: Sequence[UUID | int]) -> dict[UUID | int, UUID]:
        """The ids of those of these jobs that exist."""
        found = ((ref, self._find(ref)) for ref in refs)
        return {ref: row.id for ref, row in found if row is not None}

    async def lanes(self, most: int | None = None, served: Collection[int] = ()) -> list[Lane]:
        """Every lane that held a job and was not forgotten."""
        lanes = {row.lane.hash: row.lane for row in self._jobs.values()}
        return list((self._emptied | lanes).values())

    async def queues(self) -> list[QueueView]:
        """Every queue that ever held a job or was paused."""
        queues = [lane.queue for lane in self._emptied.values()]
        counts: dict[str, Counter[str]] = {name: Counter() for name in (*self._paused, *queues)}
        for row in self._jobs.values():
            counts.setdefault(row.lane.queue, Counter())[row.state.value] += 1
        return [
            QueueView(name, self._paused.get(name, False), dict(counts[name]))
            for name in sorted(counts)
        ]

    async def workers(self) -> list[WorkerView]:
        """Live workers, and those that ended lately."""
        alive = [row for row in self._workers.values() if row.alive]
        ended = [row for row in self._workers.values() if not row.alive]
        ended.sort(key=lambda row: row.ended_at or row.started_at, reverse=True)
        return self._views([*alive, *ended[:SHOWN_ENDED_WORKERS]])

    def _views(self, rows: Iterable[WorkerRow]) -> list[WorkerView]:
        return [
            row.view(Counter(job.submission.kind for job in self._owned_by(row.info.id)))
            for row in rows
        ]

    async def dispatchers(self) -> list[DispatcherView]:
        """Every dispatcher that has not retired."""
        return [row.view() for row in self._dispatchers.values()]

    async def forget_dispatcher(self, dispatcher: UUID) -> None:
        """Removes a dispatcher that stopped renewing and attends no worker any more."""
        if not any(row.alive and row.dispatcher == dispatcher for row in self._workers.values()):
            self._dispatchers.pop(dispatcher, None)

    async def explain(self, job: Job) -> Facts:
        """What keeps a job where it is: its queue, the workers, the jobs ahead of it."""
        own = self._jobs[job.id]
        ahead = sum(
            1
            for row in self._jobs.values()
            if row.state is JobState.READY and row.lane == own.lane and row.order < own.order
        )
        return Facts(
            queue_paused=self._paused.get(job.queue, False),
            workers=tuple(self._views(row for row in self._workers.values() if row.alive)),
            ahead=min(ahead, MAX_AHEAD),
            now=self._utc(),
        )

    def _owned_by(self, worker: UUID) -> list[JobRow]:
        return [row for row in self._jobs.values() if row.state in OWNED and row.worker == worker]

    async def watch(self) -> AsyncIterator[Hint]:
        """Hints of what happened since the first of them was asked for."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        try:
            while True:
                yield await watcher.next()
        finally:
            self._watchers.remove(watcher)

    def _hint(self, *hints: Hint) -> None:
        for watcher in self._watchers:
            watcher.tell(hints)


class _Watcher:
    """Hints for one listener; the same twice before it listens is one."""

    def __init__(self) -> None:
        self._pending: dict[Hint, None] = {}
        self._some = asyncio.Event()

    def tell(self, hints: Iterable[Hint]) -> None:
        self._pending.update(dict.fromkeys(hints))
        self._some.set()

    async def next(self) -> Hint:
        await self._some.wait()
        hint = next(iter(self._pending))
        del self._pending[hint]
        if not self._pending:
            self._some.clear()
        return hint


def _ways(below: Sequence[JobRow], wanted: JobFilter) -> list[list[JobRow]]:
    """The jobs that are looked at one by one: all of them, or those of each bad end."""
    if must_walk(wanted):
        return [list(below)]
    return [
        [row for row in below if row.state is state] for state in wanted.states if state in _BAD
    ]


def _stop(way: Sequence[JobRow], most: int) -> int:
    """The number of the last of so many jobs; 0 if there are not so many."""
    return way[most - 1].number if len(way) >= most else 0


def _matches(row: JobRow, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or row.state in wanted.states)
        and wanted.kind in (None, row.submission.kind)
        and wanted.queue in (None, row.submission.queue)
        and wanted.worker in (None, row.worker)
        and set(wanted.labels) <= set(row.submission.options.labels)
        and (wanted.since is None or row.created_at >= wanted.since)
    )
