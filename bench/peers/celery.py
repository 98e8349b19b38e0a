"""Celery on Redis, measured as bench/peers/table.py says.

The worker keeps results in Redis; the submitter has no result backend, since with one it would
subscribe to each job's channel, which slows it down. All is done when the database that holds
nothing but results has N keys.
"""

import sys
import time

from celery import Celery
from celery.signals import worker_ready
from redis import Redis

DATA = "x" * 100
PREFETCH = 500


def results_url(url: str) -> str:
    return url.removesuffix("/0") + "/1"


def make_app(url: str, backend: str | None) -> Celery:
    app = Celery("bench", broker=url, backend=backend)
    app.conf.update(
        worker_prefetch_multiplier=PREFETCH,
        worker_disable_rate_limits=True,
        worker_send_task_events=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
    )
    return app


def noop(data: str) -> None:
    pass


def worker(url: str) -> None:
    app = make_app(url, results_url(url))
    app.task(noop, name="noop")

    @worker_ready.connect(weak=False)
    def tell(**_: object) -> None:
        print("ready", flush=True)

    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["--quiet", "worker", "--pool=prefork", "--concurrency=2", *quiet])


def measure(url: str, number: int) -> None:
    job = make_app(url, None).task(noop, name="noop")
    results = Redis.from_url(results_url(url))
    began = time.perf_counter()
    with job.app.producer_or_acquire() as producer:
        for _ in range(number):
            job.apply_async((DATA,), producer=producer)
    while results.dbsize() < number:
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
