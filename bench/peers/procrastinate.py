"""Procrastinate on PostgreSQL, measured as bench/peers/table.py says.

It keeps each job's row with its final status, and no results. All is done when every row has
succeeded. With `measure URL N KEYS`, jobs have one of so many locks: of those with one lock, one
runs at a time.
"""

import asyncio
import logging
import sys
import time
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection

DATA = "x" * 100
CONCURRENCY = 20
ENQUEUE = 1_000
UNDONE = "SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status <> 'succeeded')"


def make_app(url: str) -> tuple[Any, Any]:
    app = App(connector=PsycopgConnector(conninfo=url, max_size=CONCURRENCY))
    return app, app.task(name="noop")(noop)


async def noop(data: str) -> None:
    pass


async def install(url: str) -> None:
    app, _ = make_app(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def worker(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    app, _ = make_app(url)
    async with app.open_async():
        print("ready", flush=True)
        await app.run_worker_async(concurrency=CONCURRENCY)


async def measure(url: str, number: int, keys: int = 0) -> None:
    app, job = make_app(url)
    watching = await AsyncConnection.connect(url, autocommit=True)
    async with app.open_async():
        began = time.perf_counter()
        for lock in range(keys):
            # A batch has one lock.
            locked = job.configure(lock=f"tenant={lock}")
            await locked.batch_defer_async(*({"data": DATA} for _ in range(number // keys)))
        for first in range(0, 0 if keys else number, ENQUEUE):
            size = min(ENQUEUE, number - first)
            await job.batch_defer_async(*({"data": DATA} for _ in range(size)))
        while await is_undone(watching):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print(time.perf_counter() - began, flush=True)


async def is_undone(watching: Any) -> bool:
    cursor = await watching.execute(UNDONE)
    (undone,) = await cursor.fetchone()
    return bool(undone)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", url]:
            uvloop.run(install(url))
        case ["worker", url]:
            uvloop.run(worker(url))
        case ["measure", url, number]:
            uvloop.run(measure(url, int(number)))
        case ["measure", url, number, keys]:
            uvloop.run(measure(url, int(number), int(keys)))
        case _:
            sys.exit(__doc__)
