"""What the examples of actors share: a fleet on a temporary store, and how to disturb it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longshore import ActorRef
from longshore.client.connection import Connection
from longshore.errors import LongshoreError

if TYPE_CHECKING:  # the same module, by its name from the repository's root
    from examples.demo import LONGEST_S, Unexpected, longshore_up
else:
    from demo import LONGEST_S, Unexpected, longshore_up


@contextmanager
def fleet(app: str) -> Iterator[None]:
    """A dispatcher and two workers, which apps of this process find by themselves."""
    with (
        tempfile.TemporaryDirectory(prefix="longshore-example-") as folder,
        longshore_up(Path(folder), app) as ready,
    ):
        os.environ["LONGSHORE_CONNECT"] = ready["frontend"]
        yield


def run_example(show: Callable[[], None]) -> int:
    """Shows the example; answers its exit code."""
    try:
        show()
    except (Unexpected, LongshoreError, TimeoutError) as error:
        print(f"not as expected: {error}", file=sys.stderr)
        return 1
    return 0


def expect(is_so: bool, what: str) -> None:
    """Ends the example if something is not as it should be."""
    if not is_so:
        raise Unexpected(what)


def watch(look: Callable[[], bool], what: str) -> None:
    """Looks again and again until it is so."""
    deadline = time.monotonic() + LONGEST_S
    while not look():
        expect(time.monotonic() < deadline, f"{what}: it took too long")
        time.sleep(0.05)


def kill_worker_of(ref: ActorRef[Any]) -> None:
    """Kills the worker that took the actor's last turn, like a power cut."""
    worker = ref.turns()[0].worker
    pid = asyncio.run(_pids())[worker]
    os.kill(pid, signal.SIGKILL)
    print(f"-- killed worker process {pid} (SIGKILL), which had {ref.type} '{ref.key}'")


async def _pids() -> dict[object, int]:
    async with Connection(os.environ["LONGSHORE_CONNECT"]) as connection:
        return {view.info.id: view.info.pid for view in await connection.workers()}
