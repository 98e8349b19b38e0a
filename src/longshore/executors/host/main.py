"""The program of a host process: the only place where an app is imported and its jobs run.

    python -m longshore.executors.host.main FD POOL AGENT_PID

It speaks `frames` on the socket FD and nothing else: what a job prints is caught for the job's log,
and goes where the worker's own output goes. It ends with its agent.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import io
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, assert_never

from longshore.errors import AppError
from longshore.executors import scratch
from longshore.executors.frames import Load, Loaded, LoadFailed, pack, to_host
from longshore.executors.host.apps import load_apps
from longshore.executors.host.child import ChildHost
from longshore.executors.host.coroutine import CoroutineHost, new_event_loop
from longshore.executors.host.forks import leave, remain_one
from longshore.executors.host.lifespan import Lifespan
from longshore.executors.output.capture import install
from longshore.model.worker import Pool
from longshore.ports import Handlers

COLLECT_AFTER = (10_000, 20, 20)
"""How many new objects make the collector look for cycles: each job leaves some, but no cycles."""

_PR_SET_PDEATHSIG = 1


def main(fd: int, pool: Pool, agent_pid: int) -> NoReturn:
    """Serves the agent until it is gone."""
    _die_with(agent_pid)
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    _settle_in()
    remain_one(sock)
    # Before the app is imported, so that it may think otherwise; then all of it is there to stay.
    gc.set_threshold(*COLLECT_AFTER)
    loop = new_event_loop() if pool is Pool.COROUTINE else None
    load = _told_to_load(sock)
    # Before the app is imported too: some libraries keep the streams that they found then.
    set_streams = install(echo=load.limits.echo)
    # In a child the standard loop: there a signal's handler ends what runs on it by raising.
    handlers, lifespan = _load(sock, load, pool, lambda: loop or asyncio.new_event_loop())
    gc.freeze()
    match pool:
        case Pool.COROUTINE:
            assert loop is not None
            CoroutineHost(sock, handlers, loop, lifespan, load.limits).serve()
        case Pool.PROCESS:
            ChildHost(sock, handlers, lifespan, load.limits, set_streams).serve()
        case _:
            assert_never(pool)


def _die_with(agent_pid: int) -> None:
    """The kernel kills this process when the agent dies, if it is a Linux."""
    if sys.platform == "linux":
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


def _load(
    sock: socket.socket,
    order: Load,
    pool: Pool,
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> tuple[Handlers, Lifespan]:
    """Imports the apps and begins their lifespan: both must be well before a job can come."""
    scratch.settle(order.scratch)
    try:
        handlers, spans = load_apps(order.app)
        lifespan = Lifespan(spans(pool), make_loop)
        lifespan.begin()
    except AppError as error:
        sock.sendall(pack(LoadFailed(str(error))))
        leave()
    sock.sendall(pack(Loaded({kind: handler.info for kind, handler in handlers.items()})))
    return handlers, lifespan


def _told_to_load(sock: socket.socket) -> Load:
    unpacker = to_host()
    while True:
        data = sock.recv(64 * 1024)
        if not data:
            leave()
        for message in unpacker.feed(data):
            if isinstance(message, Load):
                return message


if __name__ == "__main__":
    main(int(sys.argv[1]), Pool(sys.argv[2]), int(sys.argv[3]))
