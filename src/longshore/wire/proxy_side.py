"""A worker's side of the dialogue by proxy: a gateway speaks for a web service.

It is the dialogue of any worker, with three differences. A PING is sent when the service has
answered, never because time passed. What the service says that it runs is what the PING says that
the worker holds: so the dispatcher sends again what the service forgot, and stops what it should
not run. And the gateway numbers its sessions from where its adoption begins, so that no READY of an
earlier gateway can end them.

A service may refuse an attempt although it has a slot free. Then its slot is *closed* until it
answers again or ends another attempt: a PING lists a run that nobody placed, which takes the slot.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import UUID

from longshore.model.attempt import AttemptKey
from longshore.model.worker import Run
from longshore.wire import messages as m
from longshore.wire.worker_side import Event, Patience, WorkerSession

WEB_POOL: Final = "web"
"""The pool of all kinds that web workers serve."""


class ProxiedSession(WorkerSession):
    """The dialogue of a service, spoken by its gateway. Sessions are numbered after `asked`."""

    def __init__(self, ready: m.Ready, patience: Patience, asked: int) -> None:
        super().__init__(ready, patience)
        self._asked = asked
        self._closed = 0
        self._taken: dict[int, float] = {}
        """When the service took each attempt."""
        self.counted = 0
        """The last PING that brought a lease."""
        self.runs = self._runs_by_pool

    @property
    def last_ping(self) -> int:
        """The number of the last PING."""
        return self._ping_no

    def job_of(self, token: int) -> UUID | None:
        """The job of an attempt that the service has, or is to get."""
        return self._running.get(token)

    def taken(self, token: int, now: float) -> None:
        """The service took an attempt."""
        if token in self._running:
            self._taken.setdefault(token, now)

    def has_taken(self, token: int) -> bool:
        """Whether the service took an attempt, as far as the gateway knows."""
        return token in self._taken

    def say_held(self, now: float, held: Collection[AttemptKey] | None, asked_at: float) -> None:
        """The service says what it runs (None if it does not say), asked at this time.

        What it had taken before, and does not run, it has forgotten: so it may be given again.
        """
        if held is None:
            return
        tokens = {token for _, token in held}
        unacknowledged = {token for _, token in self._reports.attempts}
        for token in [token for token in self._taken if token not in tokens]:
            if self._taken[token] < asked_at:
                self.forget(token)
        for job, token in held:
            if token not in unacknowledged:
                self._running.setdefault(token, job)
                self._had[token] = None
                self._taken.setdefault(token, now)

    def forget(self, token: int) -> None:
        """The service does not have an attempt: the dispatcher may send it again."""
        self._running.pop(token, None)
        self._had.pop(token, None)
        self._taken.pop(token, None)

    def answered(self, now: float) -> None:
        """The service answered a health check: sends PING. Closed slots are open again."""
        self._closed = 0
        if self.session is not None:
            self._ping(now)

    def say_again(self, now: float) -> None:
        """Says what the service has, for it answered that it lacks something."""
        if self.session is not None:
            self._ping(now)

    def close_slot(self, now: float) -> None:
        """Keeps a slot from being given until the service answers again, or ends an attempt."""
        self._closed += 1
        if self.session is not None:
            self._ping(now)

    def open_slot(self, now: float) -> None:
        """The service ended an attempt: it has room for one that it refused."""
        if self._closed:
            self._closed -= 1
            if self.session is not None:
                self._ping(now)

    def lost(self, reason: str) -> None:
        """The service is gone without a word."""
        if self.session is not None:
            self._outgoing.append(m.Bye(self.worker, reason, lost=True))
        self._forget_dispatcher()

    def _ping(self, now: float) -> None:
        super()._ping(now)
        self._ping_at = None

    def _ponged(self, now: float, pong: m.Pong) -> list[Event]:
        if pong.no in self._pings and pong.lease_s is not None:
            self.counted = pong.no
        return super()._ponged(now, pong)

    def _stop_at(self) -> float | None:
        """Never: the service has a lease of its own, and another gateway may speak for it now."""
        return None

    def _forget_dispatcher(self) -> None:
        super()._forget_dispatcher()
        self.counted = 0

    def _runs_by_pool(self, now: float) -> dict[str, tuple[Run, ...]]:
        self._taken = {token: at for token, at in self._taken.items() if token in self._running}
        runs = [Run(token, max(0.0, now - at)) for token, at in self._taken.items()]
        closed = [Run(-place, 0.0) for place in range(1, self._closed + 1)]
        return {WEB_POOL: (*runs, *closed)}
