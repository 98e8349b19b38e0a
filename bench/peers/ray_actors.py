"""Ray: messages to actors, which keep nothing on disk. See `bench.actors`."""

import sys
import time

import ray

DATA = "x" * 100
PROCESSES = 8
"""Each actor is a process of its own: more of them only take memory."""


class Counter:
    """Counts its messages."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, data: str) -> int:
        """One more."""
        self.count += 1
        return self.count


def run(messages: int, actors: int) -> float:
    """Seconds until all messages are counted."""
    remote = ray.remote(num_cpus=0)(Counter)
    counters = [remote.remote() for _ in range(min(actors, PROCESSES))]
    ray.get([one.add.remote(DATA) for one in counters])
    began = time.monotonic()
    last = [counters[n % len(counters)].add.remote(DATA) for n in range(messages)]
    ray.get(last[-len(counters) :])
    return time.monotonic() - began


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    print(run(int(sys.argv[2]), int(sys.argv[3])), flush=True)
    ray.shutdown()
