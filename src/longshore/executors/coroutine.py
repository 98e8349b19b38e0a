"""Runs `async def` jobs, all of them in one host process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic

from longshore.executors.frames import NoMore
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import Hosting
from longshore.executors.shared import SharedExecutor
from longshore.model.attempt import AttemptKey
from longshore.model.reports import NotBegunReport, ReleaseReport
from longshore.model.worker import Pool
from longshore.ports import OnBegun, OnLog, OnReport

_log = logging.getLogger(__name__)


class CoroutineExecutor(SharedExecutor):
    """One host with up to `slots` coroutines in it. It cancels the coroutine of an abort itself.

    Attempts of batched kinds wait in the host for others. They begin, and their time runs, when the
    host says so.
    """

    pool = Pool.COROUTINE

    def __init__(self, hosting: Hosting, slots: int, on_report: OnReport, on_log: OnLog) -> None:
        super().__init__(hosting, slots, on_report, on_log)
        self.on_begun: OnBegun = lambda token, ago_s: None

    async def open(self) -> None:
        """Starts the host; warns of batches that can never be full here."""
        await super().open()
        for kind, info in self.kinds.items():
            if info.batch > self.slots:
                _log.warning(
                    "job '%s' has batches of up to %d, but this worker runs %d coroutines at once: "
                    "none is larger than that; give it as many --slots",
                    kind,
                    info.batch,
                    self.slots,
                )

    def no_more(self) -> None:
        """No more attempts come for now: those that wait for others begin."""
        if self._begin_late:
            for host in self._open_hosts:
                host.send(NoMore())

    def _open_host(self, host: HostProcess) -> None:
        super()._open_host(host)
        self._begin_late = frozenset(kind for kind, info in self.kinds.items() if info.batch)

    def _began_late(self, token: int) -> None:
        running = self._attempts.of(token)
        if running is not None:
            self._attempts.began(running, monotonic())
            self.on_begun(token, 0.0)

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        for attempt in attempts if self._begin_late else ():
            running = self._attempts.get(attempt)
            if running is None or running.began_at is not None:
                continue
            if isinstance(running.abort_report, ReleaseReport):
                running.abort_report = NotBegunReport(*attempt)
        super()._stopped(host, attempts)
