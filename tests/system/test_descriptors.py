"""A dispatcher that has no descriptors left says so, serves whom it has, and takes others later."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import psutil

from longshore.testing.processes import await_true, run
from tests.system.conftest import Fleet

FEW = 12
MANY = 40


def test_many_idle_connections_are_kept_out_and_told_of(fleet: Fleet) -> None:
    dispatcher = fleet.dispatcher()
    process = psutil.Process(dispatcher.pid)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    assert soft == min(65_536, hard) or soft > 65_536, "the soft limit is raised at the start"
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + FEW, hard))
    frontend = dispatcher.facts["frontend"]
    host, _, port = frontend.removeprefix("tcp://").rpartition(":")
    with ExitStack() as stack:
        for _ in range(MANY):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex((host, int(port)))
        told = f"{frontend} takes no new connections until some are closed"
        await_true(lambda: told in dispatcher.said(), "it says so")
    again = f"{frontend} takes new connections again"
    await_true(lambda: again in dispatcher.said(), "there is room again")
    assert run("jobs", "--connect", frontend).returncode == 0
