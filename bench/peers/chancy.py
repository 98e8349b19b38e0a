"""Chancy on PostgreSQL, measured as bench/peers/table.py says.

It keeps each job's row with its final state, and no results. Workers write ends to the database
in batches, once in a while. All is done when every row has succeeded.
"""

import asyncio
import logging
import sys
import time

import uvloop
from chancy import Chancy, Job, Queue, Worker
from psycopg import AsyncConnection

DATA = "x" * 100
CONCURRENCY = 500
FLUSH_S = 0.05
UNDONE = "SELECT EXISTS (SELECT 1 FROM chancy_jobs WHERE state <> 'succeeded')"


def make_chancy(url: str) -> Chancy:
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(url, log=log)


async def noop(*, data: str) -> None:
    pass


async def install(url: str) -> None:
    async with make_chancy(url) as chancy:
        await chancy.migrate()
        queue = Queue(
            "bench",
            concurrency=CONCURRENCY,
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await chancy.declare(queue, upsert=True)


async def worker(url: str) -> None:
    async with make_chancy(url) as chancy:
        running = Worker(chancy)
        running.send_outgoing_interval = FLUSH_S
        async with running:
            while "bench" not in running.executors:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            print("ready", flush=True)
            await running.wait_for_shutdown()


async def measure(url: str, number: int) -> None:
    watching = await AsyncConnection.connect(url, autocommit=True)
    job = Job.from_func(noop, queue="bench", kwargs={"data": DATA})
    async with make_chancy(url) as chancy:
        began = time.perf_counter()
        async for _ in chancy.push_many([job] * number):
            pass
        while await is_undone(watching):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print(time.perf_counter() - began, flush=True)


async def is_undone(watching: AsyncConnection) -> bool:
    row = await (await watching.execute(UNDONE)).fetchone()
    return bool(row and row[0])


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
