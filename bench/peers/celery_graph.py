"""Celery on Redis: a graph in layers, each a chord that the submitter awaits. See `bench.groups`.

A canvas of the whole graph is no choice: each message of a layer would carry all layers below it.
A chord runs one job more, when those of its layer have ended. The workers are those of celery.py.
"""

import sys
import time
from typing import Any

from celery import Celery, chord

DATA = "x" * 100


def noop(data: str) -> None:
    """Does nothing."""


def run(job: Any, layers: int, width: int) -> None:
    """Runs the whole graph."""
    for _ in range(layers):
        chord((job.s(DATA) for _ in range(width)), job.si(DATA))().get()


if __name__ == "__main__":
    url, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    app = Celery("bench", broker=url, backend=url.removesuffix("/0") + "/1")
    job = app.task(noop, name="noop")
    run(job, 1, width)
    began = time.monotonic()
    run(job, layers, width)
    print(time.monotonic() - began, flush=True)
