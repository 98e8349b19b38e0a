"""arq on Redis, measured as bench/peers/table.py says.

It keeps results for an hour. All is done when its queue is empty: a job leaves it in the
transaction that writes its result.
"""

import asyncio
import logging
import sys
import time

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.worker import Worker

DATA = "x" * 100
MOST_AT_ONCE = 10


async def noop(context: object, data: str) -> None:
    pass


async def tell(context: object) -> None:
    print("ready", flush=True)


async def worker(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    settings = RedisSettings.from_dsn(url)
    running = Worker(
        [noop],
        redis_settings=settings,
        on_startup=tell,
        max_jobs=MOST_AT_ONCE,
        poll_delay=0.01,
        log_results=False,
    )
    await running.async_run()


async def measure(url: str, number: int) -> None:
    pool = await create_pool(RedisSettings.from_dsn(url))
    turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def submit() -> None:
        async with turns:
            await pool.enqueue_job("noop", DATA)

    began = time.perf_counter()
    await asyncio.gather(*(submit() for _ in range(number)))
    while await pool.zcard(default_queue_name):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", url]:
            pass
        case ["worker", url]:
            uvloop.run(worker(url))
        case ["measure", url, number]:
            uvloop.run(measure(url, int(number)))
        case _:
            sys.exit(__doc__)
