"""The sync face: any thread may use it, none may block a loop with it, and it ends cleanly."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from longshore import App, Handle
from longshore.client.clients import Clients
from longshore.client.connection import Connection
from longshore.errors import Unavailable, WouldBlock
from longshore.wire import messages

from .fake import FakeDispatcher


def add(a: int, b: int = 1) -> int:
    return a + b


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "longshore-client"]


def test_many_threads_share_one_app(app: App, fake: FakeDispatcher) -> None:
    job = app.job(add)
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(job.submit, range(200)))
    assert {handle.id for handle in handles} == set(fake.jobs)
    assert len(client_threads()) == 1
    assert len(set(fake.peers)) == 1


CALLS: list[tuple[str, Callable[[App, Any, Handle[int]], object]]] = [
    ("submit", lambda app, job, handle: job.submit(1)),
    ("submit", lambda app, job, handle: job.call(1).submit()),
    ("submit_many", lambda app, job, handle: app.submit_many([job.call(1)])),
    ("handle", lambda app, job, handle: app.handle(1)),
    ("wait_all", lambda app, job, handle: app.wait_all([handle])),
    ("as_ended", lambda app, job, handle: app.as_ended([handle])),
    ("results", lambda app, job, handle: app.results([handle])),
    ("close", lambda app, job, handle: app.close()),
    ("result", lambda app, job, handle: handle.result()),
    ("wait", lambda app, job, handle: handle.wait()),
    ("status", lambda app, job, handle: handle.status()),
    ("job", lambda app, job, handle: handle.job()),
    ("why", lambda app, job, handle: handle.why()),
    ("cancel", lambda app, job, handle: handle.cancel()),
    ("retry", lambda app, job, handle: handle.retry()),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
async def test_a_blocking_call_where_a_loop_runs_is_refused_and_says_what_to_use(
    app: App,
    fake: FakeDispatcher,
    name: str,
    call: Callable[[App, Any, Handle[int]], object],
) -> None:
    job = app.job(add)
    handle = await job.submit_async(1)
    with pytest.raises(WouldBlock, match=rf"^{name}\(\) would block .*{name}_async\(\)"):
        call(app, job, handle)
    assert client_threads() == []
    await app.close_async()


def test_nothing_is_started_before_it_is_needed(app: App, fake: FakeDispatcher) -> None:
    app.job(add).call(1)
    assert client_threads() == []
    assert fake.requests == []


def test_closing_ends_the_thread_and_the_next_call_begins_anew(
    app: App, fake: FakeDispatcher
) -> None:
    job = app.job(add)
    job.submit(1)
    app.close()
    assert client_threads() == []
    job.submit(2)
    assert len(fake.jobs) == 2
    assert len(set(fake.peers)) == 2


def test_closing_twice_is_closing_once(app: App) -> None:
    app.job(add).submit(1)
    app.close()
    app.close()


def test_closing_ends_calls_that_wait_in_other_threads(app: App, fake: FakeDispatcher) -> None:
    handle = app.job(add).submit(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result)
        fake.heard(messages.Wait)
        app.close()
        with pytest.raises(Unavailable, match="closed"):
            waiting.result()


def test_a_call_that_connects_while_its_app_is_closed_leaves_no_connection_open() -> None:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(Connection("tcp://127.0.0.1:1"))
        return made[-1]

    clients, may_connect, has_begun = Clients(connect), threading.Event(), threading.Event()

    async def connect_late() -> None:
        has_begun.set()
        may_connect.wait()
        clients.connection()

    late = clients.start(connect_late())
    has_begun.wait()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(clients.close)
        while clients._background is not None:
            os.sched_yield()
        may_connect.set()
        closing.result()
    late.result()
    (connection,) = made
    assert connection._closed


async def test_closing_without_blocking_ends_both_faces(app: App) -> None:
    job = app.job(add)
    await asyncio.to_thread(job.submit, 1)
    await job.submit_async(2)
    await app.close_async()
    assert client_threads() == []


def test_each_event_loop_has_its_own_connection(app: App, fake: FakeDispatcher) -> None:
    job = app.job(add)
    for number in range(3):
        asyncio.run(_submit(job, number))
    assert len(fake.jobs) == len(set(fake.peers)) == 3
    assert len(app._access._reaches) == 1


async def _submit(job: Any, number: int) -> None:
    await job.submit_async(number)


def test_an_app_that_is_dropped_takes_its_thread_along(fake: FakeDispatcher) -> None:
    app = App("test", fake.address)
    app.job(add).submit(1)
    (thread,) = client_threads()
    dropped = weakref.ref(app)
    del app
    gc.collect()
    thread.join(timeout=30)
    assert dropped() is None
    assert not thread.is_alive()


FORK = """
import os, sys
from longshore import App

app = App("test", sys.argv[1])

@app.job
def add(a: int) -> int:
    return a

add.submit(1)
child = os.fork()
if child == 0:
    add.submit(2)
    app.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
add.submit(3)
"""


def test_a_forked_child_makes_its_own_connection_and_leaves_the_parents_alone(
    fake: FakeDispatcher,
) -> None:
    # From 3.12 on Python warns of any fork beside threads, which is what this is about.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, fake.address],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(fake.jobs) == 3
    first, second, third = fake.peers
    assert first == third != second


def test_a_process_that_never_closes_its_app_ends_by_itself(fake: FakeDispatcher) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK.split("child =")[0], fake.address],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
