"""A bare process that starts a command and waits for it, again and again, told so by JSON.

{"do": "run", "jobs": N}    starts it so many times, and says when that began and ended
"""

from __future__ import annotations

import os
import time

from bench.helper import questions, reply

ARGV = ["/bin/true", "x" * 100]


def run(jobs: int) -> tuple[float, float]:
    """When so many runs began and ended."""
    began = time.monotonic()
    for _ in range(jobs):
        os.waitpid(os.posix_spawn(ARGV[0], ARGV, os.environ), 0)
    return began, time.monotonic()


def main() -> None:
    """Answers until nobody asks any more."""
    for question in questions():
        reply(run(question["jobs"]))


if __name__ == "__main__":
    main()
