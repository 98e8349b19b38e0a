"""DBOS on PostgreSQL, measured as bench/peers/table.py says.

A job is a workflow of no steps, put into a queue by DBOS's client, many in one transaction. It
keeps results. All is done when N workflows have succeeded.
"""

import signal
import sys
import time
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

DATA = "x" * 100
QUEUE = "bench"
CONCURRENCY = 100
POLL_S = 0.05
ENQUEUE = 100
VERSION = "1"
DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def launch(url: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "application_version": VERSION,
            "log_level": "WARNING",
            "sys_db_pool_size": 20,
        }
    )
    DBOS.workflow(name="noop")(noop)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_S)


async def noop(data: str) -> None:
    pass


def install(url: str) -> None:
    launch(url)
    DBOS.destroy()


def worker(url: str) -> None:
    launch(url)
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def measure(url: str, number: int) -> None:
    client = DBOSClient(system_database_url=url, application_name="bench")
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    began = time.perf_counter()
    for first in range(0, number, ENQUEUE):
        enqueue(client, engine, min(ENQUEUE, number - first))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watching:
        while watching.execute(sqlalchemy.text(DONE)).scalar_one() < number:
            time.sleep(0.01)
    print(time.perf_counter() - began, flush=True)


def enqueue(client: Any, engine: Any, size: int) -> None:
    options = {"queue_name": QUEUE, "workflow_name": "noop", "app_version": VERSION}
    with engine.begin() as connection:
        for _ in range(size):
            client.enqueue_in_transaction(connection, options, DATA)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", url]:
            install(url)
        case ["worker", url]:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            worker(url)
        case ["measure", url, number]:
            measure(url, int(number))
        case _:
            sys.exit(__doc__)
