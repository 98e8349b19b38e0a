"""Fairness: no job waits in one worker for long while another that could run it is idle.

Two rules. What a worker holds ahead of its slots leaves it within twice `lookahead_s`: it begins or
goes back. And a job of a kind that is always long waits in no worker for longer than `lookahead_s`
while another one of the same dispatcher is idle: so a long job is never queued behind a long one.
Workers that were frozen meanwhile are exempt: they could not tell how late it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from longshore.model.attempt import Assignment
from longshore.model.worker import AHEAD_POOLS, SessionKey
from longshore.testing.simulation.cluster import DispatcherNode, WorkerNode
from longshore.testing.simulation.promises import BrokenPromise, Promise
from longshore.testing.simulation.scenario import LONG
from longshore.worker.agent import Worker

LOOK_S: Final = 0.2
"""How often to look."""
_MARGIN_S: Final = 0.01


class Attending(NamedTuple):
    """A worker that is up, and the dispatcher that attends it."""

    node: str
    worker: Worker
    dispatcher: UUID
    frozen_s: float


class Fairness:
    """Looks into the workers now and then."""

    def __init__(
        self,
        dispatchers: Sequence[DispatcherNode],
        workers: Sequence[WorkerNode],
        lookahead_s: float,
    ) -> None:
        self._dispatchers = dispatchers
        self._workers = workers
        self._lookahead_s = lookahead_s
        self._idle_since: dict[tuple[str, str], float] = {}
        self._attends: list[Attending] = []
        self._frozen_s: dict[int, float] = {}
        """How long its worker had been frozen when an attempt was first seen there, by token."""

    def look(self, now: float) -> None:
        """Raises `BrokenPromise` if a job waits that must not."""
        attending = list(self._attending())
        self._note_idle(attending, now)
        self._attends = attending
        waiting = [(one, *found) for one in attending for found in _waiting(one.worker)]
        before, self._frozen_s = self._frozen_s, {}
        for one, pool, since, assignment in waiting:
            token = assignment.token
            self._frozen_s[token] = before.get(token, one.frozen_s)
            if self._frozen_s[token] == one.frozen_s:
                self._check(one, pool, now, since, assignment, attending)

    def idle_since(self, kind: str) -> float | None:
        """Since when a worker that could run this kind has had a free slot; None if none has."""
        found = (
            self._idle_since.get((one.node, pool))
            for one in self._attends
            for pool, executor in one.worker._executors.items()
            if kind in executor.kinds
        )
        return min((since for since in found if since is not None), default=None)

    def _attending(self) -> Iterator[Attending]:
        for node in self._workers:
            worker, process = node.worker, node.process
            if worker is None or process is None or not process.runs or node.up_since is None:
                continue
            if not hasattr(worker, "_session") or worker._session.session is None:
                continue
            slot = SessionKey(worker._session.worker, worker._session.session)
            for one in self._dispatchers:
                known = one.dispatcher if one.process is not None and one.process.runs else None
                if known is not None and known._roster.of_session(slot) is not None:
                    yield Attending(node.name, worker, known.id, process.frozen_for_s())

    def _note_idle(self, attending: Sequence[Attending], now: float) -> None:
        before, self._idle_since = self._idle_since, {}
        for one in attending:
            for pool, executor in one.worker._executors.items():
                taken = len(one.worker._begun[pool]) + len(one.worker._lines[pool])
                if taken < executor.slots and not one.worker._draining.is_set():
                    key = one.node, pool
                    self._idle_since[key] = before.get(key, now)

    def _check(
        self,
        one: Attending,
        pool: str,
        now: float,
        since: float,
        assignment: Assignment,
        attending: Sequence[Attending],
    ) -> None:
        longest_s = self._lookahead_s * (1 if assignment.kind == LONG else 2)
        for other in attending:
            if other.dispatcher != one.dispatcher or not _serves(other.worker, assignment.kind):
                continue
            idle_since = self._idle_since.get((other.node, pool))
            if idle_since is None or other.node == one.node:
                continue
            waited_s = now - max(since, idle_since)
            if waited_s > longest_s + _MARGIN_S:
                text = f"it waits in {one.node} for {waited_s:.2f} s, though {other.node} is idle"
                raise BrokenPromise(Promise.FAIR, text, assignment.job)


def _waiting(worker: Worker) -> Iterator[tuple[str, float, Assignment]]:
    """What waits in the lines of a worker, and since when; nothing is behind a slot that stops."""
    for pool in AHEAD_POOLS & worker._lines.keys():
        if worker._stopping.isdisjoint(worker._begun[pool]):
            for since, assignment in worker._lines[pool]._waiting.values():
                yield pool, since, assignment


def _serves(worker: Worker, kind: str) -> bool:
    return any(kind in executor.kinds for executor in worker._executors.values())
