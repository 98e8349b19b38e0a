"""SAQ on Redis, measured as bench/peers/table.py says.

It keeps results for ten minutes. All is done when no job is incomplete: a job leaves that set in
the transaction that writes its result.
"""

import asyncio
import logging
import sys
import time

import uvloop
from saq import Job, Queue, Worker

DATA = "x" * 100
CONCURRENCY = 10


async def noop(context: object, *, data: str) -> None:
    pass


async def tell(context: object) -> None:
    print("ready", flush=True)


async def worker(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    queue = Queue.from_url(url)
    await Worker(queue, [("noop", noop)], concurrency=CONCURRENCY, startup=tell).start()


async def measure(url: str, number: int) -> None:
    queue = Queue.from_url(url)
    await queue.connect()
    began = time.perf_counter()
    jobs = [Job("noop", kwargs={"data": DATA}) for _ in range(number)]
    await asyncio.gather(*map(queue.enqueue, jobs))
    while await queue.count("incomplete"):  # noqa: ASYNC110
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
