"""PgQueuer on PostgreSQL, measured as bench/peers/table.py says.

Workers take batches of 500. It keeps a log of what ended, and no results. All is done when its
table of jobs is empty.
"""

import asyncio
import signal
import sys
import time

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

BATCH = 500
ENQUEUE = 1_000
DATA = b"x" * 100


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def worker(url: str) -> None:
    connection = await asyncpg.connect(url)
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint("noop")
    async def noop(job: object) -> None:
        pass

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    print("ready", flush=True)
    await queue.run(batch_size=BATCH)


async def measure(url: str, number: int) -> None:
    connection = await asyncpg.connect(url)
    watching = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    began = time.perf_counter()
    for first in range(0, number, ENQUEUE):
        size = min(ENQUEUE, number - first)
        await queries.enqueue(["noop"] * size, [DATA] * size, [0] * size)
    while await watching.fetchval("SELECT EXISTS (SELECT 1 FROM pgqueuer)"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", url]:
            uvloop.run(install(url))
        case ["worker", url]:
            uvloop.run(worker(url))
        case ["measure", url, number]:
            uvloop.run(measure(url, int(number)))
        case _:
            sys.exit(__doc__)
