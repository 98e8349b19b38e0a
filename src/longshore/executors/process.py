"""Runs plain `def` jobs, each alone in a child process that is kept for the next one."""

from __future__ import annotations

from collections.abc import Sequence

from longshore.executors.attempts import Running
from longshore.executors.host_process import HostProcess
from longshore.executors.hosted import HostedExecutor
from longshore.model.attempt import AttemptKey
from longshore.model.worker import Pool

REPEAT_INTERRUPT_S = 0.2


class ProcessExecutor(HostedExecutor):
    """Up to `slots` hosts, each with one attempt at a time.

    A host in which an attempt was aborted is killed with everything the attempt started: an
    exception at an arbitrary place may have left anything behind.
    """

    pool = Pool.PROCESS
    is_shared = False

    def _aborting(self, running: Running, host: HostProcess) -> None:
        """Signals until the attempt has ended: a signal that overtook its frame does nothing."""
        host.interrupt()
        timer = self._loop.call_later(REPEAT_INTERRUPT_S, self._aborting, running, host)
        running.keep(timer)

    def _stopped(self, host: HostProcess, attempts: Sequence[AttemptKey]) -> None:
        host.kill()
