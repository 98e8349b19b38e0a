"""Celery beat, with as many entries due at the same full minute as `bench.schedules` has due.

It has nothing else to look at: its entries are 1,000, not 1,000 of 100,000. Nobody takes what it
sends; beat keeps no record of what it sent, and a beat that dies or stands still for a while sends
nothing for the times that it missed but the last.
"""

from __future__ import annotations

from msgspec import Struct

from bench.children import Child, ChildFailed
from bench.peers.table import peer_command, pinned
from bench.redis_server import RedisServer
from bench.stage import Stage

MEASURE_S = 150.0


class Beat(Struct, frozen=True):
    """How many of the entries that were due were sent, and how late the last was, in each round."""

    version: str
    due: int
    sent: list[int]
    late_s: list[float]
    failure: str = ""


def measure(stage: Stage) -> Beat:
    """Some rounds: each waits for a full minute."""
    due, version = stage.sizes.due, pinned("celery")
    sent, late = list[int](), list[float]()
    try:
        with RedisServer() as redis:
            for _ in range(min(stage.sizes.pairs, 2)):
                command = [*peer_command("celery", "beat"), redis.clear(), str(due)]
                with Child(command) as measuring:
                    found, seconds = measuring.await_end(MEASURE_S).split()[-2:]
                sent.append(int(found))
                late.append(float(seconds))
                stage.say(
                    f"celery beat sent {sent[-1]:,} of {due:,}, the last {late[-1]:.2f} s late"
                )
    except (ChildFailed, ValueError, RuntimeError, OSError) as error:
        stage.say(f"celery beat failed: {error}")
        return Beat(version, due, sent, late, str(error))
    return Beat(version, due, sent, late)
