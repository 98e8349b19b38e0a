"""Huey on Redis, measured as bench/peers/table.py says.

It keeps what a job returns unless that is None, so this no-op returns a number. All is done when
it has N results.
"""

import logging
import sys
import time
from typing import Any

from huey import RedisHuey

DATA = "x" * 100


def make_huey(url: str) -> tuple[Any, Any]:
    huey = RedisHuey("bench", url=url)
    return huey, huey.task(name="noop")(noop)


def noop(data: str) -> int:
    return 0


def worker(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    huey, _ = make_huey(url)
    huey.on_startup()(lambda: print("ready", flush=True))
    huey.create_consumer(workers=1, worker_type="process", periodic=False).run()


def measure(url: str, number: int) -> None:
    huey, job = make_huey(url)
    began = time.perf_counter()
    for _ in range(number):
        job(DATA)
    while huey.result_count() < number:
        time.sleep(0.01)
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", url]:
            pass
        case ["worker", url]:
            worker(url)
        case ["measure", url, number]:
            measure(url, int(number))
        case _:
            sys.exit(__doc__)
