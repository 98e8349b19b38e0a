"""The program of a host process: the only place where an app is imported and its jobs run.

    python -m longshore.executors.host.main POOL AGENT_PID FD [QUEUE_FD]

It speaks `frames` on the socket FD and nothing else: what a job prints is caught for the job's log,
and goes where the worker's own output goes. A process of one attempt at a time reads these from
QUEUE_FD (see `attempt_queue`). It ends with its agent; a host of containers may outlive it.
"""

from __future__ import annotations

import ctypes
import gc
import io
import os
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn, assert_never

from longshore.executors.host.child import ChildHost
from longshore.executors.host.coroutine import CoroutineHost
from longshore.executors.host.forks import leave, remain_one
from longshore.executors.host.host import Host
from longshore.executors.host.programs.container_host import ContainerHost
from longshore.executors.host.programs.host import ProgramHost
from longshore.executors.host.thread import ThreadHost
from longshore.model.worker import PROGRAM_POOLS, Pool

COLLECT_AFTER = (10_000, 20, 20)
"""How many new objects make the collector look for cycles: jobs leave objects, but no cycles."""

_PR_SET_PDEATHSIG = 1


def main(pool: Pool, agent_pid: int, *fds: int) -> NoReturn:
    """Serves the agent until it is gone."""
    _die_with(agent_pid, pool)
    sockets = [socket.socket(fileno=fd) for fd in fds]
    for sock in sockets:
        sock.set_inheritable(False)
    _settle_in()
    remain_one(*sockets)
    # Before the app is imported, so that the app may set another threshold.
    gc.set_threshold(*COLLECT_AFTER)
    host = _host(pool)(*sockets)
    host.load(pool)
    # What the imports made is there to stay: the collector need not look at it.
    gc.freeze()
    host.serve()


def _host(pool: Pool) -> type[Host]:
    match pool:
        case Pool.COROUTINE:
            return CoroutineHost
        case Pool.PROCESS:
            return ChildHost
        case Pool.THREAD:
            return ThreadHost
        case Pool.COMMAND:
            return ProgramHost
        case Pool.CONTAINER:
            return ContainerHost
        case _:
            assert_never(pool)


def _die_with(agent_pid: int, pool: Pool) -> None:
    """On Linux, has the kernel kill this process when the agent dies.

    A host of programs has these to kill first: it ends by itself when its socket is closed.
    """
    if sys.platform == "linux" and pool not in PROGRAM_POOLS:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent_pid:
        leave()


def _settle_in() -> None:
    # A handler, not SIG_IGN: programs that jobs start would inherit that.
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _ignore)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A job does not fail because of a character that the worker's output cannot show.
            errors = "backslashreplace" if stream.errors == "strict" else stream.errors
            stream.reconfigure(line_buffering=True, errors=errors)


def _ignore(number: int, frame: FrameType | None) -> None:
    """The agent decides when a host ends."""


if __name__ == "__main__":
    main(Pool(sys.argv[1]), *map(int, sys.argv[2:]))
