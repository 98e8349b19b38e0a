"""A bare process that runs the body of `burn`, told what to do by lines of JSON.

{"do": "calibrate", "seconds": S}        how many rounds take so long
{"do": "run", "jobs": N, "rounds": R}    runs it so many times, and says when that began and ended
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.helper import questions, reply
from bench.plain_app import burn

TRIAL = 100_000
TRIALS = 9


def calibrate(seconds: float) -> int:
    """Rounds that take this process so long."""
    took = statistics.median(timed(1, TRIAL) for _ in range(TRIALS))
    return round(TRIAL * seconds / took)


def timed(jobs: int, rounds: int) -> float:
    """Seconds that so many runs take."""
    began, ended = run(jobs, rounds)
    return ended - began


def run(jobs: int, rounds: int) -> tuple[float, float]:
    """When so many runs began and ended."""
    began = time.monotonic()
    for _ in range(jobs):
        burn(rounds)
    return began, time.monotonic()


def do(question: dict[str, Any]) -> Any:
    """The answer to one question."""
    match question:
        case {"do": "calibrate", "seconds": seconds}:
            return calibrate(seconds)
        case {"do": "run", "jobs": jobs, "rounds": rounds}:
            return run(jobs, rounds)
        case _:
            raise ValueError(f"no such question: {question}")


if __name__ == "__main__":
    for asked in questions():
        reply(do(asked))
