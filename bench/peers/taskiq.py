"""Taskiq on Redis, measured as bench/peers/table.py says.

Jobs go through a list, results into a database of their own. All is done when that one has N keys.
"""

import asyncio
import logging
import sys
import time
from typing import Any

import uvloop
from redis.asyncio import Redis
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

DATA = "x" * 100
MOST_AT_ONCE = 10


def results_url(url: str) -> str:
    return url.removesuffix("/0") + "/1"


def make_broker(url: str) -> tuple[Any, Any]:
    broker = ListQueueBroker(url).with_result_backend(RedisAsyncResultBackend(results_url(url)))
    return broker, broker.task(task_name="noop")(noop)


async def noop(data: str) -> None:
    pass


async def worker(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    broker, _ = make_broker(url)
    await broker.startup()
    print("ready", flush=True)
    await run_receiver_task(broker, max_async_tasks=MOST_AT_ONCE, max_prefetch=MOST_AT_ONCE)


async def measure(url: str, number: int) -> None:
    broker, job = make_broker(url)
    await broker.startup()
    results = Redis.from_url(results_url(url))
    turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def submit() -> None:
        async with turns:
            await job.kiq(DATA)

    began = time.perf_counter()
    await asyncio.gather(*(submit() for _ in range(number)))
    while await results.dbsize() < number:  # noqa: ASYNC110
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
