"""Temporal: signals to entity workflows. See `bench.actors`.

The server is Temporal's own for development, with its store in a SQLite file. A workflow ends when
it has counted its signals; all is done when the last one has.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from temporalio import workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

DATA = "x" * 100
AT_ONCE = 50
READY_S = 40
QUEUE = "bench"


@workflow.defn
class Counter:
    """Counts its signals."""

    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self, messages: int) -> int:
        """Until so many came."""
        await workflow.wait_condition(lambda: self.count >= messages)
        return self.count

    @workflow.signal
    def add(self, data: str) -> None:
        """One more."""
        self.count += 1


async def run(client: Client, messages: int, actors: int) -> float:
    """Seconds until all signals are counted."""
    each = messages // actors
    handles = [
        await client.start_workflow(
            Counter.run,
            each,
            id=f"actor-{number}",
            task_queue=QUEUE,
            execution_timeout=timedelta(minutes=5),
        )
        for number in range(actors)
    ]
    began = time.monotonic()
    places = iter(range(each * actors))

    async def send() -> None:
        for place in places:
            await handles[place % actors].signal(Counter.add, DATA)

    await asyncio.gather(*(send() for _ in range(AT_ONCE)))
    counts = await asyncio.gather(*(handle.result() for handle in handles))
    assert sum(counts) == each * actors
    return time.monotonic() - began


async def connected(port: int) -> Client:
    """A client, once the server is up."""
    until = time.monotonic() + READY_S
    while True:
        try:
            return await Client.connect(f"127.0.0.1:{port}")
        except (RPCError, RuntimeError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


async def measure(port: int, messages: int, actors: int) -> float:
    """The seconds, with a worker of its own."""
    client = await connected(port)
    async with Worker(client, task_queue=QUEUE, workflows=[Counter]):
        return await run(client, messages, actors)


def main() -> None:
    """Starts a server, measures, and ends it."""
    messages, actors = int(sys.argv[2]), int(sys.argv[3])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(sys.executable).parent / "temporal"
        words = ["server", "start-dev", "--headless", "--port", str(port), "--log-level", "error"]
        file = Path(folder) / "temporal.db"
        server = subprocess.Popen([binary, *words, "--db-filename", file], stdout=sys.stderr)
        try:
            print(asyncio.run(measure(port, messages, actors)), flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
