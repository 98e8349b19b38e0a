"""Celery beat on Redis: N entries due at the same full minute. See `bench.beat`.

    celery_beat.py URL N

Starts beat, waits until the next full minute but one at most, and prints how many messages were in
the broker when no more came, and how many seconds after the minute the last one was there. No
worker takes them.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from celery import Celery
from celery.schedules import crontab
from redis import Redis

DATA = "x" * 100
QUEUE = "celery"
BEFORE_S = 10
"""So long before the minute beat must have begun."""
QUIET_S = 5
"""If nothing came for so long, no more comes."""
PATIENCE_S = 45
LOOK_S = 0.005


def beat(url: str, number: int, folder: str) -> None:
    """Runs beat until it is ended."""
    app = Celery("bench", broker=url)
    app.conf.update(
        beat_schedule={
            f"s{place}": {"task": "noop", "schedule": crontab(), "args": (DATA,)}
            for place in range(number)
        }
    )
    app.Beat(schedule=str(Path(folder) / "beat"), quiet=True, loglevel="ERROR").run()


def measure(url: str, number: int) -> tuple[int, float]:
    """How many were sent, and how late the last was."""
    broker = Redis.from_url(url)
    minute = (int(time.time() + BEFORE_S) // 60 + 1) * 60
    time.sleep(max(0.0, minute - BEFORE_S - time.time()))
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-P", __file__, "beat", url, str(number), folder]
        running = subprocess.Popen(words, stdout=sys.stderr)
        try:
            return watch(broker, minute, number)
        finally:
            running.terminate()
            running.wait()


def watch(broker: Redis, minute: int, number: int) -> tuple[int, float]:
    """Counts until all are there, or no more come."""
    sent, last_at = 0, float(minute)
    while sent < number and time.time() < minute + PATIENCE_S:
        if (found := broker.llen(QUEUE)) > sent:
            sent, last_at = found, time.time()
        if sent and time.time() > last_at + QUIET_S:
            break
        time.sleep(LOOK_S)
    return sent, last_at - minute


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["beat", url, number, folder]:
            beat(url, int(number), folder)
        case [url, number]:
            print(*measure(url, int(number)), flush=True)
        case _:
            sys.exit(__doc__)
