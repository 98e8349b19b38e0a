"""Dramatiq on Redis, measured as bench/peers/table.py says.

It keeps no results unless told to, and is not. All is done when its queue is empty, which counts
the jobs that were fetched and not yet acknowledged too. With its usual prefetch, twice the threads,
workers would sleep between fetches: hence the larger one, and few threads.
"""

import logging
import signal
import sys
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

DATA = "x" * 100
THREADS = 4
PREFETCH = 500


def make_broker(url: str) -> tuple[Any, Any]:
    broker = RedisBroker(url=url)
    dramatiq.set_broker(broker)
    return broker, dramatiq.actor(noop, broker=broker)


def noop(data: str) -> None:
    pass


def worker(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    broker, _ = make_broker(url)
    running = dramatiq.Worker(broker, worker_threads=THREADS)
    running.queue_prefetch = PREFETCH  # what the variable dramatiq_queue_prefetch sets
    running.start()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    running.stop()


def measure(url: str, number: int) -> None:
    broker, job = make_broker(url)
    began = time.perf_counter()
    for _ in range(number):
        job.send(DATA)
    broker.join(job.queue_name, interval=10)
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", url]:
            pass
        case ["worker", url]:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            worker(url)
        case ["measure", url, number]:
            measure(url, int(number))
        case _:
            sys.exit(__doc__)
